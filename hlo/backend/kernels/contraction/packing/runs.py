"""Vectors of a free set that lies in runs of neighbours: the positions of rows of a picture.

    the runs that a vector meets --a load for each--> the vector

A vector within a run is one load. One that goes on in the next runs has their lanes from a load
each: what the others have is masked, so that no element of the memory between runs is touched.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ir.arithmetic import strided
from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.packing.form import Fetch, Packing, Strides
from hlo.backend.kernels.contraction.problem.ring import Parts, element_address, loaded

# So many masked loads take less than a gather of as many lanes as meet so many runs.
MOST_RUNS = 4
MOST_BRANCHED = 2  # Where loads know no masks, each lane is a branch.


def runs_met(packing: Packing) -> int:
    """How many runs a vector of the free set meets at most; 0 where gathers serve."""
    ring, source = packing.ring, packing.source
    if source.is_made or not source.free or source.free[-1][1] != 1:
        return 0
    met = 1 + -(-(ring.lanes - 1) // source.free[-1][0])
    most = MOST_RUNS if ring.target.isa.masks_loads else MOST_BRANCHED
    return met if met <= most else 0


def offsets_of(axes: Strides) -> list[int]:
    """Where each element of some axes lies, from the first on."""
    offsets = [0]
    for size, stride in axes:
        offsets = [offset + i * stride for offset in offsets for i in range(size)]
    return offsets


def runs_ahead(packing: Packing) -> int:
    """How many panels ahead memory is asked for, 0: not at all. A panel brings new lines of many
    rows of memory, too few of each for the processor to foresee.
    """
    source, machine = packing.source, packing.ring.target.machine
    if not runs_met(packing) or source.memory_bytes < machine.first_cache.bytes:
        return 0
    new_bytes = -(-source.memory_bytes // packing.panels.count)
    return -(-machine.rates.awaited_bytes // new_bytes)


class Ahead(Struct, frozen=True):
    """What a vector some panels ahead reads. offset: of its first element; rows: the offsets of a
    round of depths that lie in lines of their own.
    """

    packing: Packing
    offset: Value
    rows: tuple[int, ...]

    @staticmethod
    def of(w: Writer, packing: Packing, start: Value) -> Ahead | None:
        """For the vector that begins at an index of the free set; None where nothing is asked."""
        if not (panels := runs_ahead(packing)):
            return None
        source = packing.source
        index = w.binary("add", start, w.int(panels * packing.panels.step))
        index = w.intrinsic("llvm.umin", "i64", index, w.int(source.free_size - 1))
        line = packing.ring.target.machine.line_bytes // source.dtype.item_bytes
        rows: list[int] = []
        for offset in offsets_of(packing.depth_rounds[1]):
            if all(abs(offset - row) >= line for row in rows):
                rows.append(offset)
        return Ahead(packing, strided(w, index, source.free), tuple(rows))

    def ask(self, w: Writer, base: Value) -> None:
        """At a round of depths, by the address of its first one's index 0."""
        dtype = self.packing.source.dtype
        there = element_address(w, base, self.offset, dtype)
        for row in self.rows:
            w.prefetch(element_address(w, there, w.int(row), dtype), locality=2)


class RunsVector(Struct, frozen=True):
    """A vector of the free set that begins at index `start`, `left` before the end of its run; 0
    where it begins behind the set, so that nobody reads it.
    """

    packing: Packing
    start: Value
    left: Value

    def is_whole(self, w: Writer) -> Value:
        """Whether it ends with its run, or before."""
        return w.compare("icmp sge", self.left, w.int(self.packing.ring.lanes))

    def whole(self, w: Writer) -> Fetch:
        """The vector, as a function of the address of index 0, where it is whole."""
        ring, source = self.packing.ring, self.packing.source
        first = strided(w, self.start, source.free)

        def fetch(base: Value) -> Parts:
            at = element_address(w, base, first, source.dtype)
            return loaded(w, ring, source.dtype, at, ring.lanes)

        return fetch

    def parted(self, w: Writer) -> Fetch:
        """The same where it is not, or where the set ends before it does."""
        ring, source = self.packing.ring, self.packing.source
        size, lanes = source.free_size, ring.lanes
        places = counted("i64", lanes)
        left = w.binary("sub", w.int(size), self.start)
        is_in_set = w.compare("icmp slt", places, w.splat(left, lanes))
        pieces: list[tuple[Value, Value]] = []  # where lane 0 would be, the lanes that there are
        begin = w.int(0)
        for r in range(runs_met(self.packing)):
            end = w.binary("add", self.left, w.int(r * source.free[-1][0]))
            index = w.intrinsic(
                "llvm.umin", "i64", w.binary("add", self.start, begin), w.int(size - 1)
            )
            mask = w.compare("icmp slt", places, w.splat(end, lanes))
            if r:
                behind = w.compare("icmp sge", places, w.splat(begin, lanes))
                mask = w.binary("and", mask, behind)
            at = w.binary("sub", strided(w, index, source.free), begin)
            pieces.append((at, w.binary("and", mask, is_in_set)))
            begin = end

        def fetch(base: Value) -> Parts:
            found: Parts = ()
            for first, mask in pieces:
                at = element_address(w, base, first, source.dtype)
                parts = loaded(w, ring, source.dtype, at, lanes, mask)
                if found:
                    parts = tuple(w.select(mask, *p) for p in zip(parts, found, strict=True))
                found = parts
            return found

        return fetch
