"""What a padded convolution computed as NaN, computed once more without its padding.

The product multiplies the zeros that stand for positions outside of the base, and zero times an
infinite kernel is NaN. Only results whose window leaves the base can have met one: those of them
that are NaN are summed again, position by position, where there is a base element (OP_SEMANTICS.md
11). A result that is NaN rightly stays NaN. Zero times a number is nothing wrong: where all of the
kernel is finite, or all of it is NaN, nothing is summed again. That is looked up when the first NaN
is met.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.window import Window, WindowDim
from hlo.backend.codegen.target import Target
from hlo.backend.codegen.types import storage_scalar
from hlo.backend.codegen.writer import Value, Writer
from hlo.backend.kernels.contraction.axes import row_major_strides
from hlo.backend.kernels.contraction.convolution import is_swapped
from hlo.backend.kernels.contraction.lane_masks import below, iota
from hlo.backend.kernels.contraction.loops import (
    add,
    buffer_address,
    kernel_text,
    loop,
    ranged,
    split_index,
    times,
    when,
)
from hlo.backend.kernels.contraction.ring import Parts, element_address, loaded, narrowed, ring_of
from hlo.backend.kernels.kernel import Kernel
from hlo.ir.instruction import Instruction
from hlo.ops.table import attribute


class _Spatial(Struct, frozen=True):
    """A spatial dimension: its window, and its places in base, kernel and result."""

    window: WindowDim
    lhs: int
    rhs: int
    out: int


def repair_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """buffers: lhs, rhs, result. A unit is one run of the result; None where NaN cannot be."""
    if instruction.shape.dtype.is_integral or instruction.shape.dtype.is_pred:
        return None
    repair = _Repair(instruction, target)
    repair.begin()
    ranged(repair.w, Value("%begin", "i64"), Value("%end", "i64"), repair.run)
    w, units = repair.w, prod(instruction.shape.dims[: repair.outer])
    return Kernel(kernel_text(w), units, tuple(w.declarations.values()), bytes_moved=64 * units)


UNKNOWN, RIGHT, OTHER = 0, 1, 2  # what is known of what meets zeros


class _Repair:
    """The kernel being written. A run: the last dimension, and the one before it if that is spatial
    and the last is not, so that a border is one piece of it."""

    def __init__(self, instruction: Instruction, target: Target) -> None:
        self.w = Writer()
        self.instruction = instruction
        self.dtype = instruction.shape.dtype
        self.ring = ring_of(self.dtype, target)
        self.shapes = [*(o.shape for o in instruction.operands), instruction.shape]
        self.memory = [buffer_address(self.w, k) for k in range(3)]
        self.labels: DimLabels = attribute(instruction, "dim_labels")  # type: ignore[assignment]  # its kind
        window: Window = attribute(instruction, "window") or Window()  # type: ignore[assignment]  # its kind
        n = self.labels
        places = zip(window.dims, n.lhs_spatial, n.rhs_spatial, n.out_spatial, strict=True)
        self.spatial = [_Spatial(*place) for place in places]
        last = instruction.shape.rank - 1
        joined = last not in n.out_spatial and last - 1 in n.out_spatial
        self.outer = last - 1 if joined else last

    def begin(self) -> None:
        """What the range of units knows of what meets zeros, in a place of its own."""
        self.known = self.w.assign("ptr", "alloca i64, align 8")
        self.w.store(self.w.int(UNKNOWN), self.known, 8)

    def run(self, unit: Value) -> None:
        """All of a run at the border, else only its ends: before `low` and from `high` on."""
        w, dims = self.w, self.instruction.shape.dims
        index = split_index(w, unit, dims[: self.outer]) if self.outer else []
        size = prod(dims[self.outer :])
        border: Value | None = None
        first, last = 0, size
        for s in self.spatial:
            low, high = self._inside(s)
            if s.out >= self.outer:
                step = size // dims[s.out]
                first, last = low * step, high * step
                continue
            moved = w.binary("sub", index[s.out], w.int(low))
            out = w.compare("icmp uge", moved, w.int(high - low))
            border = out if border is None else w.binary("or", border, out)
        before, after = w.int(first), w.int(last)
        if border is not None:
            before, after = (w.select(border, w.int(size), v) for v in (before, after))
        memory = element_address(w, self.memory[2], times(w, unit, size), self.dtype)

        def part(k: Value, _: list[Value]) -> list[Value]:
            is_first = w.compare("icmp eq", k, w.int(0))
            start = w.select(is_first, w.int(0), after)
            self._scan(memory, index, start, w.select(is_first, before, w.int(size)))
            return []

        loop(w, w.int(2), [], part)

    def _inside(self, s: _Spatial) -> tuple[int, int]:
        """The positions in the result, from first to end, whose windows do not leave the base."""
        w, size = s.window, self.shapes[0].dims[s.lhs]
        outputs = self.instruction.shape.dims[s.out]
        if w.base_dilation > 1 or is_swapped(w, size):
            return outputs, outputs
        low = min(max(0, -(-w.pad_low // w.stride)), outputs)
        reach = (w.size - 1) * w.window_dilation
        end = (size - 1 - reach + w.pad_low) // w.stride + 1
        return low, max(low, min(end, outputs))

    def _scan(self, run: Value, index: list[Value], first: Value, end: Value) -> None:
        """Look for NaN in a part of a run, a vector at a time."""
        w, lanes = self.w, self.ring.lanes
        reach = w.binary("add", w.binary("sub", end, first), w.int(lanes - 1))

        def vector(v: Value) -> None:
            start = add(w, times(w, v, lanes), first)
            places = w.binary("add", w.splat(start, lanes), iota(lanes, "i64"))
            mask = w.compare("icmp slt", places, w.splat(end, lanes))
            address = element_address(w, run, start, self.dtype)
            found = self._nan(loaded(w, self.ring, self.dtype, address, lanes, mask))
            some = w.intrinsic("llvm.vector.reduce.or", "i1", found, suffix=f"v{lanes}i1")
            when(w, some, lambda: self._each_if_wrong(run, index, start, end))

        ranged(w, w.int(0), w.binary("udiv", reach, w.int(lanes)), vector)

    def _nan(self, parts: Parts) -> Value:
        found = [self.w.compare("fcmp uno", p, p) for p in parts]
        return found[0] if len(found) == 1 else self.w.binary("or", *found)

    def _each_if_wrong(self, run: Value, index: list[Value], start: Value, end: Value) -> None:
        """Nothing to do where only numbers have met zeros."""
        w = self.w
        unknown = w.compare("icmp eq", w.load(self.known, "i64", 8), w.int(UNKNOWN))
        when(w, unknown, self._look)
        wrong = w.compare("icmp eq", w.load(self.known, "i64", 8), w.int(OTHER))
        when(w, wrong, lambda: self._each(run, index, start, end))

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

    def _always_meets(self, s: _Spatial) -> bool:
        """Whether each window meets an element of the base."""
        w, size = s.window, self.shapes[0].dims[s.lhs]
        last = (self.instruction.shape.dims[s.out] - 1) * w.stride - w.pad_low
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
            number = w.binary("xor", self._nan(values), ones)
            number = number if mask is None else w.binary("and", number, mask)
            found = (self._nan(differences), number)
            return [w.binary("or", a, b) for a, b in zip(before, found, strict=True)]

        none = w.zero(f"<{lanes} x i1>")
        both = loop(w, w.int(-(-size // lanes)), [none, none], vector)
        some, number = (
            w.intrinsic("llvm.vector.reduce.or", "i1", v, suffix=f"v{lanes}i1") for v in both
        )
        return some, number

    def _each(self, run: Value, index: list[Value], start: Value, end: Value) -> None:
        """Element by element: what is NaN is summed again."""
        w, ring, dtype = self.w, self.ring, self.dtype
        rest = w.binary("sub", end, start)
        count = w.intrinsic("llvm.umin", "i64", rest, w.int(ring.lanes))

        def element(k: Value, _: list[Value]) -> list[Value]:
            position = add(w, start, k)
            address = element_address(w, run, position, dtype)
            nan = self._nan(loaded(w, ring, dtype, address, 1))
            inner = split_index(w, position, self.instruction.shape.dims[self.outer :])
            when(w, nan, lambda: self._store(address, self._sum([*index, *inner])))
            return []

        loop(w, count, [], element)

    def _store(self, address: Value, total: Parts) -> None:
        dtype = self.dtype
        for k, part in enumerate(narrowed(self.w, self.ring, dtype, total)):
            place = self.w.address(address, self.w.int(k), storage_scalar(dtype)) if k else address
            self.w.store(part, place, dtype.component.item_bytes)

    def _sum(self, index: list[Value]) -> Parts:
        """The convolution's sum for one result."""
        w, n = self.w, self.labels
        lhs, rhs, out = (s.dims for s in self.shapes)
        ls, rs = row_major_strides(lhs), row_major_strides(rhs)
        groups: int = attribute(self.instruction, "feature_group_count")  # type: ignore[assignment]  # its kind
        batch_groups: int = attribute(self.instruction, "batch_group_count")  # type: ignore[assignment]  # its kind
        feature, outputs = index[n.out_feature], out[n.out_feature]
        group = w.binary("udiv", feature, w.int(outputs // groups))
        batch_group = w.binary("udiv", feature, w.int(outputs // batch_groups))
        images = times(w, batch_group, lhs[n.lhs_batch] // batch_groups)
        batch = add(w, index[n.out_batch], images)
        base = add(w, times(w, batch, ls[n.lhs_batch]),
                   times(w, group, rhs[n.rhs_input_feature] * ls[n.lhs_feature]))  # fmt: skip
        kernel = times(w, feature, rs[n.rhs_output_feature])
        return self._taps(0, index, (base, kernel, None), self.ring.zero(w, 1))

    def _taps(
        self, depth: int, index: list[Value], at: tuple[Value, Value, Value | None], total: Parts
    ) -> Parts:
        """The loops over window positions; at: offsets in lhs and rhs, whether there is a base."""
        w = self.w
        if depth == len(self.spatial):
            return self._features(at, total)
        s = self.spatial[depth]
        ls, rs = (row_major_strides(shape.dims) for shape in self.shapes[:2])

        def tap(t: Value, sums: list[Value]) -> list[Value]:
            element, inside = self._element(s, index[s.out], t)
            along = w.binary("sub", w.int(s.window.size - 1), t) if s.window.reversed else t
            base = add(w, at[0], times(w, element, ls[s.lhs]))
            kernel = add(w, at[1], times(w, along, rs[s.rhs]))
            both = inside if at[2] is None else w.binary("and", at[2], inside)
            return list(self._taps(depth + 1, index, (base, kernel, both), tuple(sums)))

        return tuple(loop(w, w.int(s.window.size), list(total), tap))

    def _element(self, s: _Spatial, position: Value, tap: Value) -> tuple[Value, Value]:
        """The base element under a window position (0 where there is none), and whether."""
        w, d = self.w, s.window
        reached = add(w, times(w, position, d.stride), times(w, tap, d.window_dilation))
        p = w.binary("sub", reached, w.int(d.pad_low))
        size = self.shapes[0].dims[s.lhs]
        # A position before the first element is huge as an unsigned number.
        inside = w.compare("icmp ult", p, w.int((size - 1) * d.base_dilation + 1 if size else 0))
        if d.base_dilation > 1:
            rest = w.binary("urem", p, w.int(d.base_dilation))
            inside = w.binary("and", inside, w.compare("icmp eq", rest, w.int(0)))
            p = w.binary("udiv", p, w.int(d.base_dilation))
        return w.select(inside, p, w.int(0)), inside

    def _features(self, at: tuple[Value, Value, Value | None], total: Parts) -> Parts:
        """The sum over a group's input features at one window position.

        One of them will do where there is no base element, and for what is NaN already.
        """
        w, n, ring = self.w, self.labels, self.ring
        lhs, rhs = self.shapes[:2]
        features = rhs.dims[n.rhs_input_feature]
        ls, rs = (row_major_strides(s.dims) for s in (lhs, rhs))

        def feature(i: Value, sums: list[Value]) -> list[Value]:
            x = add(w, at[0], times(w, i, ls[n.lhs_feature]))
            k = add(w, at[1], times(w, i, rs[n.rhs_input_feature]))
            a = loaded(w, ring, lhs.dtype, element_address(w, self.memory[0], x, lhs.dtype), 1)
            b = loaded(w, ring, rhs.dtype, element_address(w, self.memory[1], k, rhs.dtype), 1)
            new = ring.multiply_add(w, tuple(sums), a, b)
            if at[2] is None:
                return list(new)
            return [w.select(at[2], x, y) for x, y in zip(new, sums, strict=True)]

        count = w.int(features)
        if at[2] is not None and features > 1:
            counted = w.binary("and", at[2], self._may_change(total))
            count = w.select(counted, count, w.int(1))
        return tuple(loop(w, count, list(total), feature))

    def _may_change(self, total: Parts) -> Value:
        """Whether some part of a sum is not NaN yet."""
        numbers = [self.w.compare("fcmp ord", p, p) for p in total]
        return numbers[0] if len(numbers) == 1 else self.w.binary("or", *numbers)
