"""Results beside padding: those of a convolution whose windows leave the base, and NaN among them.

A unit is a chunk of features at one run of positions, in all images; a run lies along the longest
spatial dimension. All of a run is looked at where the run is at the border, else only its ends.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct

from hlo.backend.ir.arithmetic import add, split_index, times
from hlo.backend.ir.control import loop, ranged, when
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.convolutions.form import Form, is_nan
from hlo.backend.kernels.contraction.problem.ring import element_address, loaded


class Position(Struct, frozen=True):
    """A position in one image: its index per dimension of the result, features left out; the offset
    of its first feature; the chunk of features."""

    index: dict[int, Value]
    offset: Value
    chunk: Value


Meet = Callable[[Position], None]


class Border:
    """The results of a form, in the memory that the kernel being written finds at `result`.

    found: an i64 of the kernel's own.
    """

    def __init__(self, w: Writer, form: Form, result: Value, found: Value) -> None:
        self.w, self.form, self.result, self.found = w, form, result, found
        self.along = max(form.spatial, key=lambda s: s.out)
        self.outer = [s for s in form.spatial if s is not self.along]

    @property
    def units(self) -> int:
        return self.form.chunks * prod(self.form.out[s.out] for s in self.outer)

    def each_nan(self, unit: Value, meet: Meet, after: Callable[[], None] | None = None) -> None:
        """Meet the unit's positions where some feature is NaN. after: what follows a position that
        was looked at in all images."""
        w, dims = self.w, self.form.out
        chunk, *parts = split_index(w, unit, [self.form.chunks, *(dims[s.out] for s in self.outer)])
        index = {s.out: part for s, part in zip(self.outer, parts, strict=True)}
        size = dims[self.along.out]
        low, high = self._ends(index)
        run, starts = self.form.starts(w, chunk)
        features = [add(w, times(w, run, self.form.run), start) for start in starts]

        def position(p: Value) -> None:
            place = {**index, self.along.out: p}
            self._position(place, chunk, features, meet)
            if after is not None:
                after()

        between = w.binary("sub", high, low)  # what is no border's

        def end(number: Value) -> None:
            is_low = w.compare("icmp ult", number, low)
            position(w.select(is_low, number, add(w, number, between)))

        def ends() -> None:
            ranged(w, w.int(0), w.binary("sub", w.int(size), between), end)

        n = self.form.labels
        if not self.form.strides[2][n.out_feature] > self.form.strides[2][self.along.out] == 1:
            ends()
            return
        self._scan_rows(index, features)
        when(w, w.compare("icmp ne", w.load(self.found, "i64", 8), w.int(0)), ends)

    def _ends(self, index: dict[int, Value]) -> tuple[Value, Value]:
        """Where a run's inner positions begin and end: at its own end if it is at the border."""
        w = self.w
        low, high = (w.int(v) for v in self.form.inside(self.along))
        border: Value | None = None
        for s in self.outer:
            first, end = self.form.inside(s)
            moved = w.binary("sub", index[s.out], w.int(first))
            out = w.compare("icmp uge", moved, w.int(end - first))
            border = out if border is None else w.binary("or", border, out)
        if border is not None:
            size = w.int(self.form.out[self.along.out])
            low, high = (w.select(border, size, v) for v in (low, high))
        return low, high

    def _offset(self, index: dict[int, Value]) -> Value:
        """Of a result, along the dimensions that the index has."""
        offset = self.w.int(0)
        for d, part in index.items():
            offset = add(self.w, offset, times(self.w, part, self.form.strides[2][d]))
        return offset

    def _scan_rows(self, index: dict[int, Value], features: list[Value]) -> None:
        """Note whether there is NaN in a chunk's runs, of which each is a row of memory."""
        w, form, ring = self.w, self.form, self.form.ring
        size = form.out[self.along.out]
        lanes = min(ring.lanes, 1 << (size.bit_length() - 1))

        def vector(row: Value, v: Value, before: list[Value]) -> list[Value]:
            start = w.intrinsic("llvm.umin", "i64", times(w, v, lanes), w.int(size - lanes))
            address = element_address(w, self.result, add(w, row, start), form.dtype)
            found = is_nan(w, loaded(w, ring, form.dtype, address, lanes))
            return [w.binary("or", before[0], found)]

        def feature(at: Value, before: list[Value]) -> list[Value]:
            count = w.int(-(-size // lanes))
            return loop(w, count, before, lambda v, carried: vector(at, v, carried))

        def image(b: Value, before: list[Value]) -> list[Value]:
            at = self._offset({**index, form.labels.out_batch: b})
            stride = form.strides[2][form.labels.out_feature]
            for first in features:
                row = add(w, at, times(w, first, stride))
                before = rows(row, stride, before)
            return before

        def rows(row: Value, stride: int, before: list[Value]) -> list[Value]:
            def one(k: Value, carried: list[Value]) -> list[Value]:
                return feature(add(w, row, times(w, k, stride)), carried)

            return loop(w, w.int(form.lanes), before, one)

        none = w.zero(f"<{lanes} x i1>" if lanes > 1 else "i1")
        (found,) = loop(w, w.int(form.images), [none], image)
        w.store(w.cast("zext", w.any_lane(found), "i64"), self.found, 8)

    def _position(
        self, place: dict[int, Value], chunk: Value, features: list[Value], meet: Meet
    ) -> None:
        """One in all images, of which some features may be NaN."""
        w, form = self.w, self.form
        stride = form.strides[2][form.labels.out_feature]

        def image(b: Value, _: list[Value]) -> list[Value]:
            index = {**place, form.labels.out_batch: b}
            at = self._offset(index)
            some: Value | None = None
            for first in features:
                start = add(w, at, times(w, first, stride))
                nan = is_nan(w, form.load(w, self.result, 2, start, stride))
                some = nan if some is None else w.binary("or", some, nan)
            assert some is not None
            when(w, w.any_lane(some), lambda: meet(Position(index, at, chunk)))
            return []

        loop(w, w.int(form.images), [], image)
