"""Products of floats of which one may be subnormal, without the processor's assist.

    float(double(x) * double(y))

A processor that leaves subnormal numbers to microcode takes `Cycles.assist` for a vector with one
among its factors or products. As doubles none of them is subnormal, and the product of two floats
is exact (48 of 53 bits), so that narrowing it, for which processors have no assist, rounds as the
product of floats does. This takes a tenth of the assist and ten times the product: vectors without
a subnormal factor go the short way.

Only factors that are likely to underflow are looked at (analysis/underflow.py), and only where one
instruction does it: three of them and branches among 16 registers took programs without subnormal
numbers 1.05 to 1.2 of their time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hlo.analysis.underflow import underflowing
from hlo.backend.ir.records import Arithmetic
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.expression import Expression
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction

_MANY = 512  # For fewer elements the code is not worth its compilation.
_NOTE = "subnormal"  # What is noted of a vector: an i1, whether some lane of it, or beside it, is.


def products(
    nest: Nest, expression: Expression, multiply: Instruction, *factors: Sequence[Lanes]
) -> list[Lanes] | None:
    """The products of vectors; None where nothing is to be gained.

    factors: of each of the two the lanes, as many as there are products.
    """
    around, dtype = expression.underflows_in, multiply.shape.dtype
    if around is None or dtype not in (dt.F32, dt.BF16) or multiply.shape.size < _MANY:
        return None
    tails = underflowing(around)
    places = [n for n, o in enumerate(multiply.operands) if (o, ()) in tails]
    if not places:
        return None
    w = nest.w
    pairs = [_of_one_length(w, *pair) for pair in zip(*factors, strict=True)]
    flag = _some_is_subnormal(nest, dict.fromkeys(pair[n] for pair in pairs for n in places))
    if flag is None:
        return None
    results = _either_way(nest, pairs, flag)
    if not dtype.is_narrow_float:
        return list(results)
    return [types.rounded(w, nest.target, r, dtype, has_short_nans=True) for r in results]


def _of_one_length(w: Writer, *factors: Lanes) -> tuple[Value, ...]:
    lanes = max(types.width(x) for x in factors)
    return tuple(w.splat(x, lanes) for x in factors if isinstance(x, Value))


def _some_is_subnormal(nest: Nest, vectors: Iterable[Value]) -> Value | None:
    """i1: whether some lane of these is; None where no instruction says so."""
    w = nest.w
    known = {v: w.noted(v, _NOTE) for v in vectors}
    flags = dict.fromkeys(flag for flag in known.values() if flag is not None)
    if fresh := [v for v, flag in known.items() if flag is None]:
        masks = [m for v in fresh if (m := nest.target.isa.subnormal_lanes(w, v)) is not None]
        if len(masks) < len(fresh):
            return None
        flag = w.any_lane(*masks)
        for vector in fresh:
            w.note(vector, _NOTE, flag)
        flags[flag] = None
    return w.any_lane(*flags)


def _either_way(nest: Nest, pairs: Sequence[tuple[Value, ...]], is_subnormal: Value) -> list[Value]:
    """The products of floats, or of doubles if there are subnormal ones. Opens basic blocks."""
    w = nest.w
    quick, slow, done = (w.new_label(p) for p in ("quick", "slow", "done"))
    w.branch_if(is_subnormal, slow, quick)
    w.label(quick)
    short = [w.assign(Arithmetic, x.type, "fmul", x, y) for x, y in pairs]
    w.branch(done)
    w.label(slow)
    with w.region():
        long = [_of_doubles(nest, x, y) for x, y in pairs]
    w.branch(done)
    w.label(done)
    results = [
        w.phi(a.type, (a, quick), (b, slow), is_tight=True).value
        for a, b in zip(short, long, strict=True)
    ]
    for result in results:
        w.note(result, _NOTE, is_subnormal)
    return results


def _of_doubles(nest: Nest, x: Value, y: Value) -> Value:
    w, type = nest.w, vector_of("double", x.lanes)
    product = w.binary("fmul", w.cast("fpext", x, type), w.cast("fpext", y, type))
    return w.cast("fptrunc", product, x.type)
