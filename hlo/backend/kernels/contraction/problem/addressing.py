"""Addressing: where an element of a factor stands.

At an address in memory, or at a position in a factor that is computed as it is read (axes.py:
Computed).

    Place, index along axes --moved--> Place;   Place, a run from an index on --read--> Parts

A position is an index map over the loops' counters, so that the arrays that a factor is computed
from are read as loop kernels read theirs: by vectors, splats, or gathers where nothing else serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, divided, strided
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.kernels.contraction.problem.ring import (
    Parts,
    Ring,
    all_parts,
    element_address,
    loaded,
)
from hlo.backend.lanes import masked
from hlo.backend.lanes.types import storage_scalar
from hlo.indexing import affine
from hlo.indexing.affine import Expr
from hlo.ir.dtype import DType


class Reader(Protocol):
    """A computed factor in the kernel being written (computed.py)."""

    def index(self, value: Value, size: int) -> Expr:
        """A counter below `size` as an index; the same for the same value."""

    def lanes_from(self, first: Value, last: int, lanes: int, mask: Value | None = None) -> Expr:
        """An index and those that follow it, up to the last, one a lane."""

    def define(self, value: Value, index: Expr) -> None:
        """What a counter is of others."""

    def outside(self) -> AbstractContextManager[None]:
        """What is written inside are loops: what does not depend on their counters comes before."""

    def handed(self, place: Position, inner: Writer) -> tuple[Place, list[tuple[Value, Value]]]:
        """As `handed` below."""

    def begin(self, ring: Ring) -> None:
        """Code without branches, in which no element is computed twice, begins here."""

    def read(self, ring: Ring, position: Expr, lanes: int) -> Value:
        """The elements at a position, as the ring's numbers."""

    def codes(self, ring: Ring, position: Expr, lanes: int) -> Value:
        """The same as memory would hold them."""

    def followed(self, position: Expr, counter: Value) -> Followed | None:
        """What elements from a position on are computed of, one by one."""


class Followed(Struct, frozen=True):
    """Elements of an array in memory of which a computed factor's are made, one of each.

    address: of the first one; step_bytes: by which it moves when a counter goes on by one;
    item_bytes: of an element.
    """

    address: Value
    step_bytes: int
    item_bytes: int


class Position(Struct, frozen=True):
    """An element of a computed factor."""

    reader: Reader
    at: Expr


Place = Value | Position


def begin(ring: Ring, *places: Place) -> None:
    """Code without branches, which reads there, begins."""
    for place in places:
        if isinstance(place, Position):
            place.reader.begin(ring)


def define(place: Place, value: Value, number: Value, count: int, step: int, plus: int) -> None:
    """Let it be known that a counter is `step` times the number, which is below `count`, and a
    constant less than a step: so neighbouring depths are seen to share a group.
    """
    if isinstance(place, Position):
        reader = place.reader
        reader.define(value, reader.index(number, count) * step + plus)


def address_of(place: Place) -> Value:
    """Of a factor that is in memory."""
    assert isinstance(place, Value), "what is computed has no address"
    return place


def handed(place: Place, inner: Writer) -> tuple[Place, list[tuple[Value, Value]]]:
    """The place as a function sees it that is being written, and its parameters with what they are
    given.
    """
    if isinstance(place, Position):
        return place.reader.handed(place, inner)
    if place.is_constant:
        return place, []
    own = Value("%source", place.type)
    return own, [(own, place)]


def outside(place: Place) -> AbstractContextManager[None]:
    """What is written inside are loops that read from there on."""
    return place.reader.outside() if isinstance(place, Position) else nullcontext()


def moved(
    w: Writer, place: Place, index: Value, axes: Sequence[tuple[int, int]], dtype: DType
) -> Place:
    """The place at a linear index over (size, stride) axes."""
    if isinstance(place, Value):
        return element_address(w, place, strided(w, index, axes), dtype)
    sizes = [size for size, _ in axes]
    parts = affine.delinearized(place.reader.index(index, prod(sizes)), sizes)
    at = place.at
    for part, (_, stride) in zip(parts, axes, strict=True):
        at = at + part * stride
    return replace(place, at=at)


class Run(Struct, frozen=True):
    """Neighbours along a factor's innermost axis: the first one's index, and how many the axis has.
    is_whole: whether vectors are counted, so that the index is a multiple of their lanes.
    """

    index: Value
    size: int
    is_whole: bool = False


def read(
    w: Writer,
    ring: Ring,
    dtype: DType,
    place: Place,
    run: Run,
    lanes: int,
    mask: Value | None = None,
) -> Parts:
    """Neighbours as the ring's numbers; lanes that the mask leaves out are zero."""
    if isinstance(place, Value):
        return loaded(w, ring, dtype, element_address(w, place, run.index, dtype), lanes, mask)
    at = place.at + _neighbours(w, place.reader, run, lanes, mask)
    value = place.reader.read(ring, at, lanes)
    held = value if mask is None else w.select(mask, value, w.zero(value.type))
    return all_parts(w, ring, (held,))


def followed(place: Place, run: Run, counter: Value) -> Followed | None:
    """Where neighbours of a computed factor come from, of which code has begun to read others, and
    how they move with a counter; None where each is made of several, or stands otherwise.
    """
    assert isinstance(place, Position), "what is in memory has an address"
    return place.reader.followed(place.at + place.reader.index(run.index, run.size), counter)


def _neighbours(w: Writer, reader: Reader, run: Run, lanes: int, mask: Value | None) -> Expr:
    """The indices of a run, one a lane. Where the place of lane 0 among whole vectors is known, a
    group of as many neighbours or more is seen to be the same for all lanes.
    """
    first, last = run.index.integer, run.size - 1
    if first is None and run.is_whole and mask is None:
        vectors = reader.index(divided(w, run.index, lanes), max(run.size // lanes, 1))
        return vectors * lanes + reader.lanes_from(w.int(0), lanes - 1, lanes)
    if first is None:
        return reader.lanes_from(run.index, last, lanes, mask)
    first = min(first, last)  # The mask leaves nothing behind the last.
    return reader.lanes_from(w.int(0), min(lanes - 1, last - first), lanes, mask) + first


def codes_of(
    w: Writer,
    ring: Ring,
    dtype: DType,
    place: Place,
    run: Run,
    lanes: int,
    mask: Value | None = None,
) -> Value:
    """Neighbours as they lie in memory, or would: what is computed is so a vector of the ring's
    lanes at a time. Lanes that the mask leaves out are zero.
    """
    if isinstance(place, Value):
        address = element_address(w, place, run.index, dtype)
        type = vector_of(storage_scalar(dtype), lanes)
        return masked.load(w, type, address, dtype.item_bytes, mask)
    found = []
    for first in range(0, lanes, ring.lanes):
        own = None if mask is None else masked.part_of(w, mask, first, ring.lanes)
        part = replace(run, index=add(w, run.index, w.int(first)))
        at = place.at + _neighbours(w, place.reader, part, ring.lanes, own)
        value = place.reader.codes(ring, at, ring.lanes)
        found.append(value if own is None else w.select(own, value, w.zero(value.type)))
    return w.end_to_end(found)
