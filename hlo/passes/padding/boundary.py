"""The boundary of a padded program: where sizes that change at run time come in and go out.

    module of dynamic parameters and results --static_program--> module of arrays and their sizes

Inside, such a program has static shapes: parameters go through the custom call PadToStatic, results
come from SliceToDynamic, and what it is where its sizes are not as assumed is the false branch of
a conditional. Whoever calls the static program pads, cuts and asks somebody else instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from hlo.analysis.leaves import leaf_count
from hlo.ir.computation import Computation
from hlo.ir.graph import clone_module
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import UNBOUNDED, Shape
from hlo.ops.making import make, make_constant
from hlo.passes.padding.scope import (
    FLAG,
    SIZE,
    Made,
    Scope,
    Sizes,
    UnsupportedError,
    built,
    flattened,
    is_dynamic,
    static,
)
from hlo.passes.simplify.call_inliner import inline_call
from hlo.passes.simplify.dce import dce
from hlo.passes.simplify.tuple_simplifier import tuple_simplifier

PAD, CUT = "PadToStatic", "SliceToDynamic"
_LARGEST = int(np.iinfo(np.int32).max)  # of SIZE
SizePositions = tuple[tuple[int, int], ...]  # (leaf of the result, dimension)
Given = tuple[tuple[int, int, int], ...]  # (parameter, leaf of it, dimension)


class Padded(Struct, frozen=True):
    """The static program; given: sizes that it takes after its parameters; found: sizes that it
    gives after the `leaves` of the result, before the flag: whether all was as it assumes."""

    module: Module
    given: Given
    found: SizePositions
    leaves: int


# -- the custom calls ----------------------------------------------------------------------------


def pad(leaf: Instruction) -> tuple[Instruction, Sizes]:
    """An array of dynamic sizes as one of its bounds, and these sizes."""
    assert leaf.computation is not None, "an instruction in a computation"
    shape = Shape.tuple((static(leaf.shape), *(SIZE for _ in leaf.shape.dims)))
    target = {"custom_call_target": PAD}
    both = leaf.computation.new("custom-call", shape, (leaf,), target, like=leaf, name="pad")
    array = make(both, "get-tuple-element", both, index=0)
    return array, {
        d: make(both, "get-tuple-element", both, index=1 + d) for d in dynamic_dims(leaf.shape)
    }


def cut(array: Instruction, sizes: Iterator[Instruction], shape: Shape) -> Instruction:
    """An array under the next of some sizes, those of the shape's dynamic dimensions."""
    assert array.computation is not None, "an instruction in a computation"
    given = [
        next(sizes) if is_sized else _whole(array, d) for d, is_sized in enumerate(shape.dynamic)
    ]
    target = {"custom_call_target": CUT}
    return array.computation.new("custom-call", shape, (array, *given), target, like=array)


def parameter(p: Scope, old: Instruction) -> Made:
    """A parameter of the entry stays; its value is the padded one."""
    if any(UNBOUNDED in leaf.dims for leaf in old.shape.leaves()):
        raise UnsupportedError
    p.kept.add(old)
    leaves = []
    for leaf in flattened(p.parts(old)):
        array, sizes = pad(leaf) if leaf.shape.is_dynamic else (leaf, {})
        leaves.append(array)
        if sizes:
            p.sizes[array] = sizes
    value = built(iter(leaves), old.shape)
    return value, p.sizes.get(value, {}) if isinstance(value, Instruction) else {}


def has_sizes(module: Module) -> bool:
    """Whether all dimensions of a module have a size that a scalar beside the array holds."""
    every = (i.shape for c in module.computations for i in c.instructions)
    return all(n <= _LARGEST for shape in every for leaf in shape.leaves() for n in leaf.dims)


def dynamic_dims(shape: Shape) -> tuple[int, ...]:
    """The dimensions of an array whose size is known at run time."""
    return tuple(d for d, is_sized in enumerate(shape.dynamic) if is_sized)


def _whole(array: Instruction, d: int) -> Instruction:
    return make_constant(array, Literal.of(np.array(array.shape.dims[d], np.int32), SIZE))


def _is_call(instruction: Instruction, target: str) -> bool:
    return instruction.get("custom_call_target") == target


# -- the program between them --------------------------------------------------------------------


def static_program(module: Module) -> Padded | None:
    """The program inside; None where sizes are dynamic elsewhere than at its boundary."""
    if not has_sizes(module):
        return None
    copy = clone_module(module)
    copy.attributes = {}  # The given ones are those of another program shape.
    entry = copy.entry
    flag: Instruction | None = None
    for choice in [i for i in entry.instructions if _is_choice(i)]:
        selector, operand, _ = choice.operands
        flag = make(choice, "and", flag, selector) if flag else selector
        branch = choice["true_computation"]
        call = make(choice, "call", operand, shape=choice.shape, to_apply=branch)
        entry.replace_uses(choice, call)
        entry.remove(choice)
        inline_call(call)
    try:
        leaves, sizes, found = _left(entry.root)
    except UnsupportedError:
        return None
    flag = flag or make_constant(entry.root, Literal.of(np.array(True), FLAG))
    entry.root = make(flag, "tuple", *leaves, *sizes, flag)
    sized = [p for p in entry.parameters if p.shape.is_dynamic]
    given = tuple(place for parameter in sized for place in _entered(entry, parameter))
    tuple_simplifier(copy)
    dce(copy)
    for parameter in sized:
        if not parameter.users:
            entry.remove(parameter)
    return None if copy.has_dynamic_sizes else Padded(copy, given, found, len(leaves))


def _is_choice(instruction: Instruction) -> bool:
    """A conditional that is static but for its false branch."""
    if instruction.opcode != "conditional" or instruction.operands[0].shape != FLAG:
        return False
    taken, other = instruction["true_computation"], instruction["false_computation"]
    assert isinstance(taken, Computation), "a computation"
    assert isinstance(other, Computation), "a computation"
    is_free = "control-predecessors" not in instruction.attributes
    return is_free and other.fact(is_dynamic) and not taken.fact(is_dynamic)


def _left(root: Instruction) -> tuple[list[Instruction], list[Instruction], SizePositions]:
    """What goes out: the leaves of the result, and the sizes of those that are cut."""
    leaves: list[Instruction] = []
    sizes: list[Instruction] = []
    found: list[tuple[int, int]] = []
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if value.opcode == "tuple":
            waiting += reversed(value.operands)
        elif value.shape.is_tuple and not value.shape.is_dynamic:
            count = len(value.shape.elements)
            parts = [make(value, "get-tuple-element", value, index=k) for k in range(count)]
            waiting += reversed(parts)
        elif _is_call(value, CUT):
            array, *given = value.operands
            for d in dynamic_dims(value.shape):
                sizes.append(given[d])
                found.append((len(leaves), d))
            leaves.append(array)
        elif value.shape.is_array and not value.shape.is_dynamic:
            leaves.append(value)
        else:
            raise UnsupportedError
    return leaves, sizes, tuple(found)


def _entered(entry: Computation, old: Instruction) -> Iterator[tuple[int, int, int]]:
    """A parameter of static shapes beside one of dynamic ones; where the sizes belong that are
    parameters as well, after all others."""
    number = old["parameter_number"]
    assert isinstance(number, int), "a parameter has a number"
    new = entry.new("parameter", static(old.shape), (), {"parameter_number": number}, like=old)
    sizes: dict[tuple[int, int], Instruction] = {}
    count = max(int(str(p["parameter_number"])) for p in entry.parameters)
    for n, leaf in enumerate(old.shape.leaves()):
        for d in dynamic_dims(leaf):
            place = {"parameter_number": count + 1 + len(sizes)}
            sizes[n, d] = entry.new("parameter", SIZE, (), place, like=old, name="size")
            yield number, n, d
    waiting = [(old, new, 0)]
    while waiting:
        was, now, first = waiting.pop()
        for user in tuple(was.users):
            if user.opcode == "get-tuple-element":
                index = user["index"]
                assert isinstance(index, int), "get-tuple-element has an integer index"
                before = sum(map(leaf_count, was.shape.elements[:index]))
                part = make(now, "get-tuple-element", now, index=index)
                waiting.append((user, part, first + before))
                if not user.shape.is_dynamic:
                    entry.replace_uses(user, part)
            elif _is_call(user, PAD):
                dims = range(now.shape.rank)
                given = [sizes[first, d] if (first, d) in sizes else _whole(now, d) for d in dims]
                entry.replace_uses(user, make(user, "tuple", now, *given))
