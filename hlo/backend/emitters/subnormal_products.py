"""Products and quotients of floats that may be subnormal, without the processor's assist.

    float(double(x) * double(y))          float(double(x) / double(y))

A processor that leaves subnormal numbers to microcode takes `Cycles.assist` for a vector with one
among its factors or results. As doubles, of which none is subnormal (`types.on_doubles`), they
take a tenth of that and ten times a product of others: vectors without a subnormal factor, or
number to divide, go the short way.

Only numbers that are likely to underflow are looked at (analysis/underflow.py), and only where one
instruction does it: three of them and branches among 16 registers took programs without subnormal
numbers 1.05 to 1.2 of their time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from hlo.analysis.underflow import underflowing
from hlo.backend.ir.records import Arithmetic
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.expression import Expression
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction


class _Form(Struct, frozen=True):
    """LLVM's opcode; how many of the operands are looked at; the element types that are."""

    opcode: str
    asked: int
    types: tuple[DType, ...]


# A denominator is rarely subnormal; bf16 has a division of its own (uniform_division.py).
_FORMS = {"multiply": _Form("fmul", 2, (dt.F32, dt.BF16)), "divide": _Form("fdiv", 1, (dt.F32,))}
_MANY = 512  # For fewer elements the code is not worth its compilation.
_NOTE = "subnormal"  # What is noted of a vector: an i1, whether some lane of it, or beside it, is.


def computed(
    nest: Nest, expression: Expression, instruction: Instruction, *operands: Sequence[Lanes]
) -> list[Lanes] | None:
    """The products or quotients of vectors; None where nothing is to be gained.

    operands: of each of the two the lanes, as many as there are results.
    """
    around, dtype = expression.underflows_in, instruction.shape.dtype
    form = _FORMS.get(instruction.opcode)
    if around is None or form is None or dtype not in form.types or instruction.shape.size < _MANY:
        return None
    tails = underflowing(around)
    asked = instruction.operands[: form.asked]
    places = [n for n, o in enumerate(asked) if (o, ()) in tails]
    if not places:
        return None
    w = nest.w
    pairs = [_of_one_length(w, *pair) for pair in zip(*operands, strict=True)]
    flag = _some_is_subnormal(nest, dict.fromkeys(pair[n] for pair in pairs for n in places))
    if flag is None:
        return None
    results = _either_way(nest, form.opcode, pairs, flag)
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


def _either_way(
    nest: Nest, opcode: str, pairs: Sequence[tuple[Value, ...]], is_subnormal: Value
) -> list[Value]:
    """The results on floats, or on doubles if there are subnormal ones. Opens basic blocks."""
    w = nest.w
    quick, slow, done = (w.new_label(p) for p in ("quick", "slow", "done"))
    w.branch_if(is_subnormal, slow, quick)
    w.label(quick)
    short = [w.assign(Arithmetic, x.type, opcode, x, y) for x, y in pairs]
    w.branch(done)
    w.label(slow)
    with w.region():
        long = [types.on_doubles(w, opcode, x, y) for x, y in pairs]
    w.branch(done)
    w.label(done)
    results = [
        w.phi(a.type, (a, quick), (b, slow), is_tight=True).value
        for a, b in zip(short, long, strict=True)
    ]
    for result in results:
        w.note(result, _NOTE, is_subnormal)
    return results
