"""Loops whose state goes without some of its elements."""

from __future__ import annotations

from collections.abc import Set

from hlo.analysis.while_loops.loop_state import (
    element_index,
    of_any_shape,
    start_of,
    unchanged_elements,
)
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.passes.loop_making import home
from hlo.passes.simplify.dce import drop_dead_instructions, drop_unread


def unread_elements(loop: Instruction) -> set[int]:
    """The elements of the state that nothing in the loop reads and no trip changes."""
    body, condition = loop.called_computations()
    tested = {element_index(u) for u in condition.parameters[0].users}
    kept = (e for e in unchanged_elements(body) if e.users.keys() <= {body.root})
    return {element_index(e) for e in kept} - tested


def without_unread(loop: Instruction) -> Instruction:
    """The loop without what it is handed and does not read, which is behind it what it was before.

    Its readers take elements, and nothing in its body is dead.
    """
    unread = unread_elements(loop)
    for reader in tuple(loop.users):
        if element_index(reader) in unread:
            home(loop).replace_uses(reader, start_of(loop, element_index(reader)))
    return shrink(loop, unread) if unread else loop


def shrink(loop: Instruction, numbers: Set[int]) -> Instruction:
    """The loop without elements of its state that nobody reads, but their own next trips. It is
    another instruction, whose readers take elements.
    """
    computation = home(loop)
    staying = [n for n in range(len(loop.shape.elements)) if n not in numbers]
    places = {number: place for place, number in enumerate(staying)}
    shape = Shape.tuple(tuple(loop.shape.elements[n] for n in staying))
    body, condition = loop.called_computations()
    root = body.root
    kept = [root.operands[n] for n in staying]
    body.root = body.new("tuple", shape, kept, like=root, name=root.name)
    body.remove(root)
    drop_dead_instructions(body)
    for (parameter,) in (body.parameters, condition.parameters):
        _renumber(parameter, places)
        parameter.shape = shape
        parameter.attributes = of_any_shape(parameter)
    (before,) = loop.operands
    starts = [start_of(loop, n) for n in staying]
    state = make(loop, "tuple", *starts, shape=shape)
    narrower = computation.new("while", shape, (state,), of_any_shape(loop), like=loop)
    for end in tuple(loop.users):
        if element_index(end) in places:
            computation.set_operand(end, 0, narrower)
        elif not end.users:
            computation.remove(end)
    _renumber(narrower, places)
    computation.remove(loop)
    drop_unread(before)
    return narrower


def _renumber(whole: Instruction, places: dict[int, int]) -> None:
    """Let elements be read where they are now."""
    computation = whole.computation
    assert computation is not None, "it stands in a computation"
    for element in whole.users:
        number = places[element_index(element)]
        computation.set_attributes(element, {**element.attributes, "index": number})
