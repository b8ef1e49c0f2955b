"""Vectors of a free set whose neighbours lie a few elements apart: windows that move by two.

    stretches of memory that hold a vector's lanes --shuffles--> the vector

A vector that ends with its run is read by whole loads. One that goes on in the next run has the
lanes of both in one stretch: those of the next run begin `left` lanes later there, so what is read
of either is masked, and no element but those between the first and the last lane of a run is
touched.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ir.arithmetic import strided, times
from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.kernels.contraction.packing.form import Fetch, Packing
from hlo.backend.kernels.contraction.problem.ring import Parts, converted, element_address
from hlo.backend.lanes import masked
from hlo.backend.lanes.strided import Stretch, picked, stretch
from hlo.backend.lanes.types import storage_scalar


def stretch_of(packing: Packing) -> Stretch | None:
    """How a vector of the free set is read; None where gathers serve: neighbours that follow each
    other or lie far apart, runs shorter than a vector, pairs of numbers, machines that mask no
    loads and so would branch for each lane.
    """
    ring, source = packing.ring, packing.source
    if source.is_made or source.dtype.is_complex or not source.free:
        return None
    (size, step), target = source.free[-1], ring.target
    if step < 2 or size < ring.lanes or not target.isa.masks_loads:
        return None
    shuffles = target.isa.permutes_bytes
    item_bytes = source.dtype.item_bytes
    return stretch(step, ring.lanes, item_bytes, target.vector_bytes, shuffles=shuffles)


class StretchVector(Struct, frozen=True):
    """A vector of the free set that begins at index `start`, `left` before the end of its run; 0
    where it begins behind the set, so that nobody reads it.
    """

    packing: Packing
    stretch: Stretch
    start: Value
    left: Value

    def is_whole(self, w: Writer) -> Value:
        """Whether it ends with its run, or before."""
        return w.compare("icmp sge", self.left, w.int(self.packing.ring.lanes))

    def whole(self, w: Writer) -> Fetch:
        """The vector, as a function of the address of index 0, where it is whole."""
        source, scalar = self.packing.source, storage_scalar(self.packing.source.dtype)
        first, type = strided(w, self.start, source.free), vector_of(scalar, self.stretch.width)

        def fetch(base: Value) -> Parts:
            at = element_address(w, base, first, source.dtype)
            chunks = [w.load(self._chunk(w, at, s), type, 1) for s in self.stretch.starts]
            return self._made(w, chunks)

        return fetch

    def parted(self, w: Writer) -> Fetch:
        """The same where it is not, or where the set ends before it does."""
        source, scalar = self.packing.source, storage_scalar(self.packing.source.dtype)
        step, type = source.free[-1][1], vector_of(scalar, self.stretch.width)
        places = [self._places(w, start) for start in self.stretch.starts]
        first, end = strided(w, self.start, source.free), times(w, self.left, step)
        near = [self._below(w, place, w.binary("sub", end, w.int(step - 1))) for place in places]
        has_next = len(source.free) > 1
        far, second = near, first
        if has_next:
            there = w.binary("sub", w.int(source.free_size), self.start)
            there = w.intrinsic("llvm.smin", "i64", there, w.int(self.packing.ring.lanes))
            last = w.binary("sub", times(w, there, step), w.int(step - 1))
            far = [
                w.binary(
                    "and",
                    w.compare("icmp sge", place, w.splat(end, self.stretch.width)),
                    self._below(w, place, last),
                )
                for place in places
            ]
            following = w.binary("add", self.start, self.left)
            last_index = w.int(source.free_size - 1)
            following = w.intrinsic("llvm.umin", "i64", following, last_index)
            second = w.binary("sub", strided(w, following, source.free), end)

        def fetch(base: Value) -> Parts:
            at, behind = (element_address(w, base, n, source.dtype) for n in (first, second))
            chunks = []
            for n, start in enumerate(self.stretch.starts):
                chunk = masked.load(w, type, self._chunk(w, at, start), 1, near[n])
                if has_next:
                    others = masked.load(w, type, self._chunk(w, behind, start), 1, far[n])
                    chunk = w.select(far[n], others, chunk)
                chunks.append(chunk)
            return self._made(w, chunks)

        return fetch

    def _chunk(self, w: Writer, at: Value, start: int) -> Value:
        return element_address(w, at, w.int(start), self.packing.source.dtype) if start else at

    def _places(self, w: Writer, start: int) -> Value:
        """Where a chunk's elements stand in the stretch."""
        return counted("i64", self.stretch.width, start)

    def _below(self, w: Writer, places: Value, end: Value) -> Value:
        """Which of them are. The end of a vector behind the set is below zero."""
        return w.compare("icmp slt", places, w.splat(end, self.stretch.width))

    def _made(self, w: Writer, chunks: list[Value]) -> Parts:
        """The ring's numbers."""
        raw = picked(w, chunks, self.stretch)
        return converted(w, self.packing.ring, self.packing.source.dtype, (raw,))
