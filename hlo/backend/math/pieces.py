"""Functions of f32 lanes by tables of polynomials, whose coefficients are in a register each.

Sixteen polynomials, or eight longer ones.

    |x| = k h + d, |d| <= h/2:  f(x) = f(k h) + d (c1[k] + d (c2[k] + ..)), the sign of x put back

One permutation fetches a coefficient for all lanes of a register. h is a number for which every
f(k h) lies near an f32 (so that rounding the leading coefficient costs little) and whose multiples
are exact.
For k = 0 the leading part is |x| itself: small results keep their relative accuracy. Where the next
piece cancels much its rows describe f(x) - |x| too, and |x| is added last.
Coefficients by Lawson's weighted least squares, rounded one after the other with a refit of the
rest.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from msgspec import Struct

from hlo.backend.ir.writer import Value, Writer, float_bits
from hlo.backend.math.scaling import format_of
from hlo.backend.math.term import Term, fma

_HALF = 8  # lanes of the shortest vectors that look up


class Pieces(Struct, frozen=True):
    """h, the bound from which on f is flat, and c0, c1, ..: a row for each coefficient, with an
    entry for each piece, sixteen or eight.

    less_x: how many pieces, from the first, are of f(x) - |x|.
    """

    step: float
    bound: float
    rows: tuple[tuple[float, ...], ...]
    less_x: int = 1


def has_tables(x: Term, rows: Sequence[tuple[float, ...]]) -> bool:
    """Whether this target's vectors had better look entries up in registers."""
    return not x.is_double and x.target.isa.looks_up(len(rows), len(rows[0]))


def odd(x: Term, forms: tuple[Pieces, Pieces]) -> Term:
    """The odd function that either form's pieces describe; NaN stays.

    The second, of half as many pieces, serves registers that hold no more.
    """
    longer, shorter = forms
    pieces = shorter if x.target.isa.lookup_lanes == len(shorter.rows[0]) else longer
    t = x.abs().at_most(pieces.bound)
    magic = format_of(x).magic
    shifted = fma(t, 1 / pieces.step, magic)  # its low bits are k
    k = shifted - magic
    d = fma(k, -pieces.step, t)
    first, *others = (entry(row, shifted.bits) for row in pieces.rows)
    q = others[-1]
    for coefficient in reversed(others[:-1]):
        q = fma(q, d, coefficient)
    if pieces.less_x > 1:
        missing = (k < pieces.less_x - 0.5).select(t, 0.0)
        return (fma(q, d, first) + missing).copysign(x)
    # In lanes a masked permutation; a scalar's entry had better be loaded while k is not known yet.
    constant = k.eq(0.0).select(t, first) if x.lanes == 1 else k.ne(0.0).select(first, t)
    return fma(q, d, constant).copysign(x)


def entry(row: tuple[float, ...], index: Term) -> Term:
    """row[index % len(row)] in every lane, of 8, 16 or 32 entries."""
    w, lanes = index.w, index.lanes
    widest = index.target.isa.lookup_lanes
    if lanes == 1:
        return _loaded(row, index & (len(row) - 1))
    shortest = min(_HALF, widest)
    if lanes < shortest:
        found = entry(row, index.of(_stretched(w, index.value, shortest)))
        return index.of(_part(w, found.value, 0, lanes))
    if lanes > widest:
        parts = [index.of(_part(w, index.value, k, lanes // 2)) for k in (0, lanes // 2)]
        return index.of(w.end_to_end([entry(row, part).value for part in parts]))
    if lanes < _HALF:
        return _known(_picked(index, *(_vector(row[k : k + lanes]) for k in range(0, 16, lanes))))
    return _of_halves(row, index) if lanes == _HALF else _of_register(row, index)


def _of_register(row: tuple[float, ...], index: Term) -> Term:
    """Sixteen lanes from one register or from two."""
    halves = (row[:16], row[16:]) if len(row) > 16 else (row,)
    return _known(_picked(index, *map(_vector, halves)))


def _of_halves(row: tuple[float, ...], index: Term) -> Term:
    """Eight lanes from a row, from its two halves where it is longer than one step takes."""
    if len(row) == _HALF:
        return _known(_picked(index, _vector(row)))
    if len(row) == 2 * _HALF:
        return _of_eight(row, index)
    middle = len(row) // 2
    low, high = _of_halves(row[:middle], index), _of_halves(row[middle:], index)
    return (index & middle).ne(0).select(high, low)


def _of_eight(row: tuple[float, ...], index: Term) -> Term:
    """The entries for eight lanes, from the two halves of the table."""
    low, high = _vector(row[:_HALF]), _vector(row[_HALF:])
    both = _picked(index, low, high)
    if both is not None:
        return both
    a, b = (_known(_picked(index, half)) for half in (low, high))
    return (index & _HALF).ne(0).select(b, a)


def _picked(index: Term, *registers: Value) -> Term | None:
    found = index.target.isa.picked(index.w, registers, index.value)
    return None if found is None else index.of(found)


def _known(found: Term | None) -> Term:
    assert found is not None, "a vector of so many lanes looks up"
    return found


def _vector(row: tuple[float, ...]) -> Value:
    return Value(f"<{_text(row)}>", f"<{len(row)} x float>")


def _text(row: tuple[float, ...]) -> str:
    return ", ".join(f"float {float_bits(c, 'float')}" for c in row)


def _loaded(row: tuple[float, ...], index: Term) -> Term:
    """One lane from memory."""
    w = index.w
    text = _text(row)
    name = f"hlo.row.{zlib.crc32(text.encode()):08x}"
    w.enter_data(name, f"@{name} = internal constant [{len(row)} x float] [{text}], align 64")
    return index.of(w.load(w.address(Value(f"@{name}", "ptr"), index.value, "float"), "float", 4))


def _part(w: Writer, value: Value, first: int, count: int) -> Value:
    """`count` neighbouring lanes."""
    if value.lanes == count:
        return value
    return w.shuffle(value, None, range(first, first + count))


def _stretched(w: Writer, value: Value, count: int) -> Value:
    """The same lanes and others behind them, so many in all."""
    return w.shuffle(value, value, (min(k, value.lanes) for k in range(count)))
