"""select-and-scatter: every source element goes to the element that its window selects.

    result = init
    for each source position o: the winner among x[o * stride + w], then result[winner] = f(.., s)

Units are the leading dimensions along which windows are single elements (a batch, say); nothing of
one is another's. Such dimensions at the end (channels) are lanes: each lane has a winner of its
own, and goes through the window's rows a second time to update the one that it is in. Windows are
cut at the array's borders by the bounds of their loops, so that padding is never looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from hlo.attributes.window import Window, WindowDim
from hlo.backend.emitters.applied import inlined
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.structural import elemental_of
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.fused_loops import function_of, lanes_of
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Bound, Nest
from hlo.backend.lanes.open_loops import when
from hlo.backend.lanes.types import Lanes, joined, parts
from hlo.backend.loops.schedule import Plan
from hlo.indexing.reductions import is_inside
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32
from hlo.ir.instruction import Instruction
from hlo.ops.windows import trimmed


def select_and_scatter_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """The kernel of a select-and-scatter; None for other ops, complex numbers, reversed windows."""
    if instruction.opcode != "select-and-scatter" or instruction.shape.dtype.is_complex:
        return None
    window = instruction.get("window", Window(()))
    assert isinstance(window, Window), "window is a Window"
    window = trimmed(instruction.operands[0].shape.dims, window)
    if any(d.reversed for d in window.dims) or instruction.shape.is_dynamic:
        return None
    form = SelectScatterForm.of(instruction, window)
    w = Writer()
    _Build(elemental_of(Nest(w, target), lanes_of(instruction, target)), instruction, form).emit()
    x, source, _ = (o.shape for o in instruction.operands)
    made = Kernel(
        function_of(w),
        form.units,
        *w.beside,
        bytes_moved=2 * x.size_bytes + source.size_bytes,
        # One number after the other, which take as long as vectors.
        flops=2 * source.size * prod(d.size for d in window.dims) * target.lanes(F32),
    )
    lines = (f"select, then scatter: {form.source_size} windows a unit, in order",)
    return target.shown(made, lambda: Plan(lines))


MOST_WRITTEN = 16  # Steps of windows inside the array that are written without a loop.


class Axis(Struct, frozen=True):
    """A dimension with windows: its size in x and in the source, strides there, the window's."""

    size: int
    count: int
    x_stride: int
    source_stride: int
    window: WindowDim

    @property
    def stretches(self) -> list[tuple[int, int, bool]]:
        """Windows [first, end), and whether all of these lie in the array: those at its ends are
        cut, those between are not."""
        w = self.window
        if is_inside(w, self.count, self.size):
            return [(0, self.count, True)]
        reach = (w.size - 1) * w.window_dilation
        low = min(max(0, -(-w.pad_low // w.stride)), self.count)
        end = (self.size - 1 - reach + w.pad_low) // w.stride + 1
        high = max(low, min(end, self.count))
        found = [(0, low, False), (low, high, True), (high, self.count, False)]
        return [part for part in found if part[0] < part[1]]


class SelectScatterForm(Struct, frozen=True):
    """units; x_size, source_size: elements of one unit; row: trailing elements without windows."""

    units: int
    x_size: int
    source_size: int
    axes: tuple[Axis, ...]
    row: int

    @staticmethod
    def of(instruction: Instruction, window: Window) -> SelectScatterForm:
        x, source = instruction.operands[0].shape.dims, instruction.operands[1].shape.dims
        single = [
            (d.size, d.stride, d.pad_low, d.pad_high) == (1, 1, 0, 0) for d in window.dims
        ] or [True] * len(x)
        windowed = [k for k, alone in enumerate(single) if not alone]
        first, last = (windowed[0], windowed[-1] + 1) if windowed else (0, 0)
        axes = tuple(
            Axis(x[k], source[k], prod(x[k + 1 :]), prod(source[k + 1 :]), window.dims[k])
            for k in range(first, last)
        )
        return SelectScatterForm(
            prod(x[:first]), prod(x[first:]), prod(source[first:]), axes, prod(x[last:])
        )


class _Span(Struct, frozen=True):
    """One axis of the window at hand: where it begins in x, and which of its steps are inside."""

    axis: Axis
    begin: Value
    low: Bound
    high: Bound


class _Build:
    """The kernel under construction."""

    def __init__(
        self, elemental: Elemental, instruction: Instruction, form: SelectScatterForm
    ) -> None:
        self.elemental = elemental
        self.nest = elemental.nest
        self.form = form
        self.kind = instruction.shape.dtype
        self.storage = types.storage_scalar(self.kind)
        self.select, self.scatter = (_computation(instruction, n) for n in ("select", "scatter"))
        w = self.nest.w
        table = Value("%buffers", "ptr")
        buffers = [w.load_address(w.address(table, w.int(k), "ptr")) for k in range(4)]
        self.x, self.source, init, self.result = buffers
        self.init = w.load(init, self.storage)

    def emit(self) -> None:
        """Units: the result filled with init, then the windows in order."""
        w, form = self.nest.w, self.form
        wholes = self.x, self.source, self.result

        def unit(number: Value, _: list[Value]) -> list[Value]:
            sizes = (form.x_size, form.source_size, form.x_size)
            self.x, self.source, self.result = (
                w.address(p, w.binary("mul", number, w.int(n)), self.storage)
                for p, n in zip(wholes, sizes, strict=True)
            )
            self._along(form.x_size, self._fill)
            if form.source_size:
                self._windows(0, w.int(0), ())
            return []

        self.nest.loop(BEGIN, END, 1, [], unit)

    def _along(self, length: int, body: Callable[[Value, int], None]) -> None:
        """body(position, lanes) over a run: full vectors, then the rest one by one."""
        lanes = self.elemental.lanes

        def step(count: int) -> Callable[[Value, list[Value]], list[Value]]:
            def one(position: Value, _: list[Value]) -> list[Value]:
                body(position, count)
                return []

            return one

        whole = length - length % lanes
        self.nest.loop(0, whole, lanes, [], step(lanes))
        self.nest.loop(whole, length, 1, [], step(1))

    def _fill(self, position: Value, lanes: int) -> None:
        w = self.nest.w
        w.store(w.splat(self.init, lanes), w.address(self.result, position, self.storage))

    def _windows(self, depth: int, source: Value, spans: tuple[_Span, ...]) -> None:
        """The loops over the source's windowed dimensions; source: the offset so far."""
        w = self.nest.w
        if depth == len(self.form.axes):
            self._window(source, spans)
            return
        axis = self.form.axes[depth]
        for first, end, inside in axis.stretches:

            def each(o: Value, _: list[Value], *, inside: bool = inside) -> list[Value]:
                offset = w.binary("add", source, w.binary("mul", o, w.int(axis.source_stride)))
                self._windows(depth + 1, offset, (*spans, self._span(axis, o, inside=inside)))
                return []

            self.nest.loop(first, end, 1, [], each)

    def _span(self, axis: Axis, o: Value, *, inside: bool) -> _Span:
        """Steps v of the window with 0 <= begin + v * dilation < size."""
        w, window = self.nest.w, axis.window
        begin = w.binary("mul", o, w.int(window.stride))
        begin = w.binary("sub", begin, w.int(window.pad_low))
        if inside:
            return _Span(axis, begin, 0, window.size)
        dilation = w.int(window.window_dilation)
        before = w.binary("sub", w.int(window.window_dilation - 1), begin)
        low = w.intrinsic("llvm.smax", "i64", w.binary("sdiv", before, dilation), w.int(0))
        reach = w.binary("sub", w.int(axis.size - 1 + window.window_dilation), begin)
        high = w.binary("sdiv", reach, dilation)
        return _Span(axis, begin, low, w.intrinsic("llvm.smin", "i64", high, w.int(window.size)))

    def _window(self, source: Value, spans: Sequence[_Span]) -> None:
        """One window, if any of it is inside, for all lanes of its row."""
        w = self.nest.w
        some: Value | None = None
        for span in spans:
            if isinstance(span.low, Value) and isinstance(span.high, Value):
                holds = w.compare("icmp slt", span.low, span.high)
                some = holds if some is None else w.binary("and", some, holds)

        def rows() -> None:
            self._along(self.form.row, lambda t, lanes: self._row(source, spans, t, lanes))

        if some is None:
            rows()
        else:
            when(self.nest, some, rows)

    def _row(self, source: Value, spans: Sequence[_Span], t: Value, lanes: int) -> None:
        winner = self._winner(spans, t, lanes)
        w = self.nest.w
        given = self._load(self.source, w.binary("add", source, t), lanes)
        if lanes == 1:
            self._update(winner, given, None, 1)
            return

        def visit(at: Value, _: list[Value]) -> list[Value]:
            mask = w.compare("icmp eq", winner, self._place(at, lanes))
            self._update(at, given, mask, lanes)
            return []

        self._steps(spans, t, [], visit)

    def _winner(self, spans: Sequence[_Span], t: Value, lanes: int) -> Value:
        """Where in x each lane's winner is (lane 0's offset stands for all lanes' columns)."""
        w = self.nest.w
        first = t
        for span in spans:
            low = w.int(span.low) if isinstance(span.low, int) else span.low
            first = w.binary("add", first, self._offset(span, low))
        best = self._load(self.x, first, lanes)
        start = [*parts(best), self._place(first, lanes)]

        def visit(at: Value, carried: list[Value]) -> list[Value]:
            *values, place = carried
            held, here = joined(values), self._load(self.x, at, lanes)
            (keeps,) = parts(self._applied(self.select, held, here, lanes))
            pairs = zip(values, parts(here), strict=True)
            chosen = [w.select(keeps, a, b) for a, b in pairs]
            return [*chosen, w.select(keeps, place, self._place(at, lanes))]

        return self._steps(spans, t, start, visit)[-1]

    def _place(self, at: Value, lanes: int) -> Value:
        """A place in x in all lanes: of half the bits where these hold it."""
        w = self.nest.w
        if lanes > 1 and self.form.x_size < 1 << 31:
            at = w.cast("trunc", at, "i32")
        return w.splat(at, lanes)

    def _steps(
        self,
        spans: Sequence[_Span],
        at: Value,
        carried: list[Value],
        visit: Callable[[Value, list[Value]], list[Value]],
    ) -> list[Value]:
        """visit(offset, carried) at every element of the window, row-major."""
        if not spans:
            return visit(at, carried)
        span, w = spans[0], self.nest.w

        def step(v: Value, values: list[Value]) -> list[Value]:
            place = w.binary("add", at, self._offset(span, v))
            return self._steps(spans[1:], place, values, visit)

        if isinstance(span.low, int) and isinstance(span.high, int) and self._is_written(spans):
            for v in range(span.low, span.high):
                carried = step(w.int(v), carried)
            return carried
        return self.nest.loop(span.low, span.high, 1, carried, step)

    def _is_written(self, spans: Sequence[_Span]) -> bool:
        """Whether the steps of these axes are few: they are written without loops. One lane alone
        waits for its winner, and took twice as long so.
        """
        is_vector = self.form.row >= self.elemental.lanes
        return is_vector and prod(span.axis.window.size for span in spans) <= MOST_WRITTEN

    def _offset(self, span: _Span, step: Value) -> Value:
        w, axis = self.nest.w, span.axis
        along = w.binary("mul", step, w.int(axis.window.window_dilation))
        return w.binary("mul", w.binary("add", span.begin, along), w.int(axis.x_stride))

    def _update(self, at: Value, given: Lanes, mask: Value | None, lanes: int) -> None:
        """result[at] = f(result[at], given), in the mask's lanes."""
        w = self.nest.w
        old = self._load(self.result, at, lanes)
        (new,) = parts(self._applied(self.scatter, old, given, lanes))
        (kept,) = parts(old)
        if mask is not None:
            new = w.select(mask, new, kept)
        raw = types.encoded(w, self.nest.target, new, self.kind)
        w.store(raw, w.address(self.result, at, self.storage))

    def _applied(self, f: Computation, a: Lanes, b: Lanes, lanes: int) -> Lanes:
        pairs = zip(f.parameters, (a, b), strict=True)
        values: dict[Instruction, tuple[Lanes, ...]] = {p: (v,) for p, v in pairs}
        (result,) = inlined(self.elemental.nest, f.root, values)
        return self.elemental.splat(result, lanes)

    def _load(self, memory: Value, at: Value, lanes: int) -> Lanes:
        w = self.nest.w
        raw = w.load(w.address(memory, at, self.storage), vector_of(self.storage, lanes))
        return types.decoded(w, self.nest.target, raw, self.kind)


def _computation(instruction: Instruction, name: str) -> Computation:
    found = instruction[name]
    assert isinstance(found, Computation), f"{name} is a computation"
    return found
