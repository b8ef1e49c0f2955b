"""Joining: partial results of a fold, several vectors of them, to one of each.

vectors, lanes of a vector --joined by pairs, halved--> one lane
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo.backend.emitters import reducers
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.reducers import Reducer
from hlo.backend.ir.writer import Writer
from hlo.backend.lanes import types
from hlo.backend.lanes.types import Lanes, joined, parts
from hlo.ir.dtype import DType

Accumulators = list[Lanes]  # of one result element: one per reduced array
_LEAST_VECTOR = 4  # lanes below which a maximum takes more instructions, not fewer


class Joining(Struct):
    """kinds: of the arrays that are folded together."""

    elemental: Elemental
    reducer: Reducer
    kinds: list[DType]

    def joined_copies(self, partial: list[Accumulators]) -> Accumulators:
        """Vectors joined pairwise."""
        join, kinds = self.reducer.join, self.kinds
        while len(partial) > 1:
            pairs = [partial[k : k + 2] for k in range(0, len(partial), 2)]
            partial = [
                join(self.elemental, p[0], p[1], kinds) if len(p) == 2 else p[0] for p in pairs
            ]
        return partial[0]

    def tested(self, total: Accumulators) -> Accumulators:
        """Truths joined by one comparison of all their bits."""
        w, (value,) = self.elemental.nest.w, parts(total[0])
        bits = w.cast("bitcast", value, f"i{value.lanes}")
        if self.reducer.opcodes[0] in ("and", "multiply", "minimum"):
            return [w.compare("icmp eq", bits, w.int(-1, bits.type))]
        return [w.compare("icmp ne", bits, w.int(0, bits.type))]

    def halved(self, total: Accumulators) -> Accumulators:
        """One vector alone."""
        w, lanes = self.elemental.nest.w, types.width(total[0])
        turns = self.reducer.idempotent and all(k.is_float for k in self.kinds)
        while lanes > 1:
            lanes //= 2
            if turns and lanes < _LEAST_VECTOR:
                low, high = total, [_turned(w, x, lanes) for x in total]
            else:
                low, high = ([_half(w, x, lanes, k) for x in total] for k in (0, 1))
            total = self.reducer.join(self.elemental, low, high, self.kinds)
        return [_half(w, x, 1, 0) if types.width(x) > 1 else x for x in total]

    def halved_together(self, totals: list[Accumulators]) -> list[Accumulators]:
        """Several vectors: the lower halves of two beside each other, joined with the upper ones.

        Lanes meet as they do where each is halved alone, in half the steps.
        """
        w = self.elemental.nest.w
        block = types.width(totals[0][0])
        while block > 1:
            groups = [totals[k : k + 2] for k in range(0, len(totals), 2)]
            totals = []
            for group in groups:
                low, high = (
                    [_halves(w, pair, block, k) for pair in zip(*group, strict=True)]
                    for k in (0, 1)
                )
                totals.append(self.reducer.join(self.elemental, low, high, self.kinds))
            block //= 2
        return totals

    def taken_apart(self, ended: list[Accumulators], count: int) -> list[Accumulators]:
        """The lanes of `count` results."""
        w, each = self.elemental.nest.w, count // len(ended)
        return [[_half(w, x, 1, n % each) for x in ended[n // each]] for n in range(count)]


def _turned(w: Writer, lanes: Lanes, step: int) -> Lanes:
    """Lane k holds what lane k + step held; the lanes that follow hold any."""
    return joined([reducers.turned(w, v, step) for v in parts(lanes)])


def _halves(w: Writer, pair: Sequence[Lanes], block: int, which: int) -> Lanes:
    """The lower (0) or upper (1) halves of all blocks of one or two vectors."""
    sources = zip(*(parts(x) for x in pair), strict=True)
    return joined([reducers.halves(w, v, block, which) for v in sources])


def _half(w: Writer, lanes: Lanes, count: int, which: int) -> Lanes:
    """The lower (0) or upper (1) half of the lanes; a scalar when that is one."""
    return joined([reducers.half(w, v, count, which) for v in parts(lanes)])
