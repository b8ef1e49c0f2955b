"""Skipped columns: what scores of columns that a mask leaves out come to, so that nobody need
compute them.

    Region, rows, columns --skipped--> Guards under which these columns give exact zeros, or None

Each member is given a fact about its elements there: a known number; not above -b; zero; at most
2^b in size; nothing. exp of what is far below the row's maximum is exactly zero, so are weights,
and zero times what is finite is zero, which changes no sum. What cannot be known before a run is
left to guards: values that are to be of ordinary size (so that no infinity or NaN meets a zero),
divisors that are not tiny, row maxima that are far above the mask's number (where nothing in a row
is visible, they are not). Predicates follow from iotas by intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum, auto

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.fusibility import is_elementwise
from hlo.analysis.reducers import reducer_of
from hlo.analysis.score_region import (
    Region,
    Roles,
    factor_roles,
    moves_elements,
    operand_roles,
)
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.contraction import DotAttributes
from hlo.ops.movement import IotaAttributes

ORDINARY = (
    40  # Values of ordinary size are at most 2^30; so are their divisors, and not below 2^-30.
)
# The types whose range is wide enough, and the logarithms of what is surely in it.
LARGEST = {"f32": 126, "bf16": 126, "f64": 1022}
FAR_BELOW = 2048.0  # exp(-2048) and exp(-1024) are zero in all types.
LEAST_EXPONENT = 1024.0


class What(Enum):
    """What a guard asks of all elements of a value."""

    BOUNDED = auto()  # |x| <= 2^30
    DIVISOR = auto()  # 2^-30 <= |x| <= 2^30
    ABOVE = auto()  # x >= number + 2048, x <= 2^30
    NOT_BELOW = auto()  # -512 <= x <= 2^30


class Guard(Struct, frozen=True):
    """What has to hold of a value, which a run finds out."""

    what: What
    value: Instruction
    number: float = 0.0


Guards = frozenset[Guard]
NONE: Guards = frozenset()


class Fact(Struct, frozen=True):
    """What is known of elements. low, high: of integers and truth values; number: a constant;
    size: |x| <= 2^size; below: x <= -below; is_zero; all if the guards hold.
    """

    low: int | None = None
    high: int | None = None
    number: float | None = None
    size: float | None = None
    below: float | None = None
    is_zero: bool = False
    guards: Guards = NONE


ANY = Fact()


class Span(Struct, frozen=True):
    """Rows [first, last) and columns [start, end) of the scores."""

    first: int
    last: int
    start: int
    end: int


def parts(rank: int, roles: Roles, span: Span) -> tuple[slice, ...]:
    """Where a span's part of a value lies."""
    where = [slice(None)] * rank
    if roles.row is not None:
        where[roles.row] = slice(span.first, span.last)
    if roles.column is not None:
        where[roles.column] = slice(span.start, span.end)
    return tuple(where)


def skipped(region: Region, span: Span) -> Guards | None:
    """The guards under which a part of the scores adds nothing to anything; None: it may."""
    return _Skipping(region, span).asked()


def is_masked(select: Instruction, region: Region, span: Span) -> bool:
    """Whether a select takes its last operand throughout a part of the scores."""
    found = _Skipping(region, span).fact(select.operands[0], region.members[select])
    return found.high == 0


class _Skipping:
    def __init__(self, region: Region, span: Span) -> None:
        self._region, self._span = region, span
        self._known: dict[tuple[Instruction, Roles], Fact] = {}

    def asked(self) -> Guards | None:
        """All that ends ask for."""
        found = NONE
        for member, roles in self._region.members.items():
            if roles.has_both:
                continue
            asked = self._asked_at_end(member)
            if asked is None:
                return None
            found |= asked
        return found

    def fact(self, value: Instruction, roles: Roles) -> Fact:
        """Of a value that has columns, or is the same for all of them."""
        stack = [(value, roles)]
        while stack:
            one, at = stack[-1]
            if (one, at) in self._known:
                stack.pop()
                continue
            operands = self._operands(one, at)
            waiting = [pair for pair in operands or () if pair not in self._known]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            self._known[one, at] = self._made(one, at, operands)
        return self._known[value, roles]

    def _operands(self, one: Instruction, roles: Roles) -> list[tuple[Instruction, Roles]] | None:
        """What is looked behind: members with columns, and integers."""
        is_inside = one in self._region.members and self._region.members[one].has_both
        if not is_inside and one.shape.dtype.is_float:
            return None
        if not one.operands or one.opcode in ("reduce", "get-tuple-element"):
            return None
        found: list[tuple[Instruction, Roles]] = []
        for number, operand in enumerate(one.operands):
            there = (
                factor_roles(one, number, self._region.members)
                if one.opcode == "dot" and one in self._region.members
                else operand_roles(one, number, roles)
            )
            if there is None or not operand.shape.is_array:
                return None
            found.append((operand, there))
        return found

    def _made(
        self, one: Instruction, roles: Roles, operands: list[tuple[Instruction, Roles]] | None
    ) -> Fact:
        dtype = one.shape.dtype
        if dtype.is_float and dtype.name not in LARGEST:
            return ANY
        if operands is None:
            return self._given(one, roles)
        facts = [self._known[pair] for pair in operands]
        if moves_elements(one):
            return facts[0]
        if one.opcode == "dot":
            return _product(one, facts)
        rule = _RULES.get(one.opcode)
        found = rule(one, facts) if rule and is_elementwise(one) else ANY
        return _in_range(found, one.shape.dtype)

    def _given(self, one: Instruction, roles: Roles) -> Fact:
        """Of what is not looked behind."""
        dtype = one.shape.dtype
        if one.opcode == "iota":
            return self._counted(one, roles)
        literal = one["literal"] if one.opcode == "constant" else None
        if isinstance(literal, Literal) and not literal.is_elided and literal.array.size:
            return _of_literal(literal.array[parts(literal.array.ndim, roles, self._span)], dtype)
        if one.shape.is_array and dtype.is_float:
            return Fact(size=float(ORDINARY), guards=frozenset({Guard(What.BOUNDED, one)}))
        return Fact(low=0, high=1) if dtype.is_pred else ANY

    def _counted(self, iota: Instruction, roles: Roles) -> Fact:
        along = IotaAttributes.of(iota.attributes).iota_dimension
        if along == roles.row:
            low, high = self._span.first, self._span.last - 1
        elif along == roles.column:
            low, high = self._span.start, self._span.end - 1
        else:
            low, high = 0, max(0, iota.shape.dims[along] - 1)
        return Fact(low=low, high=high) if iota.shape.dtype.is_integral else ANY

    def _asked_at_end(self, end: Instruction) -> Guards | None:
        """What a sum or maximum over these columns, or rows, asks for to be what it is without."""
        members = self._region.members
        read = [o for o in end.operands if o in members and members[o].has_both]
        if not read:
            return NONE  # a value of rows, made of others
        facts = {o: self.fact(o, members[o]) for o in read}
        if end.opcode == "reduce":
            (fact,) = facts.values()
            opcodes = reducer_of(end).opcodes
            if opcodes == ("add",) and fact.is_zero:
                return fact.guards
            if opcodes == ("maximum",) and fact.number is not None and fact.number < 0:
                return fact.guards | {Guard(What.ABOVE, end, fact.number)}
            return None
        if end.opcode != "dot":
            return None
        sides = [self._factor(end, n) for n in range(2)]
        for zero, other in (sides, reversed(sides)):
            if zero.is_zero and (other.is_zero or other.size is not None):
                return zero.guards | other.guards
        return None

    def _factor(self, dot: Instruction, number: int) -> Fact:
        operand, members = dot.operands[number], self._region.members
        known = members.get(operand)
        roles = known if known else factor_roles(dot, number, members)
        return ANY if roles is None else self.fact(operand, roles)


def _of_literal(array: np.ndarray, dtype: DType) -> Fact:
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
        return Fact(number=number) if number < 0 else ANY
    size = math.log2(abs(number)) if number else -math.inf
    return Fact(number=number, size=size, is_zero=number == 0)


def _in_range(fact: Fact, dtype: DType) -> Fact:
    """Where sizes or integers may leave the type, nothing is known."""
    if fact.low is not None and fact.high is not None and dtype.is_integral:
        limits = np.iinfo(dtype.numpy) if dtype.bits >= 8 else None
        return fact if limits and limits.min <= fact.low <= fact.high <= limits.max else ANY
    if fact.size is not None and dtype.is_float and not fact.is_zero:
        most = LARGEST.get(dtype.name, 0)
        if fact.size > most:
            fits = fact.number is not None and fact.size < most + 2
            return replace(fact, size=None, number=fact.number if fits else None)
    return fact


def _product(dot: Instruction, facts: list[Fact]) -> Fact:
    """Of a product that has columns: sums of what is bounded are."""
    contracted = DotAttributes.of(dot.attributes).dims.lhs_contracting
    depth = max(1, math.prod(dot.operands[0].shape.dims[d] for d in contracted))
    left, right = (fact.size for fact in facts)
    if left is None or right is None:
        return ANY
    guards = facts[0].guards | facts[1].guards
    return _in_range(Fact(size=left + right + math.log2(depth), guards=guards), dot.shape.dtype)


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
    is_low = sign < 0 and a.number is not None and a.number < 0
    if is_low and row is not None and _is_maximum(row):
        above = Guard(What.ABOVE, row, a.number or 0.0)
        return Fact(below=FAR_BELOW, guards=a.guards | {above})
    if sign < 0 and a.below is not None and row is not None:
        return Fact(below=a.below - 512, guards=a.guards | {Guard(What.NOT_BELOW, row)})
    if a.is_zero and b.is_zero:
        return Fact(size=-math.inf, is_zero=True, guards=guards)
    if a.size is not None and b.size is not None:
        return Fact(size=max(a.size, b.size) + 1, guards=guards)
    return ANY


def _is_maximum(row: Instruction) -> bool:
    """Whether a value of rows is their maximum, or that of it and of something else."""
    if row.opcode == "maximum":
        return any(o.opcode == "reduce" and _is_maximum(o) for o in row.operands)
    return row.opcode == "reduce" and reducer_of(row).opcodes == ("maximum",)


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
    if b.number:
        size = None if a.size is None else a.size - math.log2(abs(b.number))
        return Fact(size=size, is_zero=a.is_zero, guards=_guards(facts))
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
    if a.size is not None and b.size is not None:
        return Fact(size=max(a.size, b.size), guards=guards)
    return ANY


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
        if one.shape.dtype.is_float and a.high is not None:
            size = math.log2(max(1, abs(a.low), abs(a.high)))
            return Fact(size=size)
    return ANY


_RULES: dict[str, Callable[[Instruction, list[Fact]], Fact]] = {
    "multiply": _times, "add": _plus, "subtract": _plus, "divide": _over, "exponential": _exp,
    "select": _select, "compare": _compare, "and": _and, "or": _and, "not": _not,
    "negate": _negate, "abs": _abs, "tanh": _tanh, "convert": _convert,
}  # fmt: skip
