"""Products and quotients of floats that may be subnormal, without the processor's assist.

    float(double(x) * double(y))          float(double(x) / double(y))

A processor that leaves subnormal numbers to microcode takes `Cycles.assist` for a vector with one
among its factors or results. As doubles, of which none is subnormal (`types.on_doubles`), they
take a tenth of that and ten times a product of others: vectors without a subnormal factor, or
number to divide, go the short way.

Only numbers that are likely to underflow are looked at (analysis/tails.py), and only where one
instruction does it: three of them and branches among 16 registers took programs without subnormal
numbers 1.05 to 1.2 of their time.

Functions that are x at tiny numbers, or a number there, are made of zeros in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec import Struct

from hlo.analysis.tails import tails
from hlo.analysis.underflow import high_powers
from hlo.backend.emitters.applied import apply
from hlo.backend.ir.records import Arithmetic
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.expression import Expression
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.effects import with_callees
from hlo.ops.table import Trait, op, opcodes


class _Form(Struct, frozen=True):
    """LLVM's opcode; how many of the operands are looked at; the element types that are."""

    opcode: str
    asked: int
    types: tuple[DType, ...]


# A denominator is rarely subnormal; bf16 has a division of its own (uniform_division.py).
_FORMS = {"multiply": _Form("fmul", 2, (dt.F32, dt.BF16)), "divide": _Form("fdiv", 1, (dt.F32,))}
_FUNCTIONS = opcodes(Trait.KEEPS_TINY | Trait.LEVEL_AT_ZERO)
# For fewer elements, once in a run, the code is not worth its compilation: milliseconds, beside at
# most 44 ns a vector.
_MANY = 1 << 13
_LEAST_LANES = 4  # Of the longest vector that is looked at.
_TINY = 0x3F800000 + 0x01000000  # The sum of the codes of 1 and 2^-125.
_NOTE = "subnormal"  # What is noted of a vector: an i1, whether some lane of it, or beside it, is.


def looks(instruction: Instruction, around: Computation) -> bool:
    """Whether the kernel of an instruction has such products, quotients or functions."""
    return any(
        _asked(member, around) or _is_high_power(member) or _is_function(member, around)
        for member in with_callees(instruction)
    )


def _is_function(instruction: Instruction, around: Computation) -> bool:
    """Whether it is a function of numbers that are likely to underflow, known at tiny ones."""
    if instruction.opcode not in _FUNCTIONS:
        return False
    return instruction.shape.dtype is dt.F32 and (instruction.operands[0], ()) in tails(around)


def _of_zeros(nest: Nest, instruction: Instruction, lanes: Sequence[Lanes]) -> list[Lanes] | None:
    """A function of zeros where numbers are subnormal, and there these numbers, or what it is; by
    branches, so that chains of functions do not wait for it. Opens basic blocks.
    """
    w = nest.w
    keeps = bool(op(instruction.opcode).traits & Trait.KEEPS_TINY)
    results: list[Lanes] = []
    for x in lanes:
        assert isinstance(x, Value), "f32 lanes"
        mask = nest.target.isa.subnormal_lanes(w, x)
        if mask is None:
            return None
        flag = w.any_lane(mask)
        zeros = _if_rare(w, flag, x, partial(w.select, mask, w.zero(x.type), x))
        made = apply(nest, instruction, [zeros], [dt.F32])
        assert isinstance(made, Value), "f32 lanes, too"
        if keeps:
            made = _if_rare(w, flag, made, partial(w.select, mask, x, made))
        results.append(made)
    return results


def _if_rare(w: Writer, flag: Value, usual: Value, other: Callable[[], Value]) -> Value:
    """The usual value, or what is written for a flag that is hardly ever set."""
    slow, done = w.new_label("slow"), w.new_label("done")
    before = w.new_label("before")
    w.branch(before)
    w.label(before)
    w.branch_if(flag, slow, done, is_rare=True)
    w.label(slow)
    with w.region():
        rare = other()
    w.branch(done)
    w.label(done)
    return w.phi(usual.type, (usual, before), (rare, slow), is_tight=True).value


def _asked(instruction: Instruction, around: Computation) -> list[int]:
    """Of its operands those that are likely to underflow."""
    form = _FORMS.get(instruction.opcode)
    if form is None or instruction.shape.dtype not in form.types:
        return []
    found = tails(around)
    return [n for n, o in enumerate(instruction.operands[: form.asked]) if (o, ()) in found]


def _is_high_power(instruction: Instruction) -> bool:
    around = instruction.computation
    form = _FORMS.get(instruction.opcode)
    if around is None or form is None or instruction.shape.dtype not in form.types:
        return False
    return instruction in high_powers(around)


def computed(
    nest: Nest, expression: Expression, instruction: Instruction, *operands: Sequence[Lanes]
) -> list[Lanes] | None:
    """The products, quotients or functions of vectors; None where nothing is to be gained.

    operands: of each the lanes, as many as there are results.
    """
    around, dtype = expression.underflows_in, instruction.shape.dtype
    if around is None or (expression.runs_once and instruction.shape.size < _MANY):
        return None
    if _is_function(instruction, around):
        return _of_zeros(nest, instruction, operands[0])
    is_power = _is_high_power(instruction)
    places = [0, 1] if is_power else _asked(instruction, around)
    if not places:
        return None
    form = _FORMS[instruction.opcode]
    w = nest.w
    pairs = [types.of_one_width(w, *pair) for pair in zip(*operands, strict=True)]
    if all(types.width(x) < _LEAST_LANES for pair in pairs for x in pair):
        # Points and rotations of a few numbers take 1.3 of the time with looks, and of vectors'
        # edges there are few.
        size = instruction.shape.size
        if size > 1 and (expression.is_careful or size < nest.target.lanes(dtype)):
            return None
    flag = _some_is_subnormal(nest, dict.fromkeys(pair[n] for pair in pairs for n in places))
    if flag is None:
        return None
    # Of two such factors, too, where a loop has met some before (kernels/versions.py).
    is_likely = form.opcode == "fmul" and len(places) == 2 and expression.is_careful
    if is_power or is_likely:
        flag = w.any_lane(flag, *(_is_tiny(w, *pair) for pair in pairs))
    results = _either_way(nest, form.opcode, pairs, flag)
    if not dtype.is_narrow_float:
        return list(results)
    return [types.rounded(w, nest.target, r, dtype, has_short_nans=True) for r in results]


def multiplied(nest: Nest, product: Value, factor: Value) -> Value:
    """A product of many factors by one more, of f32: it passes through the subnormal numbers where
    it underflows. Opens basic blocks.
    """
    pair = types.of_one_width(nest.w, product, factor)
    flag = _some_is_subnormal(nest, pair[:1])
    if flag is None:
        return nest.w.binary("fmul", *pair)
    (result,) = _either_way(nest, "fmul", [pair], flag)
    return result


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


def _is_tiny(w: Writer, x: Value, y: Value) -> Value:
    """Of each lane, whether the product is below 2^-125 or little above, and no factor is zero: by
    the sum of the codes, which are logarithms but for a twelfth.
    """
    words = vector_of("i32", x.lanes)
    halves = []
    for factor in (x, y):
        twice = w.binary("shl", w.cast("bitcast", factor, words), w.int(1, words))
        halves.append(w.binary("lshr", w.binary("sub", twice, w.int(2, words)), w.int(2, words)))
    return w.compare("icmp ult", w.binary("add", *halves), w.int(_TINY >> 1, words))


def _either_way(
    nest: Nest, opcode: str, pairs: Sequence[tuple[Value, ...]], is_subnormal: Value
) -> list[Value]:
    """The results on floats, or on doubles if there are subnormal ones. Opens basic blocks."""
    w = nest.w
    quick, slow, done = (w.new_label(p) for p in ("quick", "slow", "done"))
    w.branch_if(is_subnormal, slow, quick, is_rare=True)
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
