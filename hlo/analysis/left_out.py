"""Left out: layers of a network that passes do not see, because they are as those that they see.

Limits on how far something reaches mean the whole network. What reaches through all layers that
are there would reach through the others, too, and is counted as if it did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

from hlo.ir.instruction import Instruction


class LeftOut(Struct, frozen=True, eq=False):
    """Layers of a network that passes do not see.

    count: how many layers are left out between those that are there; layers: which of the ones
    beside them an instruction was made for, by its place in the text.
    """

    count: int
    layers: Mapping[int, int]


_left_out: ContextVar[tuple[LeftOut, ...]] = ContextVar("_left_out", default=())


@contextmanager
def leaving_out(some: Iterable[LeftOut]) -> Iterator[None]:
    """Within this, a module is without some layers."""
    token = _left_out.set(tuple(some))
    try:
        yield
    finally:
        _left_out.reset(token)


def size_in_all_layers(members: Collection[Instruction]) -> int:
    """How many some instructions would be with those of the layers that are left out."""
    size = len(members)
    for left_out in _left_out.get():
        layers = left_out.layers
        of_each = Counter([layers[m.start] for m in members if m.start in layers])
        if of_each.keys() == set(layers.values()):
            size += left_out.count * min(of_each.values())
    return size
