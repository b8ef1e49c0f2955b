"""Integers of 64 bits that stay within 32 are computed in these.

    compare(iota s64 - c, 0)  =>  compare(iota s32 - c, 0),    convert f32 likewise
    select(max(x, 0) < 0, y, z)  =>  z

As programs in JAX's mode of 64 bits count rows and columns. Lanes of words are twice as many, and
machines without AVX-512 have neither products, extremes nor conversions of longer ones. Where all
of an expression stays within 32 bits (analysis/integer_ranges.py) it has the same value in both.
"""

from __future__ import annotations

import numpy as np

from hlo.analysis.integer_ranges import FOLLOWED, Range, ranges
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.machine import COMMON_LANES
from hlo.ops.making import make, make_constant
from hlo.passes.rewriting import is_pinned


def compute_in_words(computation: Computation) -> bool:
    """Rewrite comparisons and conversions of what stays within 32 bits. O(instructions)."""
    wanted = [i for i in computation.instructions if _is_end(i)]
    asked = [i for i in computation.instructions if _asks(i)]
    if not wanted and not asked:
        return False
    found = ranges(computation)
    changed = _choose(computation, asked, found)
    narrow = _narrow(computation, found)
    ends = {
        end
        for end in wanted
        if all(o in narrow for o in end.operands)
        and any(o.opcode != "constant" for o in end.operands)
    }
    for end, made in _in_words(computation, ends, narrow).items():
        computation.replace_uses(end, made)
        computation.remove(end)
    return changed or bool(ends)


def _asks(one: Instruction) -> bool:
    """Whether it selects by how integers compare."""
    if one.opcode != "select" or one.is_root or is_pinned(one):
        return False
    test = one.operands[0]
    return test.opcode == "compare" and test.operands[0].shape.dtype.is_integral


def _choose(
    computation: Computation, asked: list[Instruction], found: dict[Instruction, Range]
) -> bool:
    """Put in the place of a selection what it always selects."""
    changed = False
    for select in asked:
        test, *values = select.operands
        ends = [found.get(o) for o in test.operands]
        if ends[0] is None or ends[1] is None or select.shape.is_dynamic:
            continue
        holds = _holds(str(test["direction"]), ends[0], ends[1])
        if holds is not None and values[0].shape.dims == values[1].shape.dims:
            computation.replace_uses(select, values[0 if holds else 1])
            changed = True
    return changed


def _holds(direction: str, a: Range, b: Range) -> bool | None:
    """What a comparison comes out as, if always the same."""
    if direction in ("GT", "GE"):
        a, b, direction = b, a, {"GT": "LT", "GE": "LE"}[direction]
    if direction == "LT":
        return True if a[1] < b[0] else False if a[0] >= b[1] else None
    if direction == "LE":
        return True if a[1] <= b[0] else False if a[0] > b[1] else None
    return None


def _is_end(one: Instruction) -> bool:
    """Whether it compares or converts integers of 64 bits."""
    if one.opcode not in ("compare", "convert") or one.is_root or is_pinned(one):
        return False
    source = one.operands[0].shape
    if source.dtype is not dt.S64 or one.shape.dtype is dt.S64 or source.is_dynamic:
        return False
    return source.size >= COMMON_LANES


def _narrow(computation: Computation, found: dict[Instruction, Range]) -> set[Instruction]:
    """What stays within 32 bits, with all that it is computed of."""
    least, most = dt.S32.int_range
    narrow: set[Instruction] = set()
    for one in post_order(computation):
        if one not in found or one.shape.dtype is not dt.S64 or one.opcode not in FOLLOWED:
            continue
        if not (least <= found[one][0] and found[one][1] <= most):
            continue
        if all(o in narrow or _is_word(o) for o in one.operands):
            narrow.add(one)
    return narrow


def _is_word(operand: Instruction) -> bool:
    """Whether it is an integer whose values a word has, or truths."""
    dtype = operand.shape.dtype
    if dtype.is_pred:
        return True
    return dtype.is_integral and dtype is not dt.U32 and dtype.bits <= dt.S32.bits


def _in_words(
    computation: Computation, ends: set[Instruction], narrow: set[Instruction]
) -> dict[Instruction, Instruction]:
    """What takes the ends' places, of the same numbers in 32 bits. O(instructions)."""
    waiting = [o for end in ends for o in end.operands]
    needed: set[Instruction] = set()
    while waiting:
        top = waiting.pop()
        if top in narrow and top not in needed:
            needed.add(top)
            waiting += top.operands
    twins: dict[Instruction, Instruction] = {}
    for one in post_order(computation):
        if one in needed:
            twins[one] = _made(one, twins)
        elif one in ends:
            twins[one] = _end(one, twins)
    return {one: made for one, made in twins.items() if one in ends}


def _end(one: Instruction, twins: dict[Instruction, Instruction]) -> Instruction:
    """A comparison or a conversion of words."""
    operands = [twins[o] for o in one.operands]
    if one.shape.dtype is dt.S32 and one.opcode == "convert":
        return operands[0]
    return make(one, one.opcode, *operands, shape=one.shape, **one.attributes)


def _made(one: Instruction, twins: dict[Instruction, Instruction]) -> Instruction:
    shape = one.shape.with_dtype(dt.S32)
    literal = one.get("literal")
    if one.opcode == "constant" and isinstance(literal, Literal):
        values = literal.array.astype(np.int32)
        return make_constant(one, Literal.of(values, Shape.array(dt.S32, one.shape.dims)))
    operands = [twins.get(o, o) for o in one.operands]
    if one.opcode == "convert" and operands[0].shape.dtype is dt.S32:
        return operands[0]
    return make(one, one.opcode, *operands, shape=shape, **one.attributes)
