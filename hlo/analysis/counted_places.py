"""Counted places: integers that are computed of iotas, as indices of the place where they stand.

    clamp(low, k i + j + c, high) --place_of--> Place: an index, and between which ends it stays

Distances, shifts and frames are counted so, in HLO as a chain of ops on arrays; who knows the place
need not compute it lane by lane, or look into memory for it. Integers are followed only as far as
none leaves its type, so that none wraps. Constants that grow evenly along each dimension are
counted, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
from msgspec import Struct

from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Variable
from hlo.indexing.maps import cases
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.movement import IotaAttributes
from hlo.ops.table import Trait, opcodes

MOST_BEHIND = 64  # Instructions behind a place.
FAR = 1 << 62
_MOVES = opcodes(Trait.REPEATS | Trait.REGROUPS | Trait.PERMUTES | Trait.CUTS | Trait.JOINS)


class Place(Struct, frozen=True):
    """clamp(low, index, high)"""

    index: Expr
    low: int = -FAR
    high: int = FAR

    @property
    def is_open(self) -> bool:
        """Whether nothing is clamped."""
        return self.low <= self.index.low and self.index.high <= self.high

    @property
    def least(self) -> int:
        return min(max(self.index.low, self.low), self.high)

    @property
    def most(self) -> int:
        return min(max(self.index.high, self.low), self.high)

    def times(self, n: int) -> Place:
        """clamp(l, x, h) n = clamp(l n, x n, h n), and the other way round for n < 0"""
        if not n:
            return Place(affine.ZERO)
        low, high = sorted((self.low * n, self.high * n))
        return Place(self.index * n, max(low, -FAR), min(high, FAR))

    def clamped(self, low: int, high: int) -> Place | None:
        """None where only one end is left of it."""
        low, high = max(self.low, low), min(self.high, high)
        return Place(self.index, low, high) if low <= high else None


Known = Place | bool
Node = tuple[Instruction, Index]
# What computes an integer, where: None where nobody is to look behind it.
Resolve = Callable[[Instruction, Index], Node | None]
# A scalar of the run between two numbers, as an index.
Bounded = Callable[[Instruction, int, int], Expr]


def itself(instruction: Instruction, index: Index) -> Node:
    """What computes an integer outside of kernels."""
    return instruction, index


def place_of(
    source: Instruction, index: Index, resolve: Resolve = itself, bounded: Bounded | None = None
) -> Place | None:
    """An integer's value as an index; None where it is none."""
    root = resolve(source, index)
    known: dict[Node, Known] = {}
    stack = [root]
    while stack and root is not None:
        top = stack[-1]
        if top is None or len(known) + len(stack) > MOST_BEHIND:
            return None
        parts = _parts(resolve, bounded, *top)
        missing = [p for p in parts if p is None or p not in known]
        if missing and top not in known:
            stack += missing
            continue
        stack.pop()
        if top not in known:
            found = _found(bounded, top, [known[p] for p in parts if p is not None])
            if found is None:
                return None
            known[top] = found
    place = known.get(root) if root is not None else None
    return place if isinstance(place, Place) else None


def range_of(source: Instruction) -> tuple[int, int] | None:
    """The least and the greatest of an array of integers that are counted; None of others."""
    dims = enumerate(source.shape.dims)
    found = place_of(source, tuple(affine.of(Variable(f"i{d}", 0, n - 1)) for d, n in dims))
    return None if found is None else (found.least, found.most)


def _parts(
    resolve: Resolve, bounded: Bounded | None, one: Instruction, index: Index
) -> Sequence[Node | None]:
    """What an integer is computed from, each where it is read."""
    if _is_moved(one):
        found = cases(one, index, _no_start)
        if len(found) > 1:
            return [None]  # now of one part, now of another
        return [resolve(one.operands[found[0].operand], found[0].index)]
    is_bounded = bounded is not None and _is_bounded_scalar(one)
    if one.opcode in _COMBINED and not is_bounded:
        return [resolve(o, index if o.shape.dims else ()) for o in one.operands]
    return []


def _no_start(*_: object) -> NoReturn:
    raise AssertionError("moves from places that are known before the run")


def _found(bounded: Bounded | None, node: Node, parts: Sequence[Known]) -> Known | None:
    one, index = node
    if _is_moved(one):
        return parts[0]
    if one.opcode == "iota":
        return _in_range(Place(index[IotaAttributes.of(one.attributes).iota_dimension]), one)
    if one.opcode == "constant":
        return _constant(one, index)
    if bounded is not None and _is_bounded_scalar(one):
        low, high = (_constant(o) for o in one.operands[::2])
        assert low is not None, "a constant"
        assert high is not None, "a constant"
        return Place(bounded(one.operands[1], low.least, high.least))
    combined = _COMBINED.get(one.opcode)
    found = combined(one, parts) if combined is not None else None
    return _in_range(found, one) if isinstance(found, Place) else found


def _is_moved(one: Instruction) -> bool:
    """Whether each integer is one of the operand's; a bitcast may read its bits otherwise."""
    return one.opcode in _MOVES and one.operands[0].shape.dtype is one.shape.dtype


def _is_bounded_scalar(one: Instruction) -> bool:
    """Whether it is a number between two that are known, as where a block starts is."""
    if one.opcode != "clamp" or one.shape.dims:
        return False
    low, high = (_constant(o) for o in one.operands[::2])
    return low is not None and high is not None and low.least <= high.least


def _in_range(place: Place, one: Instruction) -> Place | None:
    """A place whose values are all in an integer's type."""
    dtype = one.shape.dtype
    if not dtype.is_integral or dtype.bits < 8:
        return None
    least, most = dtype.int_range
    return place if least <= place.least and place.most <= most else None


def _constant(one: Instruction, index: Index = ()) -> Place | None:
    """The value at an index, where a literal's grow evenly along each dimension."""
    literal = one.attributes.get("literal")
    if not isinstance(literal, Literal) or literal.is_elided or not literal.shape.is_array:
        return None
    if not literal.shape.dtype.is_integral or not literal.shape.size:
        return None
    if not index or literal.is_uniform:
        return Place(affine.number(int(np.asarray(literal.array).reshape(-1)[0])))
    found = even_steps(literal)
    if found is None:
        return None
    first, steps = found
    total = affine.number(first)
    for e, step in zip(index, steps, strict=True):
        total = total + e * step
    return Place(total)


def even_steps(literal: Literal) -> tuple[int, tuple[int, ...]] | None:
    """The first of a literal's integers, and by how much they grow along each dimension."""
    values = np.asarray(literal.array).astype(np.int64)
    if literal.shape.dtype.bits == 64 and np.abs(values).max() >= FAR:
        return None
    first = values[(0,) * values.ndim]
    steps = [
        int(np.take(values, min(1, n - 1), d).flat[0] - first) for d, n in enumerate(values.shape)
    ]
    expected = first
    for d, step in enumerate(steps):
        along = np.arange(values.shape[d]).reshape((-1,) + (1,) * (values.ndim - 1 - d))
        expected = expected + step * along
    return (int(first), tuple(steps)) if np.array_equal(expected, values) else None


def _sum(_: Instruction, parts: Sequence[Known]) -> Place | None:
    """clamp(l, x, h) + n = clamp(l + n, x + n, h + n)"""
    a, b = parts
    if not isinstance(a, Place) or not isinstance(b, Place):
        return None
    if a.is_open and b.is_open:
        return Place(a.index + b.index)
    if a.index.is_constant:
        a, b = b, a
    if not b.index.is_constant or not b.is_open:
        return None
    n = b.index.constant
    return Place(a.index + n, a.low + n, a.high + n)


def _product(_: Instruction, parts: Sequence[Known]) -> Place | None:
    a, b = parts
    if not isinstance(a, Place) or not isinstance(b, Place):
        return None
    if a.index.is_constant:
        a, b = b, a
    return a.times(b.index.constant) if b.index.is_constant and b.is_open else None


def _negative(_: Instruction, parts: Sequence[Known]) -> Place | None:
    (a,) = parts
    return a.times(-1) if isinstance(a, Place) else None


def _difference(one: Instruction, parts: Sequence[Known]) -> Place | None:
    negative = _negative(one, parts[1:])
    return _sum(one, [parts[0], negative]) if negative is not None else None


def _clamp(_: Instruction, parts: Sequence[Known]) -> Place | None:
    low, place, high = parts
    if not (isinstance(low, Place) and isinstance(place, Place) and isinstance(high, Place)):
        return None
    if not low.index.is_constant or not high.index.is_constant:
        return None
    return place.clamped(low.index.constant, high.index.constant)


def _extreme(one: Instruction, parts: Sequence[Known]) -> Place | None:
    a, b = parts
    if not isinstance(a, Place) or not isinstance(b, Place):
        return None
    if a.index.is_constant:
        a, b = b, a
    if not b.index.is_constant:
        return None
    n = b.index.constant
    return a.clamped(n, FAR) if one.opcode == "maximum" else a.clamped(-FAR, n)


def _same(_: Instruction, parts: Sequence[Known]) -> Place | None:
    (a,) = parts
    return a if isinstance(a, Place) else None


def _compared(one: Instruction, parts: Sequence[Known]) -> bool | None:
    """A comparison that comes out the same everywhere, as of places with zero."""
    a, b = parts
    if not isinstance(a, Place) or not isinstance(b, Place):
        return None
    below, above = a.most < b.least, a.least > b.most
    at_most, at_least = a.most <= b.least, a.least >= b.most
    always, never = {
        "LT": (below, at_least), "LE": (at_most, above),
        "GT": (above, at_most), "GE": (at_least, below),
    }.get(str(one["direction"]), (False, False))  # fmt: skip
    return always if always or never else None


def _selected(_: Instruction, parts: Sequence[Known]) -> Known | None:
    where, a, b = parts
    return (a if where else b) if isinstance(where, bool) else None


_COMBINED: dict[str, Callable[[Instruction, Sequence[Known]], Known | None]] = {
    "add": _sum,
    "subtract": _difference,
    "multiply": _product,
    "negate": _negative,
    "clamp": _clamp,
    "maximum": _extreme,
    "minimum": _extreme,
    "convert": _same,
    "compare": _compared,
    "select": _selected,
}
