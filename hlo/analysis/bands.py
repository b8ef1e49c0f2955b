"""Bands: between which diagonals of two dimensions a predicate of counted indices can hold.

    compare(iota over d + a, iota over e + b), and, or, not --bands_of--> Truth: the least and the
    most of (index in e) - (index in d) at which it holds, and at which it does not

Masks of triangles, windows and diagonals are such predicates. What a mask leaves out of a product's
result nobody need compute; what it makes zero in a factor nobody need multiply. Integers are
followed only as far as none leaves its type, so that none wraps.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.analysis.fusibility import moves_elements
from hlo.indexing.queries import kept_dims
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.graph import computed_from
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.movement import IotaAttributes

FAR = 1 << 40  # Further than any two indices are apart.
MOST_BEHIND = 100  # Instructions behind a predicate.
MOST_LOOKED_AT = 1 << 22  # Elements of a constant mask.


class Band(Struct, frozen=True):
    """The elements of which low <= second index - first index <= high."""

    low: int = -FAR
    high: int = FAR

    @property
    def is_all(self) -> bool:
        return self.low <= -FAR and self.high >= FAR

    @property
    def is_none(self) -> bool:
        return self.low > self.high

    @property
    def transposed(self) -> Band:
        """With the two indices exchanged."""
        return Band(-self.high, -self.low)

    def meet(self, other: Band) -> Band:
        """What is in both."""
        return Band(max(self.low, other.low), min(self.high, other.high))

    def hull(self, other: Band) -> Band:
        """The least band that holds both."""
        if self.is_none or other.is_none:
            return other if self.is_none else self
        return Band(min(self.low, other.low), max(self.high, other.high))


ALL, NOWHERE = Band(), Band(1, 0)


class Truth(Struct, frozen=True):
    """Of a predicate's two dimensions, first < second: where it holds, and where it does not."""

    first: int
    second: int
    true: Band
    false: Band


class Linear(Struct, frozen=True):
    """An integer: the sum of steps[d] * (index in dimension d), and `start`; or that without its
    sign (is_size). It never wraps.
    """

    steps: tuple[int, ...]
    start: int
    is_size: bool = False


Known = dict[Instruction, Linear | Truth]


def bands_of(predicate: Instruction) -> Truth | None:
    """Where a predicate holds; None where it is no matter of two indices' distance. What is behind
    it is looked at as far as it is little, and integers or truth values.
    """
    known: Known = {}
    for one in _behind(predicate):
        found = _found(one, known)
        if found is not None:
            known[one] = found
    truth = known.get(predicate)
    return truth if isinstance(truth, Truth) else None


def _behind(predicate: Instruction) -> list[Instruction]:
    """What a predicate is made from, operands first; nothing where that is much."""
    found: dict[Instruction, None] = {}
    stack = [predicate]
    while stack:
        top = stack[-1]
        waiting = [o for o in top.operands if o not in found and _may_count(o)]
        if waiting:
            stack += waiting
        else:
            found[stack.pop()] = None
        if len(stack) > MOST_BEHIND or len(found) > MOST_BEHIND:
            return []
    return list(found)


def _may_count(value: Instruction) -> bool:
    dtype = value.shape.dtype if value.shape.is_array else None
    return dtype is not None and (dtype.is_integral or dtype.is_pred)


def _found(one: Instruction, known: Known) -> Linear | Truth | None:
    if not one.shape.is_array or one.shape.is_dynamic:
        return None
    match [known.get(o) for o in one.operands]:
        case []:
            leaf = _LEAVES.get(one.opcode)
            return leaf(one) if leaf else None
        case [Linear() as a, Linear() as b]:
            return _of_integers(one, a, b)
        case [a, b] if one.shape.dtype.is_pred:
            return _of_truths(one.opcode, a, b)
        case [inner] if inner is not None:
            return _of_one(one, inner)
    return None


def _of_integers(one: Instruction, a: Linear, b: Linear) -> Linear | Truth | None:
    if a.is_size or b.is_size:
        return _size_compared(a, b, str(one["direction"])) if one.opcode == "compare" else None
    match one.opcode:
        case "compare":
            return _compared(_sum(a, b, -1), str(one["direction"]))
        case "add":
            return _in_range(_sum(a, b, 1), one)
        case "subtract":
            return _in_range(_sum(a, b, -1), one)
    return None


def _of_truths(opcode: str, a: Linear | Truth | None, b: Linear | Truth | None) -> Truth | None:
    if isinstance(a, Truth) and isinstance(b, Truth) and _is_alike(a, b):
        if opcode == "and":
            return Truth(a.first, a.second, a.true.meet(b.true), a.false.hull(b.false))
        if opcode == "or":
            return Truth(a.first, a.second, a.true.hull(b.true), a.false.meet(b.false))
    return _narrowed(a, b) if opcode == "and" else None


def _of_one(one: Instruction, inner: Linear | Truth) -> Linear | Truth | None:
    if moves_elements(one):
        return _moved(one, inner)
    if isinstance(inner, Truth):
        is_not = one.opcode == "not"
        return Truth(inner.first, inner.second, inner.false, inner.true) if is_not else None
    if inner.is_size:
        return None
    negative = _in_range(_sum(Linear((0,) * len(inner.steps), 0), inner, -1), one)
    if one.opcode == "abs" and negative is not None:
        return Linear(inner.steps, inner.start, is_size=True)
    if one.opcode == "negate":
        return negative
    return _in_range(inner, one) if one.opcode == "convert" else None


def _narrowed(*sides: Linear | Truth | None) -> Truth | None:
    """a and b, where the distance of indices says something of one of them alone, or of others."""
    found = next((side for side in sides if isinstance(side, Truth)), None)
    return found and Truth(found.first, found.second, found.true, ALL)


def _is_alike(a: Truth, b: Truth) -> bool:
    return (a.first, a.second) == (b.first, b.second)


def _counted(iota: Instruction) -> Linear | None:
    along = IotaAttributes.of(iota.attributes).iota_dimension
    return _in_range(Linear(tuple(int(d == along) for d in range(iota.shape.rank)), 0), iota)


def _known(constant: Instruction) -> Linear | Truth | None:
    """A constant of one integer, or of a matrix of truth values."""
    literal = constant.attributes.get("literal")
    if not isinstance(literal, Literal) or literal.is_elided or literal.shape.is_tuple:
        return None
    shape = constant.shape
    if shape.dtype.is_pred and shape.rank == 2 and 0 < shape.size <= MOST_LOOKED_AT:
        holds = np.asarray(literal.array, bool)
        return Truth(0, 1, _seen(holds), _seen(~holds))
    if not shape.dtype.is_integral or shape.size != 1:
        return None
    return Linear((0,) * shape.rank, int(np.asarray(literal.array).reshape(-1)[0]))


def _seen(holds: np.ndarray) -> Band:
    """Where a matrix holds."""
    rows, columns = np.nonzero(holds)
    apart = columns - rows
    return Band(int(apart.min()), int(apart.max())) if apart.size else NOWHERE


_LEAVES = {"iota": _counted, "constant": _known}


def _sum(a: Linear, b: Linear, sign: int) -> Linear:
    steps = tuple(p + sign * q for p, q in zip(a.steps, b.steps, strict=True))
    return Linear(steps, a.start + sign * b.start)


def _in_range(found: Linear, one: Instruction) -> Linear | None:
    """What was found of an instruction, if all its elements are in its type."""
    if not one.shape.dtype.is_integral or one.shape.dtype.bits < 8:
        return None
    ends = [step * (n - 1) for step, n in zip(found.steps, one.shape.dims, strict=True)]
    low, high = (found.start + sum(pick(0, end) for end in ends) for pick in (min, max))
    least, most = _limits(one.shape.dtype)
    return found if least <= low and high <= most else None


def _limits(dtype: DType) -> tuple[int, int]:
    limits = np.iinfo(dtype.numpy)
    return max(int(limits.min), -FAR // 2), min(int(limits.max), FAR // 2)


def _moved(one: Instruction, inner: Linear | Truth) -> Linear | Truth | None:
    """Of elements that stand elsewhere: by the result's dimensions."""
    places = kept_dims(one, 0)
    if isinstance(inner, Linear):
        steps = [0] * one.shape.rank
        for place, step in zip(places, inner.steps, strict=True):
            if step and place is None:
                return None
            if place is not None:
                steps[place] = step
        return Linear(tuple(steps), inner.start, inner.is_size)
    first, second = places[inner.first], places[inner.second]
    if first is None or second is None:
        return None
    return _ordered(first, second, inner.true, inner.false)


def _ordered(first: int, second: int, true: Band, false: Band) -> Truth:
    if first < second:
        return Truth(first, second, true, false)
    return Truth(second, first, true.transposed, false.transposed)


def _compared(difference: Linear, direction: str) -> Truth | None:
    """difference <direction> 0"""
    moving = [d for d, step in enumerate(difference.steps) if step]
    if len(moving) != 2 or sorted(difference.steps[d] for d in moving) != [-1, 1]:
        return None
    first, second = sorted(moving, key=lambda d: difference.steps[d])
    at = -difference.start  # second - first = at  where the difference is 0
    below, above, least, most = Band(high=at - 1), Band(low=at + 1), Band(low=at), Band(high=at)
    equal = Band(at, at)
    sides = {
        "GE": (least, below), "GT": (above, most), "LE": (most, above), "LT": (below, least),
        "EQ": (equal, ALL), "NE": (ALL, equal),
    }  # fmt: skip
    return _ordered(first, second, *sides[direction])


def _size_compared(a: Linear, b: Linear, direction: str) -> Truth | None:
    """abs(a) <direction> b, or the other way round, where what is compared with is a number."""
    if not a.is_size:
        turned = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}.get(direction, direction)
        return _size_compared(b, a, turned)
    if b.is_size or any(b.steps) or direction in ("EQ", "NE"):
        return None
    signed, strict = Linear(a.steps, a.start), direction in ("LT", "GE")
    within = b.start - strict  # abs(a) <= within, or not
    low = _compared(_sum(signed, Linear(b.steps, -within), -1), "GE")
    high = _compared(_sum(signed, Linear(b.steps, within), -1), "LE")
    if low is None or high is None:
        return None
    inside = low.true.meet(high.true)
    sides = (inside, ALL) if direction in ("LT", "LE") else (ALL, inside)
    return Truth(low.first, low.second, *sides)


def live_band(value: Instruction, computation: Computation) -> tuple[int, int, Band]:
    """Of a value's elements those that the root is made of: two dimensions, and the band of them.

    What a select by such a predicate leaves out is not looked at, whatever it is. All of the value
    where anything but elementwise ops leads from it to the root.
    """
    everything = (0, 0, ALL)
    members = list(computed_from(computation.root))
    on_it = {value}
    for member in members:
        if any(o in on_it for o in member.operands):
            if member.shape.dims != value.shape.dims:
                return everything
            on_it.add(member)
    truths = {
        m: bands_of(m.operands[0])
        for m in on_it
        if m is not value and m.opcode == "select" and m.operands[0].shape.dims == m.shape.dims
    }
    pairs = {(t.first, t.second) for t in truths.values() if t is not None}
    if len(pairs) != 1 or computation.root not in on_it:
        return everything
    live = dict.fromkeys(on_it, NOWHERE) | {computation.root: ALL}
    for member in reversed(members):
        if member not in on_it or member is value:
            continue
        truth, own = truths.get(member), live[member]
        for number, operand in enumerate(member.operands):
            if operand in on_it:
                part = (None, truth.true, truth.false)[number] if truth else None
                seen = own.meet(part) if part else own
                live[operand] = live[operand].hull(seen)
    (pair,) = pairs
    return (*pair, live[value])
