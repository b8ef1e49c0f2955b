"""LU factors of one large matrix, which threads share out: P a = L U, some panels at a time.

    load   the matrix --> rows in memory that all threads see
    own    the next group of columns, panel by panel, with all rows below; rows change places
    behind the columns right of it, a tile at a time: each by itself, panel after panel
    store  the factors;    own and behind as often as there are groups

A tile has all that it needs when `behind` begins, so that its units wait for nobody and have the
same bits for any number of threads, and the same as those of one matrix by itself (lu.py).
Source: blocked right-looking elimination with partial pivoting (Golub, Van Loan 3.4.1).
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.arithmetic import add, shared, times
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.linear_algebra.groups import GROUP, MOST_ALONE, MOST_BYTES, SHARES
from hlo.backend.kernels.linear_algebra.lu import LuPanels
from hlo.backend.kernels.linear_algebra.panels import VECTORS, PanelForm, form_of
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import when
from hlo.backend.loops.schedule import Plan
from hlo.ir.shape import Shape

# The buffers: operand, results, then rows and panel, and where the work is: the group's first
# column, the next one's, the number of the first column without a pivot.
_A, _FACTORS, _PIVOTS, _FAILURES, _SCRATCH, _STATE = range(6)
_STATE_BYTES = 24


def lu_groups(a: Shape, target: Target) -> KernelSequence | None:
    """The kernels of getrf: buffers a, factors, pivots, failures, then temporaries. None where
    there is little to share, or it is huge."""
    form = form_of(a, target, has_strips=True)
    if form is None or form.batch > 1 or form.least <= MOST_ALONE or GROUP % form.width:
        return None
    if form.bytes > MOST_BYTES:
        return None
    load, own, behind, store = (_Kernel(form, target) for _ in range(4))
    kernels = load.load(), own.own(), behind.behind(), store.store()
    first, *middle, last = (KernelCall(kernel, tuple(range(6))) for kernel in kernels)
    groups = -(-form.reach // GROUP)
    calls = (first, *groups * middle, last)
    return KernelSequence(calls, (load.bytes, _STATE_BYTES), in_place=frozenset({(0, 0)}))


class _Kernel:
    """A kernel under construction."""

    def __init__(self, form: PanelForm, target: Target) -> None:
        self.w = Writer()
        self.nest = Nest(self.w, target)
        self.form = form
        self.buffers = [self.w.buffer_address(k) for k in range(6)]
        self.panels = LuPanels(self.nest, form, self.buffers[_SCRATCH])

    @property
    def bytes(self) -> int:
        """Of the rows and the panel."""
        return self.panels.size * self.form.item_bytes

    def load(self) -> Kernel:
        """A unit is some rows; the first one begins the work."""
        w = self.w

        def begin() -> None:
            for place in range(3):
                w.store(w.int(0), self._state(place), 8)

        self._over_rows(self.form.height, LuPanels.load, _A, begin)
        return self._made("loads", SHARES)

    def own(self) -> Kernel:
        """The next group's columns."""
        w, form, panels = self.w, self.form, self.panels
        first = w.load(self._state(1), "i64", 8)
        behind = add(w, first, w.int(GROUP))
        w.store(first, self._state(0), 8)
        w.store(behind, self._state(1), 8)
        end = w.intrinsic("llvm.smin", "i64", behind, w.int(max(form.reach, form.columns)))

        def panel(k: Value, failed: list[Value]) -> list[Value]:
            found = panels.panelled(k, self.buffers[_PIVOTS], *failed)
            behind = add(w, k, w.int(form.width))
            panels.solved(k, (behind, end), 1)
            rows = behind, w.int(form.rows)
            reach = add(w, end, w.int(form.lanes - 1))
            panels.over((behind, reach), lambda j: panels.reduced((k, behind), j, rows, 1))
            return [found]

        known = w.load(self._state(2), "i32", 4)
        (failed,) = self._over_panels(first, [known], panel)
        w.store(failed, self._state(2), 4)
        flops = form.rows * GROUP * GROUP
        return self._made(f"{GROUP} columns, panels of {form.width}", 1, flops)

    def behind(self) -> Kernel:
        """A unit is every SHARES-th tile of the columns behind the group."""
        w, form, panels = self.w, self.form, self.panels
        width = VECTORS * form.lanes
        first = w.load(self._state(0), "i64", 8)
        behind = add(w, first, w.int(GROUP))
        last = w.intrinsic("llvm.smin", "i64", behind, w.int(form.rows))

        def tiles(u: Value) -> None:
            def tile(j: Value, _: list[Value]) -> list[Value]:
                def panel(k: Value, _: list[Value]) -> list[Value]:
                    own = add(w, k, w.int(form.width))
                    panels.solved(k, (j, add(w, j, w.int(width))), VECTORS)
                    panels.reduced((k, own), j, (own, last), VECTORS)
                    return []

                self._over_panels(first, [], panel)
                panels.reduced((first, behind), j, (behind, w.int(form.rows)), VECTORS)
                return []

            low = add(w, behind, times(w, u, width))
            step = SHARES * width
            self.nest.loop(low, form.columns + step - 1, step, [], tile)

        self._over_units(tiles)
        flops = form.size * form.least * 2 // 3 // -(-form.reach // GROUP)
        return self._made(f"columns behind {GROUP}, tiles of {width}", SHARES, flops)

    def store(self) -> Kernel:
        """A unit is some rows."""
        w = self.w
        failed = w.load(self._state(2), "i32", 4)

        def end() -> None:
            w.store(failed, self.buffers[_FAILURES], 4)

        self._over_rows(self.form.rows, LuPanels.store, _FACTORS, end)
        return self._made("stores", SHARES)

    def _state(self, place: int) -> Value:
        w = self.w
        return w.address(self.buffers[_STATE], w.int(place), "i64")

    def _over_rows(
        self,
        count: int,
        move: Callable[[LuPanels, Value, Value, tuple[Value, Value]], None],
        buffer: int,
        once: Callable[[], None],
    ) -> None:
        """Units that move so many rows from or to a buffer; what the first one does besides."""
        w = self.w

        def rows(u: Value) -> None:
            when(self.nest, w.compare("icmp eq", u, w.int(0)), once)
            ends = shared(w, u, count, SHARES)
            self.panels.part(
                lambda own, memory, *ends: move(own, memory, own.w.int(0), ends),
                self.buffers[buffer], *ends,
            )  # fmt: skip

        self._over_units(rows)

    def _over_units(self, body: Callable[[Value], None]) -> None:
        def unit(u: Value, _: list[Value]) -> list[Value]:
            body(u)
            return []

        self.nest.loop(BEGIN, END, 1, [], unit)

    def _over_panels(
        self, first: Value, carried: list[Value], body: Callable[[Value, list[Value]], list[Value]]
    ) -> list[Value]:
        """body for the panels of the group from column first on."""
        w, form = self.w, self.form
        behind = add(w, first, w.int(GROUP))
        end = w.intrinsic("llvm.smin", "i64", behind, w.int(form.reach))
        return self.nest.loop(first, end, form.width, carried, body)

    def _made(self, text: str, units: int, flops: int = 0) -> Kernel:
        w, form = self.w, self.form
        w.ret()
        kernel = Kernel(
            w.function(has_entry=True),
            units,
            *w.beside,
            functions=tuple(self.panels.functions),
            bytes_moved=2 * form.size * form.item_bytes,
            flops=flops,
        )
        shown = f"LU: {form.rows} x {form.columns}: {text}"
        return self.nest.target.shown(kernel, lambda: Plan((shown,)))
