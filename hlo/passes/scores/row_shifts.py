"""Row shifts: moves that take each row of an array from another place on.

    reshape(slice(reshape(pad(x)))) --shift_of--> RowShift: result[.., i, j] = x[.., i, a*t + c]

Relative attention multiplies queries by a key for each distance and shifts the rows of products so
that distances become columns (Transformer-XL's rel_shift, conformers, music transformers); its
gradients shift them back. Each move alone mixes rows. Composed, the index in one dimension is
linear in t = j - i or t = j + i, once t is known to lie between places where rows begin: so its
range is cut there, and each piece looked at by itself. A piece is the shift, or the number that
pads, or zeros that a mask has made; what a mask hides from whoever reads it is no piece at all.
What is said of indices follows from the ranges of i, j and t (indexing/affine.py), in exact
integers; taken as if they were independent, t and i range over more than they do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from hlo.analysis.bands import Band, Truth, bands_of
from hlo.analysis.fusibility import is_elementwise
from hlo.indexing import affine
from hlo.indexing.affine import DivMod, Expr, Index, Variable
from hlo.indexing.maps import Condition, cases
from hlo.ir.instruction import Instruction
from hlo.ops.table import Trait, opcodes
from hlo.passes.patterns.matching import is_splat, splat_literal

MOST_MOVES = 16  # In a chain.
MOST_PIECES = 4  # Of the range of t.
MOST_BETWEEN = 8  # Instructions between a value and the mask that is laid over it.
MOVES = opcodes(Trait.REGROUPS | Trait.PERMUTES | Trait.CUTS | Trait.PADS | Trait.JOINS)


class Bound(Struct, frozen=True):
    """low <= place <= high, where place is linear in the result's index."""

    place: Expr
    low: int
    high: int


class RowShift(Struct, frozen=True, eq=False):
    """result[index] = source[.., place, ..] where all bounds hold, else the number.

    variables: of each of the result's dimensions, its index in the places; None: it has one
    element. dims: of each of the source's dimensions, the result's that it is as a whole; None: it
    is looked up (`along`), or has one element.
    """

    source: Instruction
    variables: tuple[Variable | None, ...]
    dims: tuple[int | None, ...]
    along: int
    place: Expr
    bounds: tuple[Bound, ...] = ()
    number: np.generic | None = None


class _Place(Struct, frozen=True, eq=False):
    """What stands at an index: the source's element where the conditions hold, else the number;
    without a source the number.
    """

    source: Instruction | None
    index: Index
    conditions: tuple[Condition, ...]
    number: np.generic | None


class _Piece(Struct, frozen=True, eq=False):
    """The range of t in which a place is linear. own: t in the result's index."""

    low: int
    high: int
    t: Variable
    own: Expr
    place: _Place

    def bounds_of(self, e: Expr) -> tuple[int, int]:
        """Between which numbers it lies, by t and by the result's index."""
        other = e.substituted({self.t: self.own})
        return max(e.low, other.low), min(e.high, other.high)

    def plain(self, e: Expr) -> Expr:
        """By the result's index."""
        return e.substituted({self.t: self.own})


def shift_of(root: Instruction) -> RowShift | None:
    """The shift that a chain of moves comes to, of which this is the last; None: another map."""
    dims = root.shape.dims
    variables = tuple(Variable(f"x{d}", 0, n - 1) if n > 1 else None for d, n in enumerate(dims))
    own = tuple(affine.ZERO if v is None else affine.of(v) for v in variables)
    whole = _place(root, own)
    if whole is None or whole.source is None:
        return None
    for kept, moved, sign in _skews(whole.index, variables):
        pieces = _pieces(root, own, (kept, moved, sign))
        found = pieces and _shift(root, variables, pieces)
        if found:
            return found
    return None


def _place(root: Instruction, index: Index) -> _Place | None:
    """What stands at an index behind all moves; None where several arrays or numbers may."""
    value, conditions, numbers = root, list[Condition](), dict[bytes, np.generic]()
    for _ in range(MOST_MOVES):
        if value.opcode not in MOVES or "control-predecessors" in value.attributes:
            break
        if value.operands[0].shape.dtype is not value.shape.dtype:
            break  # a bitcast
        arrays = []
        for case in cases(value, index, _no_start):
            known = splat_literal(value.operands[case.operand])
            if known is None:
                arrays.append(case)
            else:
                numbers[known.tobytes()] = known
        if len(arrays) > 1 or len(numbers) > 1:
            return None
        if not arrays:
            return _Place(None, (), (), *numbers.values())
        value, index = value.operands[arrays[0].operand], arrays[0].index
        conditions += arrays[0].conditions
    return _Place(value, index, tuple(conditions), next(iter(numbers.values()), None))


def _no_start(_number: int, _index: Index, _low: int, _high: int) -> Expr:
    raise AssertionError("these moves begin at no number that is known at run time only")


def _skews(index: Index, own: tuple[Variable | None, ...]) -> Iterator[tuple[int, int, int]]:
    """Which two of the result's dimensions the source's index mixes: (kept, moved, sign) of
    t = moved + sign * kept, either way round.
    """
    for e in index:
        for inner, divisor in ((e, 0), *((part.inner, part.divisor) for part in e.parts())):
            met = [d for d, v in enumerate(own) if v is not None and v in inner.terms]
            if len(met) != 2:
                continue
            first, second = met
            steps = [_nearest(k, divisor) for k in inner.terms.values() if k]
            if len(steps) == 2 and [abs(k) for k in steps] == [1, 1]:
                yield first, second, steps[0] * steps[1]
                yield second, first, steps[0] * steps[1]
                return


def _nearest(step: int, divisor: int) -> int:
    """A step less the nearest multiple of the divisor."""
    return step if not divisor else (step + divisor // 2) % divisor - divisor // 2


def _pieces(root: Instruction, own: Index, skew: tuple[int, int, int]) -> list[_Piece] | None:
    """Pieces of the range of t within which no row begins; of what nobody reads, none."""
    kept, moved, sign = skew
    t_own = own[moved] + own[kept] * sign
    low, high = t_own.low, t_own.high
    if sign < 0 and (live := _live_band(root, kept, moved)) is not None:
        low, high = max(low, live.low), min(high, live.high)
    found: list[_Piece] = []
    waiting = [(low, high)]
    while waiting:
        low, high = waiting.pop()
        if low > high:
            continue
        t = Variable("t", low, high)
        index = list(own)
        index[moved] = affine.of(t) - own[kept] * sign
        place = _place(root, tuple(index))
        if place is None:
            return None
        at = next((b for e in place.index for b in _breaks(e, t)), None)
        if at is not None:
            waiting += [(at, high), (low, at - 1)]
        else:
            found.append(_Piece(low, high, t, t_own, place))
        if len(waiting) + len(found) > MOST_PIECES:
            return None
    return found


def _breaks(e: Expr, t: Variable) -> Iterator[int]:
    """Where in the range of t a quotient or a remainder of it alone goes round."""
    for part in e.parts():
        step = part.inner.terms.get(t)
        if step not in (1, -1) or len(part.inner.terms) > 1:
            continue
        first = (step * t.low + part.inner.constant) // part.divisor
        ends = (first + 1) * part.divisor if step > 0 else first * part.divisor - 1
        at = (ends - part.inner.constant) * step
        if t.low < at <= t.high:
            yield at


def _shift(
    root: Instruction, variables: tuple[Variable | None, ...], pieces: list[_Piece]
) -> RowShift | None:
    """The shift, if one piece is one and what is beside it is a number, the same everywhere."""
    shifts = {p: shift for p in pieces if (shift := _as_shift(root, variables, p)) is not None}
    if len(shifts) != 1:
        return None
    ((main, shift),) = shifts.items()
    numbers = [shift.number] if shift.bounds else []
    numbers += [_number(p) for p in pieces if p is not main]
    if any(n is None for n in numbers) or len({n.tobytes() for n in numbers if n is not None}) > 1:
        return None
    bounds = list(shift.bounds)
    if len(pieces) > 1:
        low = main.low if any(p.high < main.low for p in pieces) else main.own.low
        high = main.high if any(p.low > main.high for p in pieces) else main.own.high
        bounds.append(Bound(main.own, low, high))
    return RowShift(
        shift.source, variables, shift.dims, shift.along, shift.place, _merged(bounds),
        numbers[0] if numbers else None,
    )  # fmt: skip


def _merged(bounds: list[Bound]) -> tuple[Bound, ...]:
    """Those of equal places, but for a number, as one."""
    found: dict[Expr, Bound] = {}
    for bound in bounds:
        place, moved = bound.place - bound.place.constant, bound.place.constant
        one = Bound(place, bound.low - moved, bound.high - moved)
        other = found.get(place, one)
        found[place] = Bound(place, max(one.low, other.low), min(one.high, other.high))
    return tuple(found.values())


def _as_shift(
    root: Instruction, variables: tuple[Variable | None, ...], piece: _Piece
) -> RowShift | None:
    """A piece in which every dimension of the source but one is one of the result's."""
    place = piece.place
    if place.source is None:
        return None
    bounds: list[Bound] = []
    for condition in place.conditions:
        bound = _bound(condition, piece)
        if bound is None:
            return None
        low, high = piece.bounds_of(bound.place)
        if bound.low > low or high > bound.high:
            bounds.append(Bound(piece.plain(bound.place), bound.low, bound.high))
    dims: list[int | None] = []
    looked_up: list[int] = []
    sizes = place.source.shape.dims
    for e, (d, size) in zip(map(piece.plain, place.index), enumerate(sizes), strict=True):
        whole = next(
            (n for n, v in enumerate(variables) if v is not None and e == affine.of(v)), None
        )
        if whole is not None and root.shape.dims[whole] == size and whole not in dims:
            dims.append(whole)
            continue
        if size != 1 or not e.is_constant:
            looked_up.append(d)
        dims.append(None)
    if len(looked_up) != 1:
        return None
    (along,) = looked_up
    at = piece.plain(place.index[along])
    linear = [at, *(b.place for b in bounds)]
    if any(
        k not in (1, -1) or not isinstance(a, Variable) for e in linear for a, k in e.terms.items()
    ):
        return None
    return RowShift(place.source, variables, tuple(dims), along, at, tuple(bounds), place.number)


def _bound(condition: Condition, piece: _Piece) -> Bound | None:
    """A condition without quotients: low <= e // n + d <= high is n*low <= e + n*d < n*high + n."""
    e, low, high = condition.index, condition.low, condition.high
    for _ in range(MOST_MOVES):
        parts = [(a, k) for a, k in e.terms.items() if isinstance(a, DivMod)]
        if not parts:
            return Bound(e, low, high)
        ((part, step), *others) = parts
        if others or step != 1 or not part.is_quotient:
            return None
        n = part.divisor
        e, low, high = (e - affine.of(part)) * n + part.inner, low * n, high * n + n - 1
    return None


def _number(piece: _Piece) -> np.generic | None:
    """The number that a piece is everywhere: what pads, or zero outside of a mask's band; None: it
    is none, or not known to be.
    """
    place = piece.place
    if place.source is None:
        return place.number
    for condition in place.conditions:
        bound = _bound(condition, piece)
        if bound is not None:
            low, high = piece.bounds_of(bound.place)
            if high < bound.low or bound.high < low:
                return place.number
    zero: np.generic = np.zeros(1, place.source.shape.dtype.numpy)[0]
    if place.number is not None and place.number.tobytes() != zero.tobytes():
        return None
    truth = _zero_truth(place.source)
    if truth is None:
        return None
    low, high = piece.bounds_of(place.index[truth.second] - place.index[truth.first])
    return zero if high < truth.true.low or truth.true.high < low else None


def _zero_truth(value: Instruction) -> Truth | None:
    """The band outside of which a value is +0, because a mask made it so: products and quotients
    with a positive number keep zeros.
    """
    for _ in range(MOST_BETWEEN):
        if value.opcode == "select":
            where, kept, other = value.operands
            found = bands_of(where) if where.shape.dims == value.shape.dims else None
            if found is None:
                return None
            if is_splat(other, 0):
                return found
            return (
                Truth(found.first, found.second, found.false, found.true)
                if is_splat(kept, 0)
                else None
            )
        factors = [o for o in value.operands if not _is_positive(o)]
        if len(factors) != 1:
            return None
        is_divided = value.opcode == "divide" and factors[0] is value.operands[0]
        is_converted = value.opcode == "convert" and factors[0].shape.dtype.is_float
        if not (is_divided or is_converted or value.opcode == "multiply"):
            return None
        (value,) = factors
    return None


def _is_positive(value: Instruction) -> bool:
    """Whether it is one number everywhere, greater than zero and finite."""
    known = splat_literal(value) if value.shape.dtype.is_float else None
    return known is not None and bool(0 < float(known) < np.inf)


def _live_band(root: Instruction, kept: int, moved: int) -> Band | None:
    """The band of moved - kept outside of which a mask hides the value from its only reader."""
    one = root
    for _ in range(MOST_BETWEEN):
        if one.is_root or len(one.users) != 1:
            return None
        (user,) = one.users
        if user.shape.dims != root.shape.dims or not is_elementwise(user):
            return None
        if user.opcode == "select" and user.operands[0] is not one:
            where, chosen, other = user.operands
            truth = bands_of(where) if where.shape.dims == root.shape.dims else None
            if (
                truth is not None
                and chosen is not other
                and {truth.first, truth.second} == {kept, moved}
            ):
                band = truth.true if chosen is one else truth.false
                return band if truth.first == kept else band.transposed
        one = user
    return None
