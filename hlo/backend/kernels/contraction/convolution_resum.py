"""Some positions of a convolution's result, summed where there is a base element.

Lanes are neighbours among the output features, and a few positions go side by side, as elements of
the kernel serve them all. Each window position's sum is made apart and added where the window has
met the base; positions outside of it are skipped where no other has one there. It ends where all
that is asked for is NaN. What of the result is not NaN stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.window import Window, WindowDim
from hlo.backend.codegen.target import Target
from hlo.backend.codegen.types import storage_scalar
from hlo.backend.codegen.writer import Value, Writer
from hlo.backend.kernels.contraction.axes import row_major_strides
from hlo.backend.kernels.contraction.lane_masks import iota
from hlo.backend.kernels.contraction.loops import add, advanced, loop, ranged, times, when
from hlo.backend.kernels.contraction.ring import (
    Parts,
    Ring,
    element_address,
    gathered,
    loaded,
    narrowed,
    ring_of,
    scattered,
    written,
)
from hlo.backend.kernels.kernel import Kernel
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.table import attribute

SUMS = 8  # vectors that are summed side by side
VECTORS = 2  # of them along the features


class Spatial(Struct, frozen=True):
    """A spatial dimension: its window, and its places in base, kernel and result."""

    window: WindowDim
    lhs: int
    rhs: int
    out: int


class Form(Struct, frozen=True):
    """A convolution as its repair sees it. groups: of outputs; group_moves: from one to the next
    in the base."""

    ring: Ring
    shapes: tuple[Shape, Shape, Shape]
    labels: DimLabels
    spatial: tuple[Spatial, ...]
    groups: int
    group_moves: int

    @classmethod
    def of(cls, instruction: Instruction, target: Target) -> Form:
        n: DimLabels = attribute(instruction, "dim_labels")  # type: ignore[assignment]  # its kind
        window: Window = attribute(instruction, "window") or Window()  # type: ignore[assignment]  # its kind
        groups: int = attribute(instruction, "feature_group_count")  # type: ignore[assignment]  # its kind
        batch_groups: int = attribute(instruction, "batch_group_count")  # type: ignore[assignment]  # its kind
        lhs, rhs = (o.shape for o in instruction.operands)
        places = zip(window.dims, n.lhs_spatial, n.rhs_spatial, n.out_spatial, strict=True)
        strides = row_major_strides(lhs.dims)
        moved = rhs.dims[n.rhs_input_feature] * strides[n.lhs_feature]
        if batch_groups > 1:
            moved = lhs.dims[n.lhs_batch] // batch_groups * strides[n.lhs_batch]
        return cls(
            ring_of(instruction.shape.dtype, target),
            (lhs, rhs, instruction.shape),
            n,
            tuple(Spatial(*place) for place in places),
            groups * batch_groups,
            moved,
        )

    @property
    def dtype(self) -> DType:
        return self.shapes[2].dtype

    @property
    def out(self) -> tuple[int, ...]:
        return self.shapes[2].dims

    @property
    def strides(self) -> tuple[tuple[int, ...], ...]:
        return tuple(row_major_strides(s.dims) for s in self.shapes)

    @property
    def features(self) -> int:
        return self.out[self.labels.out_feature]

    @property
    def is_diagonal(self) -> bool:
        """Whether each output feature has a part of the base for itself."""
        return self.groups == self.features > 1

    @property
    def run(self) -> int:
        """Output features that lanes run over."""
        return self.features if self.is_diagonal else self.features // self.groups

    @property
    def lanes(self) -> int:
        return min(self.ring.lanes, 1 << (self.run.bit_length() - 1))

    @property
    def vectors(self) -> int:
        return 1 if self.ring.parts > 1 else min(VECTORS, -(-self.run // self.lanes))

    @property
    def positions(self) -> int:
        return SUMS // (self.vectors * self.ring.parts)

    @property
    def entry(self) -> int:
        """Numbers that say where a position is: offsets in result and base, spatial indices."""
        return 2 + len(self.spatial)

    def feature_start(self, w: Writer, vector: Value) -> Value:
        """The first feature of a vector over all of them; the last one overlaps another."""
        start = times(w, vector, self.lanes)
        return w.intrinsic("llvm.umin", "i64", start, w.int(self.features - self.lanes))

    def load(self, w: Writer, memory: Value, side: int, at: Value, stride: int) -> Parts:
        """Lanes of an array from an element on; all the same where the stride is 0."""
        dtype, ring = self.shapes[side].dtype, self.ring
        address = element_address(w, memory, at, dtype)
        if stride == 1 or self.lanes == 1:
            return loaded(w, ring, dtype, address, self.lanes)
        if stride == 0:
            parts = loaded(w, ring, dtype, address, 1)
            return tuple(w.splat(p, self.lanes) for p in parts)
        return gathered(w, ring, dtype, address, self.offsets(w, stride))

    def offsets(self, w: Writer, stride: int) -> Value:
        each = iota(self.lanes, "i64")
        return w.binary("mul", each, w.int(stride, f"<{self.lanes} x i64>"))


def is_nan(w: Writer, parts: Parts) -> Value:
    """Whether a part of a number is."""
    found = [w.compare("fcmp uno", p, p) for p in parts]
    return found[0] if len(found) == 1 else w.binary("or", *found)


def resum_function(form: Form) -> Kernel:
    """A function of lhs, rhs, result and the entries of as many positions as go side by side."""
    function = _Resum(form)
    w = function.w
    function.write()
    head = "define void @KERNEL(ptr %lhs, ptr %rhs, ptr %out, ptr %entries) nounwind {"
    text = "\n".join([head, *w.lines, "  ret void", "}"])
    return Kernel(text, 0, tuple(w.declarations.values()), tuple(w.globals.values()))


class _Resum:
    """The function being written."""

    def __init__(self, form: Form) -> None:
        self.w = Writer()
        self.form, self.ring = form, form.ring
        self.memory = [Value(f"%{name}", "ptr") for name in ("lhs", "rhs", "out")]
        self.count = form.positions * form.vectors * self.ring.parts

    def write(self) -> None:
        w, form = self.w, self.form
        type = self.ring.type(form.lanes)
        self.totals = w.assign("ptr", f"alloca [{self.count} x {type}], align 64")
        self.wanted = w.assign("ptr", f"alloca [{self.count} x {type}], align 64")
        self.going = w.assign("ptr", "alloca i64, align 8")
        entries = Value("%entries", "ptr")
        fields = [
            [w.load(advanced(w, entries, p * form.entry + k, "i64"), "i64", 8)
             for k in range(form.entry)]
            for p in range(form.positions)
        ]  # fmt: skip
        self.results, self.bases = ([f[k] for f in fields] for k in range(2))
        self.indices = [f[2:] for f in fields]
        groups = 1 if form.is_diagonal else form.groups
        width = form.vectors * form.lanes

        def chunk(group: Value, c: Value) -> None:
            start = times(w, c, width)
            starts = [
                w.intrinsic("llvm.umin", "i64", add(w, start, w.int(v * form.lanes)),
                            w.int(form.run - form.lanes))
                for v in range(form.vectors)
            ]  # fmt: skip
            self._chunk(group, starts)

        chunks = w.int(-(-form.run // width))
        ranged(
            w,
            w.int(0),
            w.int(groups),
            lambda group: ranged(w, w.int(0), chunks, lambda c: chunk(group, c)),
        )

    def _chunk(self, group: Value, starts: list[Value]) -> None:
        """A few vectors of features, from `starts` of a group on."""
        w, form, n = self.w, self.form, self.form.labels
        stride = form.strides[2][n.out_feature]
        features = [add(w, times(w, group, form.run), s) for s in starts]
        for p, v in self._each():
            at = add(w, self.results[p], times(w, features[v], stride))
            self._put(self.wanted, p, v, form.load(w, self.memory[2], 2, at, stride))
            self._put(self.totals, p, v, self.ring.zero(w, form.lanes))
        self._note_going()
        kernels = [times(w, f, form.strides[1][n.rhs_output_feature]) for f in features]
        if form.is_diagonal:
            moved = [times(w, f, form.group_moves) for f in features]
        else:
            moved = [times(w, group, form.group_moves)]
        bases = [[add(w, base, m) for m in moved] for base in self.bases]
        going = w.compare("icmp ne", w.load(self.going, "i64", 8), w.int(0))

        def finish() -> None:
            self._taps(0, bases, kernels, [])
            for p, v in self._each():
                at = add(w, self.results[p], times(w, features[v], stride))
                self._store(p, v, at, stride)

        when(w, going, finish)

    def _each(self) -> list[tuple[int, int]]:
        return [(p, v) for p in range(self.form.positions) for v in range(self.form.vectors)]

    def _place(self, memory: Value, p: int, v: int, part: int) -> Value:
        number = (p * self.form.vectors + v) * self.ring.parts + part
        return advanced(self.w, memory, number, self.ring.type(self.form.lanes))

    def _put(self, memory: Value, p: int, v: int, parts: Parts) -> None:
        for k, part in enumerate(parts):
            self.w.store(part, self._place(memory, p, v, k), self.ring.scalar_bytes)

    def _get(self, memory: Value, p: int, v: int) -> Parts:
        w, type = self.w, self.ring.type(self.form.lanes)
        places = [self._place(memory, p, v, k) for k in range(self.ring.parts)]
        return tuple(w.load(place, type, self.ring.scalar_bytes) for place in places)

    def _note_going(self) -> None:
        """Whether some sum that is wanted (its result is NaN) is not all NaN yet."""
        w, lanes, left = self.w, self.form.lanes, None
        for p, v in self._each():
            was = is_nan(w, self._get(self.wanted, p, v))
            numbers = [w.compare("fcmp ord", x, x) for x in self._get(self.totals, p, v)]
            number = numbers[0] if len(numbers) == 1 else w.binary("or", *numbers)
            both = w.binary("and", was, number)
            left = both if left is None else w.binary("or", left, both)
        assert left is not None
        if lanes > 1:
            left = w.intrinsic("llvm.vector.reduce.or", "i1", left, suffix=f"v{lanes}i1")
        w.store(w.cast("zext", left, "i64"), self.going, 8)

    def _taps(
        self,
        depth: int,
        bases: list[list[Value]],
        kernels: list[Value],
        inside: Sequence[Value],
    ) -> None:
        """The loops over window positions; inside: whether each position has a base element."""
        w, form = self.w, self.form
        if depth == len(form.spatial):
            self._features(bases, kernels, inside)
            return
        s = form.spatial[depth]
        first, end = self._range(s, [index[depth] for index in self.indices])

        def tap(t: Value) -> None:
            elements = [self._element(s, index[depth], t) for index in self.indices]
            here = [i for _, i in elements]
            both = here
            if inside:
                both = [w.binary("and", a, b) for a, b in zip(inside, here, strict=True)]
            some = both[0]
            for other in both[1:]:
                some = w.binary("or", some, other)
            going = w.compare("icmp ne", w.load(self.going, "i64", 8), w.int(0))
            when(w, w.binary("and", some, going), lambda: deeper(t, elements, both))

        def deeper(t: Value, elements: list[tuple[Value, Value]], both: list[Value]) -> None:
            along = w.binary("sub", w.int(s.window.size - 1), t) if s.window.reversed else t
            at = [
                [add(w, b, times(w, element, form.strides[0][s.lhs])) for b in base]
                for base, (element, _) in zip(bases, elements, strict=True)
            ]
            move = times(w, along, form.strides[1][s.rhs])
            self._taps(depth + 1, at, [add(w, k, move) for k in kernels], both)

        ranged(w, first, end, tap)

    def _range(self, s: Spatial, positions: list[Value]) -> tuple[Value, Value]:
        """Window positions between which all are that have a base element."""
        w, d = self.w, s.window
        reach = (self.form.shapes[0].dims[s.lhs] - 1) * d.base_dilation
        firsts, ends = [], []
        for position in positions:
            before = w.binary("sub", w.int(d.pad_low), times(w, position, d.stride))
            moved = (add(w, before, w.int(m)) for m in (d.window_dilation - 1,
                                                        d.window_dilation + reach))  # fmt: skip
            first, end = (w.intrinsic("llvm.smax", "i64", m, w.int(0)) for m in moved)
            firsts.append(w.binary("udiv", first, w.int(d.window_dilation)))
            ends.append(w.binary("udiv", end, w.int(d.window_dilation)))
        low, high = firsts[0], ends[0]
        for first, end in zip(firsts[1:], ends[1:], strict=True):
            low = w.intrinsic("llvm.umin", "i64", low, first)
            high = w.intrinsic("llvm.umax", "i64", high, end)
        return low, w.intrinsic("llvm.umin", "i64", high, w.int(d.size))

    def _element(self, s: Spatial, position: Value, tap: Value) -> tuple[Value, Value]:
        """The base element under a window position (0 where there is none), and whether."""
        w, d = self.w, s.window
        reached = add(w, times(w, position, d.stride), times(w, tap, d.window_dilation))
        p = w.binary("sub", reached, w.int(d.pad_low))
        size = self.form.shapes[0].dims[s.lhs]
        # A position before the first element is huge as an unsigned number.
        inside = w.compare("icmp ult", p, w.int((size - 1) * d.base_dilation + 1 if size else 0))
        if d.base_dilation > 1:
            rest = w.binary("urem", p, w.int(d.base_dilation))
            inside = w.binary("and", inside, w.compare("icmp eq", rest, w.int(0)))
            p = w.binary("udiv", p, w.int(d.base_dilation))
        return w.select(inside, p, w.int(0)), inside

    def _features(
        self, bases: list[list[Value]], kernels: list[Value], inside: Sequence[Value]
    ) -> None:
        """The sums over a group's input features at one window position."""
        w, form, ring, n = self.w, self.form, self.ring, self.form.labels
        parts, lanes = ring.parts, form.lanes
        base_step = form.strides[0][n.lhs_feature]
        kernel_step = form.strides[1][n.rhs_input_feature]
        kernel_stride = form.strides[1][n.rhs_output_feature]
        base_stride = form.group_moves if form.is_diagonal else 0

        def feature(i: Value, sums: list[Value]) -> list[Value]:
            b = [
                form.load(w, self.memory[1], 1, add(w, k, times(w, i, kernel_step)), kernel_stride)
                for k in kernels
            ]
            new: list[Value] = []
            for p in range(form.positions):
                a = [
                    form.load(w, self.memory[0], 0, add(w, at, times(w, i, base_step)), base_stride)
                    for at in bases[p]
                ]
                for v in range(form.vectors):
                    k = (p * form.vectors + v) * parts
                    new += ring.multiply_add(w, tuple(sums[k : k + parts]), a[v % len(a)], b[v])
            return new

        zeros = list(ring.zero(w, lanes)) * (form.positions * form.vectors)
        features = form.shapes[1].dims[n.rhs_input_feature]
        sums = loop(w, w.int(features), zeros, feature)
        for p, v in self._each():
            k = (p * form.vectors + v) * parts
            before = self._get(self.totals, p, v)
            after = ring.add(w, before, tuple(sums[k : k + parts]))
            kept = tuple(w.select(inside[p], x, y) for x, y in zip(after, before, strict=True))
            self._put(self.totals, p, v, kept)
        self._note_going()

    def _store(self, p: int, v: int, at: Value, stride: int) -> None:
        """A finished vector of sums, where the result is NaN."""
        w, form, dtype = self.w, self.form, self.form.dtype
        mask = is_nan(w, self._get(self.wanted, p, v))
        new = narrowed(w, self.ring, dtype, self._get(self.totals, p, v))
        address = element_address(w, self.memory[2], at, dtype)
        if form.lanes == 1:
            when(w, mask, lambda: self._store_one(address, new))
        elif stride == 1:
            written(w, dtype, new, address, mask)
        else:
            scattered(w, dtype, new, address, form.offsets(w, stride), mask)

    def _store_one(self, address: Value, form: Parts) -> None:
        dtype = self.form.dtype
        for k, part in enumerate(form):
            place = self.w.address(address, self.w.int(k), storage_scalar(dtype)) if k else address
            self.w.store(part, place, dtype.component.item_bytes)
