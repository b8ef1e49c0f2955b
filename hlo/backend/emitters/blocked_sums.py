"""Blocked sums: loops over a sum's terms whose chains of additions are short at every level.

    total += (sum of 16 terms + sum of the next 16 + ..) + (..) + ..

The sizes of blocks are those of the axes, which loops/reductions.py chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from hlo.backend.ir.writer import Value
from hlo.backend.lanes.nest import Bound, Nest
from hlo.backend.loops.schedule import Axis
from hlo.indexing.affine import Expr

Values = list[Value]
Step = Callable[[list[Expr], Values], Values]


def looped(nest: Nest, axes: Sequence[Axis], step: Step, start: Values) -> Values:
    """The loops without blocks."""

    def over(outer: list[Expr], values: Values) -> Values:
        depth = len(outer)
        if depth == len(axes):
            return step(outer, values)
        length = axes[depth].extent

        def body(counter: Value, inner: Values) -> Values:
            return over([*outer, nest.variable(counter, 0, length - 1)], inner)

        return nest.loop(0, length, 1, values, body)

    return over([], start)


class BlockedSums(Struct):
    """The loops, row-major over the axes.

    zero: what a block starts from; step: the sums with the term, or with a chain of terms, at an
    index; joined: two sums.
    """

    nest: Nest
    axes: Sequence[Axis]
    zero: Values
    step: Step
    joined: Callable[[Values, Values], Values]

    def from_(self, start: Values) -> Values:
        """All terms, added to what is there."""
        return self._over([], start)

    def _over(self, outer: list[Expr], sums: Values) -> Values:
        """The loops that are left."""
        depth = len(outer)
        if depth == len(self.axes):
            return self.step(outer, sums)
        axis = self.axes[depth]
        length = axis.extent

        def one(counter: Value, values: Values) -> Values:
            index = [*outer, self.nest.variable(counter, 0, length - 1)]
            if not axis.apart:
                return self._over(index, values)
            return self.joined(values, self._over(index, self.zero))

        return self._blocks(axis.blocks, (0, length), length, sums, one)

    def _blocks(
        self,
        sizes: Sequence[int],
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
