"""Some positions of a convolution's result, summed where there is a base element.

Lanes are neighbours among the output features, and a few positions go side by side, as elements of
the kernel serve them all. Each window position's sum is made apart and added where the window has
met the base; positions outside of it are skipped where no other has one there. Where there are
enough images the positions are the same one in several, for which a window is inside or not at
once. It ends where all that is asked for is NaN. What of the result is not NaN stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, advanced, times
from hlo.backend.ir.called import as_function
from hlo.backend.ir.control import loop, ranged, when
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.values import every_lane
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.convolutions.form import Form, is_nan
from hlo.backend.kernels.contraction.convolutions.panel import Panel
from hlo.backend.kernels.contraction.problem.ring import (
    Parts,
    element_address,
    is_plain,
    narrowed,
    scattered,
    written,
)
from hlo.backend.lanes.types import storage_scalar
from hlo.machine import ALIGNMENT


def resum_function(form: Form) -> Kernel:
    """A function of lhs, the kernel (of each a chunk's panel where that is packed), result, the
    entries of as many positions as go side by side, the chunk of features, and how much padding
    each spatial dimension begins with: what else is alike, as the phases of a transposed
    convolution are, shares it.
    """
    alike = _without_padding(form)
    found = (Panel.of(form, side) for side in (0, 1))  # which padding has a say in
    panels = tuple(panel and replace(panel, form=alike) for panel in found)
    return _written(alike, panels)


def _without_padding(form: Form) -> Form:
    """The form, with what the function is told when it is called left open."""
    target = form.ring.target.of_library
    spatial = tuple(
        replace(s, window=replace(s.window, pad_low=0, pad_high=0)) for s in form.spatial
    )
    return replace(form, ring=replace(form.ring, target=target), spatial=spatial)


@lru_cache(maxsize=32)
def _written(form: Form, panels: tuple[Panel | None, ...]) -> Kernel:
    function = _Resum(form, panels)
    function.write()
    parameters = (*function.memory, Value("%entries", "ptr"), Value("%chunk", "i64"))
    parameters += tuple(function.padding)
    return as_function(function.w, parameters, has_entry=False, is_glue=True)


class _Resum:
    """The function being written."""

    def __init__(self, form: Form, panels: tuple[Panel | None, ...]) -> None:
        self.w = Writer()
        self.form, self.ring = form, form.ring
        self.memory = [Value(f"%{name}", "ptr") for name in ("lhs", "rhs", "out")]
        self.padding = [Value(f"%padding{d}", "i64") for d in range(len(form.spatial))]
        self.count = form.positions * form.vectors * self.ring.parts
        self.panels = panels
        self.strides = tuple(
            panel.strides if panel else form.strides[side] for side, panel in enumerate(self.panels)
        )

    def write(self) -> None:
        w, form = self.w, self.form
        type = self.ring.type(form.lanes)
        self.totals = w.alloca(f"[{self.count} x {type}]", ALIGNMENT)
        self.wanted = w.alloca(f"[{self.count} x {type}]", ALIGNMENT)
        self.going = w.alloca("i64", 8)
        entries = Value("%entries", "ptr")
        fields = [
            [w.load(advanced(w, entries, p * form.entry + k, "i64"), "i64", 8)
             for k in range(form.entry)]
            for p in range(form.positions)
        ]  # fmt: skip
        self.results, self.images = ([f[k] for f in fields] for k in range(2))
        self.indices = [f[2:] for f in fields[: 1 if form.is_uniform else None]]
        self._chunk(*form.starts(w, Value("%chunk", "i64")))

    def _chunk(self, run: Value, starts: list[Value]) -> None:
        """A few vectors of features, from `starts` of a run on."""
        w, form, n = self.w, self.form, self.form.labels
        stride = form.strides[2][n.out_feature]
        features = [add(w, times(w, run, form.run), s) for s in starts]
        for p, v in self._each():
            at = add(w, self.results[p], times(w, features[v], stride))
            self._put(self.wanted, p, v, form.load(w, self.memory[2], 2, at, stride))
            self._put(self.totals, p, v, self.ring.zero(w, form.lanes))
        w.store(w.int(1), self.going, 8)
        in_panel = [w.int(v * self.ring.parts * form.lanes) for v in range(form.vectors)]
        kernels = [times(w, f, form.strides[1][n.rhs_output_feature]) for f in features]
        parts_of_base = features if form.is_diagonal else [run]
        moved = [times(w, part, form.group_moves) for part in parts_of_base]
        if self.panels[0]:
            moved = in_panel
        bases = [
            [add(w, times(w, image, self.strides[0][n.lhs_batch]), m) for m in moved]
            for image in self.images
        ]
        if self.panels[1]:
            kernels = in_panel
        self._taps(0, bases, kernels, [])
        for p, v in self._each():
            at = add(w, self.results[p], times(w, features[v], stride))
            self._store(p, v, at, stride)

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
        addresses = [self._place(memory, p, v, k) for k in range(self.ring.parts)]
        return tuple(w.load(place, type, self.ring.scalar_bytes) for place in addresses)

    def _note_going(self) -> None:
        """Whether some sum that is wanted is not all NaN yet."""
        w, left = self.w, None
        for p, v in self._each():
            both = self._is_mended(p, v)
            left = both if left is None else w.binary("or", left, both)
        assert left is not None
        w.store(w.cast("zext", w.any_lane(left), "i64"), self.going, 8)

    def _is_mended(self, p: int, v: int) -> Value:
        """Where a result is NaN and its sum not all NaN."""
        w = self.w
        numbers = [w.compare("fcmp ord", x, x) for x in self._get(self.totals, p, v)]
        number = numbers[0] if len(numbers) == 1 else w.binary("or", *numbers)
        return w.binary("and", is_nan(w, self._get(self.wanted, p, v)), number)

    def _taps(
        self, depth: int, bases: list[list[Value]], kernels: list[Value], inside: Sequence[Value]
    ) -> None:
        """The loops over window positions; inside: whether each position has a base element."""
        w, s = self.w, self.form.spatial[depth]
        first, end = self._range(depth, [index[depth] for index in self.indices])
        if depth + 1 < len(self.form.spatial):

            def tap(t: Value) -> None:
                going = w.compare("icmp ne", w.load(self.going, "i64", 8), w.int(0))
                when(w, going, lambda: self._under(depth, t, bases, kernels, inside, deeper))

            def deeper(at: list[list[Value]], rows: list[Value], both: list[Value]) -> None:
                self._taps(depth + 1, at, rows, both)
                self._note_going()

            ranged(w, first, end, tap)
        elif s.window.base_dilation > 1:  # many a tap is at a hole

            def hole(t: Value) -> None:
                self._under(depth, t, bases, kernels, inside, self._added)

            ranged(w, first, end, hole)
        else:
            self._last_taps(first, end, bases, kernels, inside)

    def _under(
        self,
        depth: int,
        t: Value,
        bases: list[list[Value]],
        kernels: list[Value],
        inside: Sequence[Value],
        then: Callable[[list[list[Value]], list[Value], list[Value]], None],
    ) -> None:
        """then() with what lies under a window position, if that is inside for some."""
        w = self.w
        at, rows, both = self._moved(depth, t, bases, kernels, inside)
        some = both[0]
        for other in both[1:]:
            some = w.binary("or", some, other)
        when(w, some, lambda: then(at, rows, both))

    def _moved(
        self,
        depth: int,
        t: Value,
        bases: list[list[Value]],
        kernels: list[Value],
        inside: Sequence[Value],
    ) -> tuple[list[list[Value]], list[Value], list[Value]]:
        """Elements in base and kernel under a window position, and for which positions they are."""
        w, s = self.w, self.form.spatial[depth]
        elements = [self._element(depth, index[depth], t) for index in self.indices]
        both = [i for _, i in elements]
        if inside:
            both = [w.binary("and", a, b) for a, b in zip(inside, both, strict=True)]
        along = w.binary("sub", w.int(s.window.size - 1), t) if s.window.reversed else t
        moved = [times(w, element, self.strides[0][s.lhs]) for element, _ in elements]
        at = [[add(w, b, moved[p % len(moved)]) for b in base] for p, base in enumerate(bases)]
        move = times(w, along, self.strides[1][s.rhs])
        return at, [add(w, k, move) for k in kernels], both

    def _last_taps(
        self,
        first: Value,
        end: Value,
        bases: list[list[Value]],
        kernels: list[Value],
        inside: Sequence[Value],
    ) -> None:
        """The innermost window positions: the totals stay in registers."""
        w, depth = self.w, len(self.form.spatial) - 1

        def tap(t: Value, totals: list[Value]) -> list[Value]:
            at, rows, both = self._moved(depth, add(w, first, t), bases, kernels, inside)
            return self._features(at, rows, both, totals)

        def some() -> None:
            totals = [x for p, v in self._each() for x in self._get(self.totals, p, v)]
            self._put_all(loop(w, w.binary("sub", end, first), totals, tap))

        when(w, w.compare("icmp ult", first, end), some)

    def _added(self, at: list[list[Value]], rows: list[Value], inside: list[Value]) -> None:
        totals = [x for p, v in self._each() for x in self._get(self.totals, p, v)]
        self._put_all(self._features(at, rows, inside, totals))

    def _put_all(self, totals: Sequence[Value]) -> None:
        parts = self.ring.parts
        for k, (p, v) in enumerate(self._each()):
            self._put(self.totals, p, v, tuple(totals[k * parts : (k + 1) * parts]))

    def _range(self, depth: int, positions: list[Value]) -> tuple[Value, Value]:
        """Window positions between which all are that have a base element."""
        w, s = self.w, self.form.spatial[depth]
        d = s.window
        reach = (self.form.shapes[0].dims[s.lhs] - 1) * d.base_dilation
        firsts, ends = [], []
        for position in positions:
            before = w.binary("sub", self.padding[depth], times(w, position, d.stride))
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

    def _element(self, depth: int, position: Value, tap: Value) -> tuple[Value, Value]:
        """The base element under a window position (0 where there is none), and whether."""
        w, s = self.w, self.form.spatial[depth]
        d = s.window
        reached = add(w, times(w, position, d.stride), times(w, tap, d.window_dilation))
        p = w.binary("sub", reached, self.padding[depth])
        size = self.form.shapes[0].dims[s.lhs]
        # A position before the first element is huge as an unsigned number.
        inside = w.compare("icmp ult", p, w.int((size - 1) * d.base_dilation + 1 if size else 0))
        if d.base_dilation > 1:
            rest = w.binary("urem", p, w.int(d.base_dilation))
            inside = w.binary("and", inside, w.compare("icmp eq", rest, w.int(0)))
            p = w.binary("udiv", p, w.int(d.base_dilation))
        return w.select(inside, p, w.int(0)), inside

    def _features(
        self,
        bases: list[list[Value]],
        kernels: list[Value],
        inside: Sequence[Value],
        totals: list[Value],
    ) -> list[Value]:
        """Totals and the sums over a group's input features at one window position."""
        w, form, ring, n = self.w, self.form, self.ring, self.form.labels
        parts = ring.parts
        base_step = self.strides[0][n.lhs_feature]
        kernel_step = self.strides[1][n.rhs_input_feature]
        base_stride = form.group_moves if form.is_diagonal else 0
        kernel_stride = form.strides[1][n.rhs_output_feature]

        def feature(i: Value, sums: list[Value]) -> list[Value]:
            b = [
                self._vector(1, add(w, k, times(w, i, kernel_step)), kernel_stride) for k in kernels
            ]
            new: list[Value] = []
            for p in range(form.positions):
                a = [
                    self._vector(0, add(w, at, times(w, i, base_step)), base_stride)
                    for at in bases[p]
                ]
                for v in range(form.vectors):
                    k = (p * form.vectors + v) * parts
                    new += ring.multiply_add(w, tuple(sums[k : k + parts]), a[v % len(a)], b[v])
            return new

        features = form.shapes[1].dims[n.rhs_input_feature]
        if features == 1:  # one term is no sum of its own
            after = feature(w.int(0), totals)
        else:
            zeros = list(ring.zero(w, form.lanes)) * (form.positions * form.vectors)
            sums = loop(w, w.int(features), zeros, feature)
            after = list(ring.add(w, tuple(totals), tuple(sums)))
        if form.is_uniform:  # it has been asked whether they are inside
            return after
        each = form.vectors * parts
        return [
            w.select(inside[k // each], x, y)
            for k, (x, y) in enumerate(zip(after, totals, strict=True))
        ]

    def _vector(self, side: int, at: Value, stride: int) -> Parts:
        """A vector of a factor's features, which are `stride` apart where they are not packed."""
        panel = self.panels[side]
        if panel is None:
            return self.form.load(self.w, self.memory[side], side, at, stride)
        return panel.row(self.w, self.memory[side], at)

    def _store(self, p: int, v: int, at: Value, stride: int) -> None:
        """A finished vector of sums, where it mends the result."""
        w, form, dtype = self.w, self.form, self.form.dtype
        mask, totals = self._is_mended(p, v), self._get(self.totals, p, v)
        address = element_address(w, self.memory[2], at, dtype)
        new = narrowed(w, self.ring, dtype, totals)
        if form.lanes == 1:
            when(w, mask, lambda: self._store_one(address, new))
            return
        needed: Value | None = mask
        if is_plain(dtype, self.ring):
            # A whole vector, as masked stores are slow. Where the last vector of a run overlaps
            # another one, both put the same there.
            new = (w.select(mask, new[0], self._get(self.wanted, p, v)[0]),)
            needed = None
        if stride == 1:
            written(w, dtype, new, address, needed)
        else:
            ones = every_lane(mask.lanes)
            scattered(w, dtype, new, address, form.offsets(w, stride), needed or ones)

    def _store_one(self, address: Value, form: Parts) -> None:
        dtype = self.form.dtype
        for k, part in enumerate(form):
            place = self.w.address(address, self.w.int(k), storage_scalar(dtype)) if k else address
            self.w.store(part, place, dtype.component.item_bytes)
