"""Column facts: what is known of numbers in columns that a mask leaves out; how ops hand it on.

    Fact of each operand --rule_of(opcode)--> Fact of the result, the Guards under which it holds

Facts are bounds that rounding keeps; what has no rule is not known. Does not know: what is looked
behind, and what is asked at the ends (skipped_columns.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum, auto

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.reducers import reducer_of
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.contraction import DotAttributes

# Values of ordinary size are at most 2^40; so are their divisors, and not below 2^-40.
ORDINARY = 40
# The types whose range is wide enough, and the logarithms of what is surely in it.
LARGEST = {"f32": 126, "bf16": 126, "f64": 1022}
FAR_BELOW = 2048.0  # exp(-2048) and exp(-1024) are zero in all types.
LEAST_EXPONENT = 1024.0
FAR = 2.0**100  # What a mask's number that the run gives is to be below, of all types in LARGEST.


class What(Enum):
    """What a guard asks of all elements of a value."""

    BOUNDED = auto()  # |x| <= 2^number
    DIVISOR = auto()  # 2^-40 <= |x| <= 2^40
    ABOVE = auto()  # x >= number + 2048, x <= 2^40
    NOT_BELOW = auto()  # -512 <= x <= 2^40
    FAR = auto()  # x <= -2^100


class Guard(Struct, frozen=True):
    """What has to hold of a value, which a run finds out."""

    what: What
    value: Instruction
    number: float = 0.0


Guards = frozenset[Guard]
NONE: Guards = frozenset()


class Fact(Struct, frozen=True):
    """What is known of elements. low, high: of integers and truth values; number: a constant;
    size: |x| <= 2^size; below: x <= -below, so no NaN; is_zero; all if the guards hold.
    """

    low: int | None = None
    high: int | None = None
    number: float | None = None
    size: float | None = None
    below: float | None = None
    is_zero: bool = False
    guards: Guards = NONE


ANY = Fact()


def of_literal(array: np.ndarray, dtype: DType) -> Fact:
    """Of a constant."""
    if dtype.is_integral or dtype.is_pred:
        return Fact(low=int(array.min()), high=int(array.max()))
    if not dtype.is_float:
        return ANY
    wide = array.astype(np.float64)
    least, most = float(wide.min()), float(wide.max())
    if least == most or math.isnan(least):
        return _of_number(least)
    largest = max(abs(least), abs(most))
    return Fact(size=math.log2(largest)) if 0 < largest < math.inf else ANY


def _of_number(number: float) -> Fact:
    if math.isnan(number):
        return ANY
    if math.isinf(number):
        return Fact(number=number, below=-number) if number < 0 else ANY
    size = math.log2(abs(number)) if number else -math.inf
    below = -number if number < 0 else None
    return Fact(number=number, size=size, below=below, is_zero=number == 0)


def bounded(value: Instruction, exponent: int) -> Fact:
    """Of a value of which a run finds out that it is at most 2^exponent."""
    guards = frozenset({Guard(What.BOUNDED, value, exponent)})
    return Fact(size=float(exponent), guards=guards)


def _rounded(fact: Fact, dtype: DType) -> Fact:
    """A fact about numbers before they are rounded, of rounded ones. Rounding keeps order, so what
    is not above -below is not above -below rounded, for which a number of the type that is not less
    serves. A known number is rounded as it will be, for 53 bits are more than twice 24 and 2.
    """
    below, kind = fact.below, np.dtype(dtype.numpy)
    with np.errstate(over="ignore"):
        if fact.number is not None:
            found = float(np.array(fact.number).astype(kind))
            if math.isfinite(found) or math.isinf(fact.number):
                return replace(_of_number(found), guards=fact.guards)
            return Fact(below=below and 2.0 ** LARGEST[dtype.name], guards=fact.guards)
        if below is None or math.isinf(below):
            return fact
        below = wanted = min(below, 2.0 ** LARGEST[dtype.name])
        while (found := float(np.array(below).astype(kind))) > wanted:
            below -= max(below * 2.0**-6, 1.0)
    return replace(fact, below=found if found > 0 else None)


def within_type(fact: Fact, dtype: DType) -> Fact:
    """Where sizes or integers may leave the type, nothing is known."""
    if dtype.is_float and (fact.number is not None or fact.below is not None):
        fact = _rounded(fact, dtype)
    if fact.low is not None and fact.high is not None and dtype.is_integral:
        limits = np.iinfo(dtype.numpy) if dtype.bits >= 8 else None
        return fact if limits and limits.min <= fact.low <= fact.high <= limits.max else ANY
    if fact.size is not None and dtype.is_float and not fact.is_zero:
        most = LARGEST.get(dtype.name, 0)
        if fact.size > most:
            fits = fact.number is not None and fact.size < most + 2
            return replace(fact, size=None, number=fact.number if fits else None)
    return fact


def of_product(dot: Instruction, facts: list[Fact]) -> Fact:
    """Of a product that has columns: sums of what is bounded are."""
    contracted = DotAttributes.of(dot.attributes).dims.lhs_contracting
    depth = max(1, math.prod(dot.operands[0].shape.dims[d] for d in contracted))
    left, right = (fact.size for fact in facts)
    if left is None or right is None:
        return ANY
    guards = facts[0].guards | facts[1].guards
    return within_type(Fact(size=left + right + math.log2(depth), guards=guards), dot.shape.dtype)


def _guards(facts: list[Fact]) -> Guards:
    return frozenset().union(*(fact.guards for fact in facts))


def _times(_: Instruction, facts: list[Fact]) -> Fact:
    a, b = facts
    guards = _guards(facts)
    if (first := _interval(a)) and (second := _interval(b)):
        ends = [x * y for x in first for y in second]
        return Fact(low=min(ends), high=max(ends))
    if a.number is not None and b.number is not None:
        return replace(_of_number(a.number * b.number), guards=guards)
    for x, y in ((a, b), (b, a)):
        if x.is_zero and (y.size is not None or y.is_zero):
            return Fact(size=-math.inf, is_zero=True, guards=guards)
        if x.below is not None and y.number is not None and y.number > 0:
            return Fact(below=x.below * y.number, guards=guards)
    if a.size is not None and b.size is not None:
        return Fact(size=a.size + b.size, guards=guards)
    return ANY


def _plus(one: Instruction, facts: list[Fact]) -> Fact:
    a, b = facts
    guards, sign = _guards(facts), -1 if one.opcode == "subtract" else 1
    if (first := _interval(a)) and (second := _interval(b)):
        low, high = sorted(sign * x for x in second)
        return Fact(low=first[0] + low, high=first[1] + high)
    row = _row_value(one.operands[1])
    if sign < 0 and a.below is not None and row is not None:
        if _is_maximum(row):
            above = Guard(What.ABOVE, row, -a.below)
            return Fact(below=FAR_BELOW, guards=a.guards | {above})
        return Fact(below=a.below - 512, guards=a.guards | {Guard(What.NOT_BELOW, row)})
    other = b if sign > 0 else _negate(one, [b])
    return replace(_sum(a, other), guards=guards)


def _sum(a: Fact, b: Fact) -> Fact:
    """A sum's fact, but for its guards. What is below stays so where the other is of no such size,
    with twice that size for what was rounded before: at most 128 times, by 2^-8 of it.
    """
    if a.is_zero and b.is_zero:
        return Fact(size=-math.inf, is_zero=True)
    for x, y in ((a, b), (b, a)):
        if x.is_zero and y.number is not None:
            return _of_number(y.number)
    size = None if a.size is None or b.size is None else max(a.size, b.size) + 1
    for x, y in ((a, b), (b, a)):
        if x.below is not None and y.below is not None:
            return Fact(size=size, below=x.below + y.below)
        if x.below is not None and y.size is not None and x.below > 2.0 ** (y.size + 1):
            return Fact(size=size, below=x.below - 2.0 ** (y.size + 1))
    return Fact(size=size)


def _is_maximum(row: Instruction) -> bool:
    """Whether a value of rows is their maximum, or that of it and of something else."""
    found = row.operands if row.opcode == "maximum" else (row,)
    return any(o.opcode == "reduce" and reducer_of(o).opcodes == ("maximum",) for o in found)


def _row_value(value: Instruction) -> Instruction | None:
    """What is spread over columns."""
    while value.opcode in ("reshape", "copy"):
        (value,) = value.operands
    if value.opcode != "broadcast":
        return None
    (value,) = value.operands
    while value.opcode in ("reshape", "copy"):
        (value,) = value.operands
    return value


def _over(one: Instruction, facts: list[Fact]) -> Fact:
    a, b = facts
    if b.number and math.isfinite(b.number):
        size = None if a.size is None else a.size - math.log2(abs(b.number))
        below = a.below / b.number if a.below is not None and b.number > 0 else None
        return Fact(size=size, below=below, is_zero=a.is_zero, guards=_guards(facts))
    row = _row_value(one.operands[1])
    if row is None or a.size is None:
        return ANY
    guards = a.guards | {Guard(What.DIVISOR, row)}
    return Fact(size=a.size + ORDINARY, is_zero=a.is_zero, guards=guards)


def _exp(_: Instruction, facts: list[Fact]) -> Fact:
    (a,) = facts
    if a.below is not None and a.below >= LEAST_EXPONENT:
        return Fact(size=-math.inf, is_zero=True, guards=a.guards)
    return ANY


def _select(_: Instruction, facts: list[Fact]) -> Fact:
    chosen, a, b = facts
    if chosen.low == 1 or chosen.high == 0:
        return a if chosen.low == 1 else b
    guards = _guards([a, b])
    if a.is_zero and b.is_zero:
        return Fact(size=-math.inf, is_zero=True, guards=guards)
    return replace(_either(a, b), guards=guards)


def _either(a: Fact, b: Fact) -> Fact:
    """Of numbers each of which is one or the other."""
    size = None if a.size is None or b.size is None else max(a.size, b.size)
    below = None if a.below is None or b.below is None else min(a.below, b.below)
    return Fact(size=size, below=below)


def _larger(_: Instruction, facts: list[Fact]) -> Fact:
    return replace(_either(*facts), guards=_guards(facts))


def _compare(one: Instruction, facts: list[Fact]) -> Fact:
    a, b = (_interval(fact) for fact in facts)
    unknown = Fact(low=0, high=1)
    if a is None or b is None:
        return unknown
    direction = getattr(one["direction"], "value", one["direction"])
    if direction in ("LT", "LE"):
        a, b, direction = b, a, {"LT": "GT", "LE": "GE"}[direction]
    if direction in ("GT", "GE"):
        strict = int(direction == "GT")
        if a[0] >= b[1] + strict:
            return Fact(low=1, high=1)
        return Fact(low=0, high=0) if a[1] < b[0] + strict else unknown
    if a[1] < b[0] or b[1] < a[0]:
        differ = int(direction == "NE")
        return Fact(low=differ, high=differ)
    return unknown


def _interval(fact: Fact) -> tuple[int, int] | None:
    return None if fact.low is None or fact.high is None else (fact.low, fact.high)


def _and(one: Instruction, facts: list[Fact]) -> Fact:
    if not one.shape.dtype.is_pred or any(f.low is None or f.high is None for f in facts):
        return Fact(low=0, high=1) if one.shape.dtype.is_pred else ANY
    pick: Callable[..., int] = min if one.opcode == "and" else max
    return Fact(low=pick(f.low for f in facts), high=pick(f.high for f in facts))


def _not(one: Instruction, facts: list[Fact]) -> Fact:
    (a,) = facts
    if not one.shape.dtype.is_pred or a.low is None or a.high is None:
        return ANY
    return Fact(low=1 - a.high, high=1 - a.low)


def _negate(_: Instruction, facts: list[Fact]) -> Fact:
    (a,) = facts
    if a.low is not None and a.high is not None:
        return Fact(low=-a.high, high=-a.low)
    if a.number is not None:
        return replace(_of_number(-a.number), guards=a.guards)
    return Fact(size=a.size, is_zero=a.is_zero, guards=a.guards) if a.size is not None else ANY


def _abs(_: Instruction, facts: list[Fact]) -> Fact:
    (a,) = facts
    if (interval := _interval(a)) is not None:
        ends = [abs(x) for x in interval]
        return Fact(low=0 if interval[0] < 0 < interval[1] else min(ends), high=max(ends))
    return Fact(size=a.size, is_zero=a.is_zero, guards=a.guards) if a.size is not None else ANY


def _tanh(_: Instruction, facts: list[Fact]) -> Fact:
    (a,) = facts
    return Fact(size=0.0, guards=a.guards) if a.size is not None else ANY


def _convert(one: Instruction, facts: list[Fact]) -> Fact:
    (a,), source = facts, one.operands[0].shape.dtype
    if source.is_float and one.shape.dtype.is_float:
        return a
    if a.low is not None and (source.is_pred or source.is_integral):
        if one.shape.dtype.is_integral:
            return a
        if one.shape.dtype.is_float and a.low == a.high and abs(a.low) <= 2**53:
            return _of_number(float(a.low))
        if one.shape.dtype.is_float and a.high is not None:
            size = math.log2(max(1, abs(a.low), abs(a.high)))
            return Fact(size=size)
    return ANY


_RULES: dict[str, Callable[[Instruction, list[Fact]], Fact]] = {
    "multiply": _times, "add": _plus, "subtract": _plus, "divide": _over, "exponential": _exp,
    "select": _select, "compare": _compare, "and": _and, "or": _and, "not": _not,
    "negate": _negate, "abs": _abs, "tanh": _tanh, "convert": _convert, "maximum": _larger,
}  # fmt: skip


def rule_of(opcode: str) -> Callable[[Instruction, list[Fact]], Fact] | None:
    """How an op hands facts on."""
    return _RULES.get(opcode)
