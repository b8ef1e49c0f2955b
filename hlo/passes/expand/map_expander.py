"""map_expander: a map whose computation loops, branches or calls is a loop over elements.

map(x, y) f  =>  while(i < n) { r[i] = f(x[i], y[i]) }, all arrays seen as one line
"""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.graph import clone_instruction, is_topological, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.passes.liveness import replace, replaceable
from hlo.passes.loop_making import (
    adopted,
    blank,
    element,
    new_computation,
    number,
    parameter,
    row,
)
from hlo.passes.simplify.conditional_to_select import is_plain

MOST = 2**31 - 1  # The most elements: an s32 counts them.


def map_expander(module: Module) -> bool:
    """Write maps of computations with control flow as loops. O(instructions)."""
    found = [i for i in replaceable(module, "map") if _is_expandable(i)]
    for instruction in found:
        replace(instruction, _expanded(instruction, module))
    return bool(found)


def _is_expandable(instruction: Instruction) -> bool:
    shape = instruction.shape
    if not instruction.operands or shape.is_dynamic or not 0 < shape.size <= MOST:
        return False
    members = _function(instruction).instructions
    if any("control-predecessors" in i.attributes for i in members):
        return False
    return not all(is_plain(i) for i in members)


def _function(instruction: Instruction) -> Computation:
    found = instruction["to_apply"]
    assert isinstance(found, Computation), "to_apply is a computation"
    return found


def _expanded(instruction: Instruction, module: Module) -> Instruction:
    """State: counter, result, operands."""
    like, shape = instruction, instruction.shape
    lines = [_line(like, o) for o in like.operands]
    result = blank(like, Shape.array(shape.dtype, (shape.size,)))
    start = make(like, "tuple", number(like, 0), result, *lines)
    condition = adopted(module, like, _condition(like, start.shape))
    body = adopted(module, like, _body(like, start.shape))
    loop = make(like, "while", start, condition=condition, body=body)
    return make(like, "reshape", element(loop, 1), shape=Shape.array(shape.dtype, shape.dims))


def _line(like: Instruction, x: Instruction) -> Instruction:
    """All elements in one dimension, the last index fastest whatever the layout."""
    plain = Shape.array(x.shape.dtype, x.shape.dims)
    if x.shape != plain:
        x = make(like, "copy", x, shape=plain)
    return make(like, "reshape", x, shape=Shape.array(plain.dtype, (plain.size,)))


def _condition(like: Instruction, state: Shape) -> Computation:
    made = new_computation(like, "map_condition")
    counter = element(parameter(made, 0, state), 0)
    limit = number(counter, like.shape.size)
    made.root = make(counter, "compare", counter, limit, direction="LT")
    return made


def _body(like: Instruction, state: Shape) -> Computation:
    made = new_computation(like, "map_body")
    whole = parameter(made, 0, state)
    counter, result, *lines = (element(whole, k) for k in range(len(state.elements)))
    value = _inlined(_function(like), [row(x, 0, counter) for x in lines], made)
    one = make(counter, "reshape", value, shape=Shape.array(like.shape.dtype, (1,)))
    updated = make(counter, "dynamic-update-slice", result, one, counter)
    following = make(counter, "add", counter, number(counter, 1))
    made.root = make(counter, "tuple", following, updated, *lines, shape=state)
    return made


def _inlined(function: Computation, values: list[Instruction], made: Computation) -> Instruction:
    """The function's root, for these values of its parameters."""
    order = function.instructions
    if not is_topological(order):
        order = post_order(function)
    twins = dict(zip(function.parameters, values, strict=True))
    for old in order:
        if old not in twins:
            new = clone_instruction(old, tuple(twins[o] for o in old.operands))
            twins[old] = made.adopt(new)
    return twins[function.root]
