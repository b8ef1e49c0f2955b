"""Horizontal reduction: several vectors of partial results to one number of each.

vectors, lanes of a vector --joined by pairs, halved--> one lane
"""

from __future__ import annotations

from msgspec import Struct

from hlo.analysis.reducers import Reducer
from hlo.backend.emitters import reducers
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.lanes import types
from hlo.backend.lanes.alternating import part_lanes
from hlo.backend.lanes.types import Lanes, parts
from hlo.ir.dtype import PRED, DType
from hlo.ops.identities import identity

Accumulators = list[Lanes]  # What one result element has so far, one for each reduced array.
_LEAST_VECTOR = 4  # In fewer lanes a maximum takes more instructions, not fewer.


class HorizontalReduction(Struct):
    """Vectors of partial results as one number of each array.

    kinds: of the arrays that are reduced together.
    """

    elemental: Elemental
    reducer: Reducer
    kinds: list[DType]

    def join(self, a: Accumulators, b: Accumulators) -> Accumulators:
        """f of two partial results, the earlier one on the left where that matters."""
        return reducers.join(self.elemental.nest, self.reducer, a, b, self.kinds)

    def joined_accumulators(self, partial: list[Accumulators]) -> Accumulators:
        """Vectors joined pairwise."""
        while len(partial) > 1:
            pairs = [partial[k : k + 2] for k in range(0, len(partial), 2)]
            partial = [self.join(*p) if len(p) == 2 else p[0] for p in pairs]
        return partial[0]

    def tested(self, total: Accumulators) -> Accumulators:
        """Truths joined by one comparison of all their bits."""
        w, (value,) = self.elemental.nest.w, parts(total[0])
        bits = w.cast("bitcast", value, f"i{value.lanes}")
        if identity(self.reducer.opcodes[0], PRED):
            return [w.compare("icmp eq", bits, w.int(-1, bits.type))]
        return [w.compare("icmp ne", bits, w.int(0, bits.type))]

    def halved(self, total: Accumulators) -> Accumulators:
        """One vector alone."""
        w, lanes = self.elemental.nest.w, types.width(total[0])
        turns = self.reducer.idempotent and all(k.is_float for k in self.kinds)
        while lanes > 1:
            lanes //= 2
            if turns and lanes < _LEAST_VECTOR:
                low, high = total, [reducers.turned(w, x, lanes) for x in total]
            else:
                low, high = ([reducers.half(w, x, lanes, k) for x in total] for k in (0, 1))
            total = self.join(low, high)
        return [reducers.half(w, x, 1, 0) if types.width(x) > 1 else x for x in total]

    def halved_together(self, totals: list[Accumulators]) -> list[Accumulators]:
        """1, 2, 4, ... vectors: the lower halves of two beside each other, joined with the upper
        ones. A vector that is left alone is halved in its place, and its lanes are picked.

        Lanes meet as they do where each is halved alone, in half the steps.
        """
        w, lanes = self.elemental.nest.w, types.width(totals[0][0])
        scalars = [v.scalar_type for x in totals[0] for v in parts(x)]
        part = min(part_lanes(scalars), lanes)
        totals = _in_turn(totals, lanes // part, part)
        run = lanes // 2
        while run and len(totals) > 1:
            pairs = zip(totals[::2], totals[1::2], strict=True)
            totals = []
            for a, b in pairs:
                halves = [reducers.halves(w, x, y, run, part) for x, y in zip(a, b, strict=True)]
                totals.append(self.join([low for low, _ in halves], [high for _, high in halves]))
            run //= 2
        return [self._halved_in_place(totals[0], run)] if run else totals

    def _halved_in_place(self, total: Accumulators, run: int) -> Accumulators:
        """Runs of so many lanes joined with those behind them, these halved, and so on."""
        w, step = self.elemental.nest.w, 2 * run
        while run:
            total = self.join(total, [reducers.swapped(w, x, run) for x in total])
            run //= 2
        return [reducers.every(w, x, step) for x in total]

    def taken_apart(self, ended: list[Accumulators], count: int) -> list[Accumulators]:
        """The lanes of `count` results."""
        w, each = self.elemental.nest.w, count // len(ended)
        return [[reducers.half(w, x, 1, n % each) for x in ended[n // each]] for n in range(count)]


def _in_turn(totals: list[Accumulators], most: int, part: int) -> list[Accumulators]:
    """The vectors in the order that brings their results into theirs: halves of whole parts go to
    parts one after the other, halves of these to lanes of each.
    """
    count = len(totals)
    across = min(count, most)
    within = min(count // across, part)
    order = [k * within + n for n in range(within) for k in range(across)]
    each = len(order)
    return [totals[first + k] for first in range(0, count, each) for k in order]
