"""What a padded convolution computed as NaN, computed once more without its padding.

The product multiplies the zeros that stand for positions outside of the base, and zero times an
infinite kernel is NaN. Only results whose window leaves the base can have met one: those of them
that are NaN are summed again (convolution_resum), where there is a base element (OP_SEMANTICS.md
11). A result that is NaN rightly stays NaN. Zero times a number is nothing wrong: where all that
met zeros is finite, or all of the kernel is NaN, nothing is summed again. Of the two signs that
something is to be done, a number in the kernel that is not finite and a result that is NaN, the one
that takes less to look for is looked for first.
"""

from __future__ import annotations

from math import prod

from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.convolution_form import Form, Spatial, is_nan
from hlo.backend.kernels.contraction.convolution_panel import Panel
from hlo.backend.kernels.contraction.convolution_resum import resum_function
from hlo.backend.kernels.contraction.loops import (
    add,
    advanced,
    buffer_address,
    kernel_text,
    loop,
    ranged,
    split_index,
    times,
    when,
)
from hlo.backend.kernels.contraction.not_finite import note_not_finite, note_number, vectors_of
from hlo.backend.kernels.contraction.ring import element_address, loaded
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON

CHECK = 3  # vectors that are read while a vector of results is fetched and tested
FEW_POSITIONS = 16  # of which the sums take no longer than reading a kernel
LARGE_BYTES = COMMON.second_cache.bytes // 16  # of a kernel that is read from a far cache


def repair_kernel(
    instruction: Instruction, target: Target, sides: tuple[int, ...]
) -> Kernel | None:
    """buffers: lhs, rhs, result, scratch if any. sides: the factors that meet zeros. A unit is a
    chunk of features at one run of positions, in all images; None where NaN cannot be."""
    if instruction.shape.dtype.is_integral or instruction.shape.dtype.is_pred:
        return None
    repair = _Repair(Form.of(instruction, target), sides)
    repair.write()
    return repair.kernel()


UNKNOWN, RIGHT, OTHER = 0, 1, 2  # what is known of what meets zeros


class _Repair:
    """The kernel being written. A run: positions along the last spatial dimension."""

    def __init__(self, form: Form, sides: tuple[int, ...]) -> None:
        self.w = Writer()
        self.form, self.sides = form, sides
        self.ring, self.dtype, self.shapes = form.ring, form.dtype, form.shapes
        self.panels = [Panel.of(form, side) for side in (0, 1)]
        buffers = 4 if any(self.panels) else 3
        self.memory = [buffer_address(self.w, k) for k in range(buffers)]
        self.along = max(form.spatial, key=lambda s: s.out)
        self.outer = [s for s in form.spatial if s is not self.along]
        self.resum = resum_function(form)
        self.packings = [panel.packing() if panel else None for panel in self.panels]

    def kernel(self) -> Kernel:
        form, w = self.form, self.w
        units = form.chunks * prod(form.out[s.out] for s in self.outer)
        looked = sum(vectors_of(self.ring, self.shapes[side]) for side in self.sides)
        looked *= self.ring.parts * self.ring.lanes * self.ring.scalar_bytes
        return Kernel(
            kernel_text(w),
            units,
            tuple(w.declarations.values()),
            functions=(self.resum, *(p for p in self.packings if p)),
            bytes_moved=form.border * form.features * self.shapes[2].dtype.item_bytes,
            scratch_bytes=sum(p.size_bytes for p in self.panels if p),
            packed_bytes=looked,
        )

    @property
    def _looks_first(self) -> bool:
        """Whether the factors take less reading than the results beside padding."""
        looked = sum(vectors_of(self.ring, self.shapes[side]) for side in self.sides)
        features = self.form.features // self.form.lanes
        return looked <= CHECK * self.form.border * max(features, 1)

    @property
    def _reads_little(self) -> bool:
        """Whether to sum again takes no longer than to look through the factors."""
        positions = self.form.images * prod(self.form.out[s.out] for s in self.form.spatial)
        looked = sum(self.shapes[side].size_bytes for side in self.sides)
        return positions < FEW_POSITIONS and looked >= LARGE_BYTES

    def write(self) -> None:
        w = self.w
        self.found = w.assign("ptr", "alloca i64, align 8")
        self.known = w.assign("ptr", "alloca i64, align 8")  # what is, of what meets zeros
        self.waiting = w.assign("ptr", "alloca i64, align 8")  # how many positions do
        self.chunk = w.assign("ptr", "alloca i64, align 8")  # of their features
        self.packed = w.assign("ptr", "alloca i64, align 8")  # the chunk that is in the panels
        size = self.form.positions * self.form.entry
        self.entries = w.assign("ptr", f"alloca [{size} x i64], align 8")
        w.store(w.int(OTHER if self._reads_little else UNKNOWN), self.known, 8)
        for memory, number in ((self.waiting, 0), (self.chunk, 0), (self.packed, -1)):
            w.store(w.int(number), memory, 8)
        begin, end = Value("%begin", "i64"), Value("%end", "i64")

        def units() -> None:
            ranged(w, begin, end, self._unit)
            when(w, self._is_other(self.waiting, 0), self._flush)

        if not self._looks_first:
            units()
            return
        self._look()
        when(w, w.compare("icmp eq", w.load(self.known, "i64", 8), w.int(OTHER)), units)

    def _is_other(self, memory: Value, number: int) -> Value:
        """Whether memory holds another number."""
        return self.w.compare("icmp ne", self.w.load(memory, "i64", 8), self.w.int(number))

    def _unit(self, unit: Value) -> None:
        """All of a run at the border, else only its ends: before `low` and from `high` on."""
        w, dims = self.w, self.form.out
        chunk, *parts = split_index(w, unit, [self.form.chunks, *(dims[s.out] for s in self.outer)])
        index = {s.out: part for s, part in zip(self.outer, parts, strict=True)}
        size = dims[self.along.out]
        before, after = (w.int(v) for v in self.form.inside(self.along))
        border: Value | None = None
        for s in self.outer:
            low, high = self.form.inside(s)
            moved = w.binary("sub", index[s.out], w.int(low))
            out = w.compare("icmp uge", moved, w.int(high - low))
            border = out if border is None else w.binary("or", border, out)
        if border is not None:
            before, after = (w.select(border, w.int(size), v) for v in (before, after))
        run, starts = self.form.starts(w, chunk)
        features = [add(w, times(w, run, self.form.run), start) for start in starts]

        def ends() -> None:
            ranged(w, w.int(0), before, lambda p: self._position(index, p, chunk, features))
            ranged(w, after, w.int(size), lambda p: self._position(index, p, chunk, features))

        def look_closer() -> None:
            self._scan_rows(index, features)
            when(w, self._is_other(self.found, 0), ends)

        n = self.form.labels
        is_scanned = self.form.strides[2][n.out_feature] > self.form.strides[2][self.along.out] == 1
        when(w, self._is_other(self.known, RIGHT), look_closer if is_scanned else ends)

    def _offset(self, index: dict[int, Value]) -> Value:
        """Of a result, along the dimensions that the index has."""
        offset = self.w.int(0)
        for d, part in index.items():
            offset = add(self.w, offset, times(self.w, part, self.form.strides[2][d]))
        return offset

    def _scan_rows(self, index: dict[int, Value], features: list[Value]) -> None:
        """Note whether there is NaN in a chunk's runs, of which each is a row of memory."""
        w, form, ring = self.w, self.form, self.ring
        size = form.out[self.along.out]
        lanes = min(ring.lanes, 1 << (size.bit_length() - 1))

        def vector(row: Value, v: Value, before: list[Value]) -> list[Value]:
            start = w.intrinsic("llvm.umin", "i64", times(w, v, lanes), w.int(size - lanes))
            address = element_address(w, self.memory[2], add(w, row, start), self.dtype)
            found = is_nan(w, loaded(w, ring, self.dtype, address, lanes))
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
        if lanes > 1:
            found = w.intrinsic("llvm.vector.reduce.or", "i1", found, suffix=f"v{lanes}i1")
        w.store(w.cast("zext", found, "i64"), self.found, 8)

    def _position(
        self, index: dict[int, Value], p: Value, chunk: Value, features: list[Value]
    ) -> None:
        """One in all images, of which some features may be NaN."""
        w, form = self.w, self.form
        lanes, stride = form.lanes, form.strides[2][form.labels.out_feature]

        def image(b: Value, _: list[Value]) -> list[Value]:
            place = {**index, self.along.out: p, form.labels.out_batch: b}
            at = self._offset(place)
            some: Value | None = None
            for first in features:
                start = add(w, at, times(w, first, stride))
                nan = is_nan(w, form.load(w, self.memory[2], 2, start, stride))
                some = nan if some is None else w.binary("or", some, nan)
            assert some is not None
            if lanes > 1:
                some = w.intrinsic("llvm.vector.reduce.or", "i1", some, suffix=f"v{lanes}i1")
            when(w, some, lambda: self._wait_if_wrong(at, place, chunk))
            return []

        loop(w, w.int(form.images), [], image)
        if form.is_uniform:
            when(w, self._is_other(self.waiting, 0), self._flush)

    def _wait_if_wrong(self, at: Value, place: dict[int, Value], chunk: Value) -> None:
        """Nothing to do where only numbers have met zeros."""
        w = self.w
        if not self._looks_first:
            unknown = w.compare("icmp eq", w.load(self.known, "i64", 8), w.int(UNKNOWN))
            when(w, unknown, self._look)
        wrong = w.compare("icmp eq", w.load(self.known, "i64", 8), w.int(OTHER))
        when(w, wrong, lambda: self._wait(at, place, chunk))

    def _wait(self, at: Value, place: dict[int, Value], chunk: Value) -> None:
        """A position waits until there are enough of one chunk."""
        w, form, n = self.w, self.form, self.form.labels
        other = w.compare("icmp ne", w.load(self.chunk, "i64", 8), chunk)
        some = self._is_other(self.waiting, 0)
        when(w, w.binary("and", other, some), self._flush)
        w.store(chunk, self.chunk, 8)
        count = w.load(self.waiting, "i64", 8)
        entry = advanced(w, self.entries, times(w, count, form.entry), "i64")
        for k, value in enumerate((at, place[n.out_batch], *(place[s.out] for s in form.spatial))):
            w.store(value, advanced(w, entry, k, "i64"), 8)
        following = w.binary("add", count, w.int(1))
        w.store(following, self.waiting, 8)
        full = w.compare("icmp eq", following, w.int(form.positions))
        when(w, full, self._sum_again)

    def _flush(self) -> None:
        """The rest of those that wait; the last one fills what entries are left."""
        w, form = self.w, self.form

        def fill(k: Value) -> None:
            for part in range(form.entry):
                place = add(w, times(w, k, form.entry), w.int(part))
                before = w.binary("sub", place, w.int(form.entry))
                value = w.load(advanced(w, self.entries, before, "i64"), "i64", 8)
                w.store(value, advanced(w, self.entries, place, "i64"), 8)

        ranged(w, w.load(self.waiting, "i64", 8), w.int(form.positions), fill)
        self._sum_again()

    def _sum_again(self) -> None:
        """Those that wait."""
        w = self.w
        chunk = w.load(self.chunk, "i64", 8)
        factors = self.memory[:2]
        if any(self.panels):
            old = w.compare("icmp ne", w.load(self.packed, "i64", 8), chunk)
            when(w, old, lambda: self._pack(chunk))
            w.store(chunk, self.packed, 8)
            factors = [self._panel(side) for side in (0, 1)]
        self._call(self.resum, [*factors, self.memory[2], self.entries, chunk])
        w.store(w.int(0), self.waiting, 8)

    def _panel(self, side: int) -> Value:
        """Where a factor's panel is; the factor itself if it has none."""
        if self.panels[side] is None:
            return self.memory[side]
        first = self.panels[0]
        before = first.size_bytes if side == 1 and first else 0
        return advanced(self.w, self.memory[3], before, "i8")

    def _pack(self, chunk: Value) -> None:
        for side, packing in enumerate(self.packings):
            if packing is not None:
                self._call(packing, [self.memory[side], self._panel(side), chunk])

    def _call(self, function: Kernel, arguments: list[Value]) -> None:
        w, name = self.w, symbol(function)
        w.declare("void", name, [a.type for a in arguments])
        w.emit(f"call void @{name}({', '.join(a.typed for a in arguments)})")

    def _look(self) -> None:
        """Whether what meets zeros is finite."""
        w, found = self.w, self.found
        w.store(w.int(0), found, 8)
        for side in self.sides:
            note_not_finite(w, self.ring, self.memory[side], self.shapes[side], found)
        if self.sides == (1,) and all(self._always_meets(s) for s in self.form.spatial):

            def number() -> None:  # else every product is NaN, and rightly
                w.store(w.int(0), found, 8)
                note_number(w, self.ring, self.memory[1], self.shapes[1], found)

            when(w, self._is_other(found, 0), number)
        w.store(w.select(self._is_other(found, 0), w.int(OTHER), w.int(RIGHT)), self.known, 8)

    def _always_meets(self, s: Spatial) -> bool:
        """Whether each window meets an element of the base."""
        w, size = s.window, self.shapes[0].dims[s.lhs]
        last = (self.form.out[s.out] - 1) * w.stride - w.pad_low
        is_dense = w.base_dilation == w.window_dilation == 1
        return is_dense and w.size > w.pad_low and last < size
