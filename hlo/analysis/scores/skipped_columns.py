"""Skipped columns: what scores that a mask leaves out come to, so that nobody computes them.

    Region, rows, columns --ScoreFacts.skipped--> Guards under which they give exact zeros, or None

Each member is given a fact about its elements there: a known number; not above -b; zero; at most
2^b in size; nothing. exp of what is far below the row's maximum is exactly zero, so are weights,
and zero times what is finite is zero, which changes no sum. What cannot be known before a run is
left to guards: values that are to be of ordinary size (so that no infinity or NaN meets a zero),
divisors that are not tiny, row maxima that are far above what is masked (where nothing in a row is
visible, they are not). Predicates follow from iotas by intervals.

A mask that is added leaves a score of at most 2^b with the number n at or below n + 2^b, whatever
it is: with -inf at -inf, for a finite number is none of +inf and NaN. How large factors of scores
may be for that the caller says (`Assumed.factors`); that they are no larger a guard asks of them,
which looks at rows * depth numbers, not at the scores.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from hlo.analysis.fusibility import is_elementwise, moves_elements
from hlo.analysis.reducers import reducer_of
from hlo.analysis.scores.column_facts import (
    ANY,
    FAR,
    FAR_BELOW,
    LARGEST,
    NONE,
    ORDINARY,
    Fact,
    Guard,
    Guards,
    What,
    bounded,
    of_literal,
    of_product,
    rule_of,
    within_type,
)
from hlo.analysis.scores.masks import Mask
from hlo.analysis.scores.region import (
    Region,
    Roles,
    factor_roles,
    operand_roles,
)
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.movement import IotaAttributes


class Assumed(Struct, frozen=True):
    """What the caller takes for granted, and has a run look at. far: scalars, the numbers of masks
    that are arguments (-inf, or a type's least number). factors: those of scores, what is added to
    them, and scalars, are at most 2^factors.
    """

    far: frozenset[Instruction] = frozenset()
    factors: int = ORDINARY


NOTHING_MORE = Assumed()

# A value, and which of its dimensions are rows and columns.
_At: TypeAlias = "tuple[Instruction, Roles]"


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


class ScoreFacts:
    """What is known of parts of a region's scores. What lies behind a member is the same for all
    parts, and found once.
    """

    def __init__(self, region: Region, assumed: Assumed = NOTHING_MORE) -> None:
        self.region, self.assumed = region, assumed
        self._behind: dict[_At, tuple[_At, ...] | None] = {}

    def skipped(self, span: Span) -> Guards | None:
        """The guards under which a part of the scores adds nothing to anything; None: it may."""
        return _SpanFacts(self, span).asked()

    def is_masked(self, mask: Mask, span: Span) -> bool:
        """Whether a part of masked scores, or of a mask that is added, is one number, or what exp
        makes zero. The zeros of what is added hide nothing.
        """
        found = _SpanFacts(self, span).fact(mask.shown, self.region.members[mask.shown])
        if found.number is not None and mask.shown is mask.masked:
            return True
        return max(found.below or 0.0, found.number or 0.0) >= 2 * FAR_BELOW

    def behind(self, one: Instruction, roles: Roles) -> tuple[_At, ...] | None:
        """The operands that tell of a value: of members with columns, and of integers; None: it is
        not looked behind."""
        at = one, roles
        if at not in self._behind:
            self._behind[at] = self._operands(one, roles)
        return self._behind[at]

    def _operands(self, one: Instruction, roles: Roles) -> tuple[_At, ...] | None:
        members = self.region.members
        is_inside = one in members and members[one].has_both
        if not is_inside and one.shape.dtype.is_float:
            return None
        if not one.operands or one.opcode in ("reduce", "get-tuple-element"):
            return None
        found: list[_At] = []
        for number, operand in enumerate(one.operands):
            there = (
                factor_roles(one, number, members)
                if one.opcode == "dot" and one in members
                else operand_roles(one, number, roles)
            )
            if there is None or not operand.shape.is_array:
                return None
            found.append((operand, there))
        return tuple(found)


class _SpanFacts:
    """The same of one part."""

    def __init__(self, scores: ScoreFacts, span: Span) -> None:
        self._scores, self._span = scores, span
        self._region, self._assumed = scores.region, scores.assumed
        self._known: dict[_At, Fact] = {}

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
            operands = self._scores.behind(one, at)
            waiting = [pair for pair in operands or () if pair not in self._known]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            self._known[one, at] = self._made(one, at, operands)
        return self._known[value, roles]

    def _made(self, one: Instruction, roles: Roles, operands: tuple[_At, ...] | None) -> Fact:
        dtype = one.shape.dtype
        if dtype.is_float and dtype.name not in LARGEST:
            return ANY
        if operands is None:
            return self._given(one, roles)
        facts = [self._known[pair] for pair in operands]
        if moves_elements(one):
            return facts[0]
        if one.opcode == "dot":
            pairs = zip(one.operands, facts, strict=True)
            return of_product(one, [self._as_factor(o, fact) for o, fact in pairs])
        rule = rule_of(one.opcode)
        found = rule(one, facts) if rule and is_elementwise(one) else ANY
        return within_type(found, one.shape.dtype)

    def _given(self, one: Instruction, roles: Roles) -> Fact:
        """Of what is not looked behind."""
        dtype = one.shape.dtype
        if one.opcode == "iota":
            return self._counted(one, roles)
        literal = one["literal"] if one.opcode == "constant" else None
        if isinstance(literal, Literal) and not literal.is_elided and literal.array.size:
            return of_literal(literal.array[parts(literal.array.ndim, roles, self._span)], dtype)
        if one.shape.is_array and dtype.is_float:
            if one in self._assumed.far:
                return Fact(below=FAR, guards=frozenset({Guard(What.FAR, one)}))
            is_added = roles.has_both or not one.shape.dims  # to scores, or they are scaled by it
            return bounded(one, self._assumed.factors if is_added else ORDINARY)
        return Fact(low=0, high=1) if dtype.is_pred else ANY

    def _as_factor(self, operand: Instruction, fact: Fact) -> Fact:
        """Of a score's factor: as small as is assumed, where else its size is a guard's."""
        is_given = fact.guards == {Guard(What.BOUNDED, operand, ORDINARY)}
        return bounded(operand, self._assumed.factors) if is_given else fact

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
            if opcodes == ("maximum",) and fact.below is not None:
                return fact.guards | {Guard(What.ABOVE, end, -fact.below)}
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
