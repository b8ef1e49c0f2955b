"""Ranges: the bounds of what a mask leaves of a reduction, as values of the run."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.masked_ranges import Bound, MaskedRange
from hlo.analysis.reducers import reducer_of
from hlo.backend.emitters import constants, reducers
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.lanes.types import parts
from hlo.backend.loops.chains import uniform
from hlo.backend.loops.ranges import reduced_ranges
from hlo.indexing.affine import Index
from hlo.ir.instruction import Instruction


def reduced_bounds(
    elemental: Elemental, reduce: Instruction, indices: Sequence[Index], length: int
) -> tuple[Value, Value]:
    """[low, high) of the reduced position, outside of which the terms of all indices are the
    reducer's identity.
    """
    w = elemental.nest.w
    found = reduced_ranges(elemental.expression, reduce, indices, length)
    lows, highs = zip(*(_bounds(elemental, reduce, one, length) for one in found), strict=True)
    return _met(w, "smin", lows), _met(w, "smax", highs)


def _bounds(
    elemental: Elemental, reduce: Instruction, one: MaskedRange, length: int
) -> tuple[Value, Value]:
    """Of one index; everything, where the run finds other numbers than the identity outside."""
    w = elemental.nest.w
    sides = [
        [_bound(elemental, b, length) for b in one.bounds if b.is_low is is_low]
        for is_low in (True, False)
    ]
    low = _met(w, "smax", [*sides[0], w.int(0)])
    high = _met(w, "smin", [*sides[1], w.int(length)])
    rest, index = one.rest
    if uniform(elemental.expression, elemental.expression.source(rest, ())) is not None:
        return low, high
    (lanes,) = elemental.lanes_at(rest, [index])
    (value,) = parts(lanes)
    dtype = reduce.operands[0].shape.dtype
    (identity,) = reducers.identities(w, reducer_of(reduce), [dtype])
    (wanted,) = parts(identity)
    test = "fcmp oeq" if dtype.is_float else "icmp eq"
    is_left_out = w.compare(test, value, wanted)
    return w.select(is_left_out, low, w.int(0)), w.select(is_left_out, high, w.int(length))


def _bound(elemental: Elemental, bound: Bound, length: int) -> Value:
    """A bound's position, clamped to the dimension."""
    nest, w, offset = elemental.nest, elemental.nest.w, bound.offset
    (lanes,) = elemental.lanes_at(bound.value, [bound.index])
    assert isinstance(lanes, Value), "bounds are integers"
    dtype = bound.value.shape.dtype
    value = constants.clamped_index(w, lanes, dtype, -offset.high, length - offset.low)
    position = w.binary("add", value, nest.scalar(offset))
    position = w.intrinsic("llvm.smax", "i64", position, w.int(0))
    return w.intrinsic("llvm.smin", "i64", position, w.int(length))


def _met(w: Writer, name: str, values: Sequence[Value]) -> Value:
    """The least or the greatest of them."""
    (total, *others) = values
    for value in others:
        total = w.intrinsic(f"llvm.{name}", "i64", total, value)
    return total
