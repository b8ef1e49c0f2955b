"""Blocked sums: loops over a sum's terms whose chains of additions are short at every level.

    total += (sum of 16 terms + sum of the next 16 + ..) + (..) + ..

A block is 16 terms, or 8 smaller blocks: a term goes through some 16 + 8 log8(n / 16) additions,
where one chain would have n. Blocks follow from the extents alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from hlo.backend.ir.writer import Value
from hlo.backend.lanes.nest import Bound, Nest
from hlo.backend.loops.schedule import Axis, Role, axis_name
from hlo.indexing.affine import Expr

FEW = 16  # terms that are added one after the other,
BLOCKS = 8  # and blocks

Values = list[Value]
Step = Callable[[list[Expr], Values], Values]


def looped(nest: Nest, extents: Sequence[int], step: Step, start: Values) -> Values:
    """The loops without blocks."""

    def over(outer: list[Expr], values: Values) -> Values:
        depth = len(outer)
        if depth == len(extents):
            return step(outer, values)

        def body(counter: Value, inner: Values) -> Values:
            return over([*outer, nest.variable(counter, 0, extents[depth] - 1)], inner)

        return nest.loop(0, extents[depth], 1, values, body)

    return over([], start)


class BlockedSums(Struct):
    """The loops, row-major over extents.

    zero: what a block starts from; step: the sums with the term at an index, or with a chain of so
    many terms; joined: two sums.
    """

    nest: Nest
    extents: Sequence[int]
    zero: Values
    step: Step
    joined: Callable[[Values, Values], Values]
    terms: int = 1

    def from_(self, start: Values) -> Values:
        """All terms, added to what is there."""
        return self._over([], start)

    def _over(self, outer: list[Expr], sums: Values) -> Values:
        """The loops that are left."""
        depth = len(outer)
        if depth == len(self.extents):
            return self.step(outer, sums)
        length, inner = self.extents[depth], prod(self.extents[depth + 1 :]) * self.terms
        sizes = sizes_of(length)

        def one(counter: Value, values: Values) -> Values:
            index = [*outer, self.nest.variable(counter, 0, length - 1)]
            if inner < FEW:
                return self._over(index, values)
            return self.joined(values, self._over(index, self.zero))

        return self._blocks(sizes, (0, length), length, sums, one)

    def _blocks(
        self,
        sizes: list[int],
        limits: tuple[Bound, Bound],
        length: int,
        sums: Values,
        one: Callable[[Value, Values], Values],
    ) -> Values:
        """Blocks of the first size, made of smaller ones."""
        low, high = limits
        if not sizes:
            return self.nest.loop(low, high, 1, sums, one)
        w, (size, *smaller) = self.nest.w, sizes

        def block(counter: Value, values: Values) -> Values:
            end = w.binary("add", counter, w.int(size))
            if length % size:
                last = w.int(high) if isinstance(high, int) else high
                end = w.intrinsic("llvm.smin", "i64", end, last)
            return self.joined(
                values, self._blocks(smaller, (counter, end), length, self.zero, one)
            )

        # The last round may be cut short: it runs while one element is left.
        most = high + size - 1 if isinstance(high, int) else high
        if isinstance(most, Value) and length % size:
            most = w.binary("add", most, w.int(size - 1))
        return self.nest.loop(low, most, size, sums, block)


def sizes_of(length: int) -> list[int]:
    """Blocks of so many terms, the largest first."""
    found: list[int] = []
    size = FEW
    while size < length:
        found.insert(0, size)
        size *= BLOCKS
    return found


def axes_of(extents: Sequence[int], role: Role, *, in_blocks: bool = False) -> tuple[Axis, ...]:
    """The axes of a fold, whose sums may be in blocks."""
    return tuple(
        Axis(axis_name(k, "r"), n, role, blocks=tuple(sizes_of(n)) if in_blocks else ())
        for k, n in enumerate(extents)
    )
