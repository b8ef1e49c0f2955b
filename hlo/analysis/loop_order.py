"""Loop order: how loops run over a result's dimensions, so that what reductions keep comes first.

    dimensions, those that each reduction keeps, what the text says --loop_order--> LoopOrder | None

Elements then are reduced once, and lanes run over what is kept, around what is reduced (strips).
Asked by fusion while a group grows, which writes an order other than the dimensions' own into the
text (decisions.py), and for a kernel as it stands, where the text may say what does not fit.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

Dims = tuple[int, ...]


class LoopOrder(Struct, frozen=True):
    """In which order loops run over a result's dimensions.

    dims: all of a result's, the outermost loop's first. kept: how many loops it takes until all
    that reductions keep is known, and nothing else but dimensions of one element.
    """

    dims: Dims
    kept: int

    @property
    def is_own(self) -> bool:
        """Whether loops run over the dimensions as they are."""
        return self.dims == tuple(range(len(self.dims)))


def loop_order(
    extents: Dims, kept: Collection[Collection[int]], said: Dims = ()
) -> LoopOrder | None:
    """The order that is said where it begins with what reductions keep, else the dimensions' own
    where that does, else with what is kept before the others. None: reductions keep different
    dimensions, all of them or none, and no order suits them.

    extents: of the result's dimensions. kept: those that each of the reductions keeps.
    """
    long = frozenset(d for d, n in enumerate(extents) if n > 1)
    wanted = {long.intersection(dims) for dims in kept}
    if len(wanted) != 1 or wanted & {frozenset(), long}:
        return None
    (first,) = wanted
    every = {d for dims in kept for d in dims}
    own = tuple(range(len(extents)))
    moved = tuple(sorted(own, key=lambda d: d not in every))
    found = (_begun(order, first, long) for order in (said, own) if sorted(order) == [*own])
    return next(filter(None, found), None) or _begun(moved, first, long)


def _begun(order: Dims, first: frozenset[int], long: frozenset[int]) -> LoopOrder | None:
    """The order, if it begins with these dimensions."""
    count = 1 + max(map(order.index, first))
    return LoopOrder(order, count) if long.intersection(order[:count]) == first else None
