"""Block: how leading dimensions of values are parted, and the shape of a part.

A value cut by (a, b, ..) has as its first dimensions the block's `lead[a]`, `lead[b]`, .., and is
cut in them, those of one element aside, which are nowhere counted; by WHOLE it is one that every
block reads whole, by PLACED one that all blocks share and of which each writes its part, wherever
the cut dimensions are in it, by SUMMED one that is the sum of what blocks have.
"""

from __future__ import annotations

import math

from msgspec import Struct

from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape

Span = tuple[int, ...]  # Some of the block's leading dimensions, in their order.
Cut = tuple[Instruction, Span]
WHOLE: Span = ()
PLACED: Span = (-1,)
SUMMED: Span = (-2,)


class Block(Struct, frozen=True):
    """How leading dimensions of values are parted into blocks.

    lead: the sizes, none of them 1, of the leading dimensions that blocks part; sizes: a block's
    in them.

    Where a block's last size does not divide the whole one, the last two blocks overlap: both write
    the same values there.
    """

    lead: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def depth(self) -> int:
        return len(self.lead)

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return self.parts(self.depth)

    @property
    def all(self) -> Span:
        """All leading dimensions."""
        return tuple(range(len(self.lead)))

    @property
    def outer(self) -> Span:
        """The leading dimensions but the last, of which blocks have one index each."""
        return tuple(range(len(self.lead) - 1))

    def parts(self, depth: int) -> int:
        """How many parts the first `depth` dimensions have."""
        whole = math.prod(self.lead[: min(depth, self.depth - 1)])
        return whole * -(-self.lead[-1] // self.sizes[-1]) if depth == self.depth else whole

    def begins(self, dimension: int) -> int:
        """The last index in a leading dimension at which a block begins."""
        return self.lead[dimension] - self.sizes[dimension]

    def cut(self, shape: Shape, span: Span) -> Shape:
        """The shape of a block of a value."""
        if shape.is_tuple:
            return Shape.tuple(self.cut(e, span) for e in shape.elements)
        places = self.places(shape, span)
        assert places is not None, "a shape that can be cut"
        if not places:  # all of it
            return shape
        dims = list(shape.dims)
        for place, dimension in zip(places, span, strict=True):
            dims[place] = self.sizes[dimension]
        return shape.with_dims(dims)

    def places(self, shape: Shape, span: Span) -> tuple[int, ...] | None:
        """Which dimensions of a shape are those of a span; None where it has not got them."""
        if span in (PLACED, SUMMED):
            return ()
        wanted = tuple(self.lead[d] for d in span)
        places = tuple(d for d, n in enumerate(shape.dims) if n != 1)[: len(wanted)]
        return places if tuple(shape.dims[p] for p in places) == wanted else None
