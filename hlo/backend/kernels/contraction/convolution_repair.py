"""What a padded convolution computed as NaN, computed once more without its padding.

The product multiplies the zeros that stand for positions outside of the base, and zero times an
infinite kernel is NaN. Only results whose window leaves the base can have met one: those of them
that are NaN are summed again (convolution_resum), where there is a base element (OP_SEMANTICS.md
11). A result that is NaN rightly stays NaN. Zero times a number is nothing wrong: where all of the
kernel is finite, or all of it is NaN, nothing is summed again. That is looked up when the first NaN
is met.
"""

from __future__ import annotations

from math import prod

from hlo.backend.codegen.definitions import symbol
from hlo.backend.codegen.target import Target
from hlo.backend.codegen.writer import Value, Writer
from hlo.backend.kernels.contraction.convolution import is_swapped
from hlo.backend.kernels.contraction.convolution_resum import Form, Spatial, is_nan, resum_function
from hlo.backend.kernels.contraction.lane_masks import below, iota
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
from hlo.backend.kernels.contraction.ring import element_address, loaded
from hlo.backend.kernels.kernel import Kernel
from hlo.ir.instruction import Instruction


def repair_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """buffers: lhs, rhs, result. A unit is one run of positions, all their features; None where NaN
    cannot be."""
    if instruction.shape.dtype.is_integral or instruction.shape.dtype.is_pred:
        return None
    repair = _Repair(Form.of(instruction, target))
    repair.begin()
    ranged(repair.w, Value("%begin", "i64"), Value("%end", "i64"), repair.run)
    repair.end()
    w, units = repair.w, prod(instruction.shape.dims[d] for d in repair.outer)
    return Kernel(
        kernel_text(w),
        units,
        tuple(w.declarations.values()),
        functions=(repair.resum,),
        bytes_moved=64 * units,
    )


UNKNOWN, RIGHT, OTHER = 0, 1, 2  # what is known of what meets zeros


class _Repair:
    """The kernel being written. A run: positions along the last dimension that is not of features,
    if that is spatial or innermost, so that a border is one piece of it."""

    def __init__(self, form: Form) -> None:
        self.w = Writer()
        self.form = form
        self.ring, self.dtype, self.shapes = form.ring, form.dtype, form.shapes
        self.memory = [buffer_address(self.w, k) for k in range(3)]
        self.spatial = form.spatial
        n, last = form.labels, len(form.out) - 1
        self.has_features_last = n.out_feature == last
        self.along: int | None = last
        if self.has_features_last:
            self.along = last - 1 if last - 1 in n.out_spatial else None
        self.outer = [d for d in range(last + 1) if d not in (n.out_feature, self.along)]
        self.resum = resum_function(form)

    def begin(self) -> None:
        """What the range of units knows of what meets zeros, and the positions that wait."""
        w = self.w
        self.known = w.assign("ptr", "alloca i64, align 8")
        self.found = w.assign("ptr", "alloca i64, align 8")
        self.waiting = w.assign("ptr", "alloca i64, align 8")
        size = self.form.positions * self.form.entry
        self.entries = w.assign("ptr", f"alloca [{size} x i64], align 8")
        w.store(w.int(UNKNOWN), self.known, 8)
        w.store(w.int(0), self.waiting, 8)

    def run(self, unit: Value) -> None:
        """All of a run at the border, else only its ends: before `low` and from `high` on."""
        w, dims = self.w, self.form.out
        parts = split_index(w, unit, [dims[d] for d in self.outer])
        index = dict(zip(self.outer, parts, strict=True))
        size = 1 if self.along is None else dims[self.along]
        border: Value | None = None
        first, last = 0, size
        for s in self.spatial:
            low, high = self._inside(s)
            if s.out == self.along:
                first, last = low, high
                continue
            moved = w.binary("sub", index[s.out], w.int(low))
            out = w.compare("icmp uge", moved, w.int(high - low))
            border = out if border is None else w.binary("or", border, out)
        before, after = w.int(first), w.int(last)
        if border is not None:
            before, after = (w.select(border, w.int(size), v) for v in (before, after))

        def part(k: Value, _: list[Value]) -> list[Value]:
            is_first = w.compare("icmp eq", k, w.int(0))
            start = w.select(is_first, w.int(0), after)
            self._scan(index, start, w.select(is_first, before, w.int(size)))
            return []

        loop(w, w.int(2), [], part)

    def _inside(self, s: Spatial) -> tuple[int, int]:
        """The positions in the result, from first to end, whose windows do not leave the base."""
        w, size = s.window, self.shapes[0].dims[s.lhs]
        outputs = self.form.out[s.out]
        if w.base_dilation > 1 or is_swapped(w, size):
            return outputs, outputs
        low = min(max(0, -(-w.pad_low // w.stride)), outputs)
        reach = (w.size - 1) * w.window_dilation
        end = (size - 1 - reach + w.pad_low) // w.stride + 1
        return low, max(low, min(end, outputs))

    def _offset(self, index: dict[int, Value]) -> Value:
        """Of a result, along the dimensions that the index has."""
        offset = self.w.int(0)
        for d, part in index.items():
            offset = add(self.w, offset, times(self.w, part, self.form.strides[2][d]))
        return offset

    def _scan(self, index: dict[int, Value], first: Value, end: Value) -> None:
        """Look for NaN in a part of a run."""
        w, form = self.w, self.form
        run = element_address(w, self.memory[2], self._offset(index), self.dtype)
        w.store(w.int(0), self.found, 8)
        if self.has_features_last:
            self._scan_row(run, times(w, first, form.features), times(w, end, form.features))
        else:

            def feature(f: Value, _: list[Value]) -> list[Value]:
                moved = times(w, f, form.strides[2][form.labels.out_feature])
                self._scan_row(element_address(w, run, moved, self.dtype), first, end)
                return []

            loop(w, w.int(form.features), [], feature)
        some = w.compare("icmp ne", w.load(self.found, "i64", 8), w.int(0))
        when(w, some, lambda: self._each_if_wrong(index, first, end))

    def _scan_row(self, row: Value, first: Value, end: Value) -> None:
        """Note whether there is NaN among neighbours, a vector at a time."""
        w, lanes = self.w, self.ring.lanes
        reach = w.binary("add", w.binary("sub", end, first), w.int(lanes - 1))

        def vector(v: Value) -> None:
            start = add(w, times(w, v, lanes), first)
            places = w.binary("add", w.splat(start, lanes), iota(lanes, "i64"))
            mask = w.compare("icmp slt", places, w.splat(end, lanes))
            address = element_address(w, row, start, self.dtype)
            found = is_nan(w, loaded(w, self.ring, self.dtype, address, lanes, mask))
            some = w.intrinsic("llvm.vector.reduce.or", "i1", found, suffix=f"v{lanes}i1")
            when(w, some, lambda: w.store(w.int(1), self.found, 8))

        ranged(w, w.int(0), w.binary("udiv", reach, w.int(lanes)), vector)

    def _each_if_wrong(self, index: dict[int, Value], first: Value, end: Value) -> None:
        """Nothing to do where only numbers have met zeros."""
        w = self.w
        unknown = w.compare("icmp eq", w.load(self.known, "i64", 8), w.int(UNKNOWN))
        when(w, unknown, self._look)
        wrong = w.compare("icmp eq", w.load(self.known, "i64", 8), w.int(OTHER))

        def position(p: Value) -> None:
            self._position(index if self.along is None else {**index, self.along: p})

        when(w, wrong, lambda: ranged(w, first, end, position))

    def _position(self, index: dict[int, Value]) -> None:
        """One of which some features may be NaN: it waits until there are enough of them."""
        w, form = self.w, self.form
        run, lanes = self._offset(index), form.lanes
        stride = form.strides[2][form.labels.out_feature]

        def vector(v: Value) -> None:
            at = add(w, run, times(w, form.feature_start(w, v), stride))
            parts = form.load(w, self.memory[2], 2, at, stride)
            found = is_nan(w, parts)
            if lanes > 1:
                found = w.intrinsic("llvm.vector.reduce.or", "i1", found, suffix=f"v{lanes}i1")
            when(w, found, lambda: w.store(w.int(1), self.found, 8))

        w.store(w.int(0), self.found, 8)
        ranged(w, w.int(0), w.int(-(-form.features // lanes)), vector)
        some = w.compare("icmp ne", w.load(self.found, "i64", 8), w.int(0))
        when(w, some, lambda: self._wait(run, index))

    def _wait(self, run: Value, index: dict[int, Value]) -> None:
        w, form = self.w, self.form
        count = w.load(self.waiting, "i64", 8)
        entry = advanced(w, self.entries, times(w, count, form.entry), "i64")
        n = form.labels
        image = times(w, index[n.out_batch], form.strides[0][n.lhs_batch])
        for k, value in enumerate((run, image, *(index[s.out] for s in self.spatial))):
            w.store(value, advanced(w, entry, k, "i64"), 8)
        following = w.binary("add", count, w.int(1))
        w.store(following, self.waiting, 8)
        full = w.compare("icmp eq", following, w.int(form.positions))
        when(w, full, self._resum)

    def _resum(self) -> None:
        """Those that wait."""
        w, name = self.w, symbol(self.resum)
        arguments = [*self.memory, self.entries]
        w.declare("void", name, ["ptr"] * len(arguments))
        w.emit(f"call void @{name}({', '.join(a.typed for a in arguments)})")
        w.store(w.int(0), self.waiting, 8)

    def end(self) -> None:
        """The rest of those that wait; the last one fills what entries are left."""
        w, form = self.w, self.form
        count = w.load(self.waiting, "i64", 8)

        def fill(k: Value) -> None:
            for part in range(form.entry):
                place = add(w, times(w, k, form.entry), w.int(part))
                before = w.binary("sub", place, w.int(form.entry))
                value = w.load(advanced(w, self.entries, before, "i64"), "i64", 8)
                w.store(value, advanced(w, self.entries, place, "i64"), 8)

        def rest() -> None:
            ranged(w, count, w.int(form.positions), fill)
            self._resum()

        when(w, w.compare("icmp ne", count, w.int(0)), rest)

    def _look(self) -> None:
        """Whether what meets zeros is finite: the kernel; and the base where that is walked."""
        w, (lhs, _, _) = self.w, self.shapes
        swapped = any(is_swapped(s.window, lhs.dims[s.lhs]) for s in self.spatial)
        some, has_numbers = self._others(1)
        if swapped:
            some = w.binary("or", some, self._others(0)[0])
        elif all(self._always_meets(s) for s in self.spatial):
            some = w.binary("and", some, has_numbers)  # else every product is NaN, and rightly
        w.store(w.select(some, w.int(OTHER), w.int(RIGHT)), self.known, 8)

    def _always_meets(self, s: Spatial) -> bool:
        """Whether each window meets an element of the base."""
        w, size = s.window, self.shapes[0].dims[s.lhs]
        last = (self.form.out[s.out] - 1) * w.stride - w.pad_low
        is_dense = w.base_dilation == w.window_dilation == 1
        return is_dense and w.size > w.pad_low and last < size

    def _others(self, side: int) -> tuple[Value, Value]:
        """Whether a factor has what is not finite (x - x is NaN), and what is not NaN."""
        w, ring, lanes, shape = self.w, self.ring, self.ring.lanes, self.shapes[side]
        size = prod(shape.dims)

        def vector(v: Value, before: list[Value]) -> list[Value]:
            start = times(w, v, lanes)
            mask = below(w, start, size, lanes) if size % lanes else None
            address = element_address(w, self.memory[side], start, shape.dtype)
            values = loaded(w, ring, shape.dtype, address, lanes, mask)
            differences = tuple(w.binary("fsub", x, x) for x in values)
            ones = w.splat(Value("true", "i1"), lanes)
            number = w.binary("xor", is_nan(w, values), ones)
            number = number if mask is None else w.binary("and", number, mask)
            found = (is_nan(w, differences), number)
            return [w.binary("or", a, b) for a, b in zip(before, found, strict=True)]

        none = w.zero(f"<{lanes} x i1>")
        both = loop(w, w.int(-(-size // lanes)), [none, none], vector)
        some, number = (
            w.intrinsic("llvm.vector.reduce.or", "i1", v, suffix=f"v{lanes}i1") for v in both
        )
        return some, number
