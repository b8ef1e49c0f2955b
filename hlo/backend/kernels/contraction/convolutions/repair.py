"""What a padded convolution computed as NaN, computed once more without its padding.

Only results whose windows leave the base can have met a zero of the padding: those of them that are
NaN are summed again (resum.py), where there is a base element (docs/semantics.md 11). A
result that is NaN rightly stays NaN. This kernel runs only where there is something to do
(repair_check.py), which is rare: it and what it calls are glue, in which LLVM leaves sums in
memory. That takes it a quarter of the time; a convolution whose kernel is infinite throughout takes
at most about twice as long as one of finite numbers.
"""

from __future__ import annotations

from functools import partial
from math import prod

from hlo.backend.ir.arithmetic import add, advanced, times
from hlo.backend.ir.control import ranged, when
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.convolutions.border import Border, Position
from hlo.backend.kernels.contraction.convolutions.form import Form
from hlo.backend.kernels.contraction.convolutions.panel import Panel
from hlo.backend.kernels.contraction.convolutions.resum import resum_function


def repair_kernel(form: Form) -> Kernel:
    """buffers: lhs, rhs, result, scratch if any. A unit is the border's."""
    repair = _Repair(form)
    repair.write()
    return repair.kernel()


class _Repair:
    """The kernel being written."""

    def __init__(self, form: Form) -> None:
        self.w = Writer()
        self.form = form
        self.panels = [Panel.of(form, side) for side in (0, 1)]
        buffers = 4 if any(self.panels) else 3
        self.memory = [self.w.buffer_address(k) for k in range(buffers)]
        self.resum = resum_function(form)
        self.packings = [panel.packing() if panel else None for panel in self.panels]

    def kernel(self) -> Kernel:
        form, w = self.form, self.w
        packed = sum(p.size_bytes for p in self.panels if p)
        terms = prod(form.shapes[1].dims) // form.features  # How many a sum has.
        return Kernel(
            w.kernel_function(),
            self.border.units,
            *w.beside,
            functions=(self.resum, *(p for p in self.packings if p)),
            bytes_moved=form.border * form.features * form.dtype.item_bytes,
            flops=2 * form.border * form.features * terms,
            scratch_bytes=packed,
            is_glue=True,
            packed_bytes=packed,
            packed_runs=form.chunks,
        )

    def write(self) -> None:
        w = self.w
        found = w.alloca("i64", 8)
        self.waiting = w.alloca("i64", 8)  # How many positions wait.
        self.chunk = w.alloca("i64", 8)  # The chunk of features that they have.
        self.packed = w.alloca("i64", 8)  # The chunk that is in the panels.
        size = self.form.positions * self.form.entry
        self.entries = w.alloca(f"[{size} x i64]", 8)
        for memory, number in ((self.waiting, 0), (self.chunk, 0), (self.packed, -1)):
            w.store(w.int(number), memory, 8)
        self.border = Border(w, self.form, self.memory[2], found)
        begin, end = BEGIN, END
        if self.form.is_uniform:  # nothing waits from one position to the next
            each = partial(self.border.each_nan, meet=self._wait, after=self._flush_waiting)
            ranged(w, begin, end, each)
            return
        ranged(w, begin, end, partial(self.border.each_nan, meet=self._wait_for_chunk))
        self._flush_waiting()

    def _is_other(self, memory: Value, number: int) -> Value:
        """Whether memory holds another number."""
        return self.w.compare("icmp ne", self.w.load(memory, "i64", 8), self.w.int(number))

    def _flush_waiting(self) -> None:
        when(self.w, self._is_other(self.waiting, 0), self._flush)

    def _wait_for_chunk(self, position: Position) -> None:
        """A position waits beside those of its chunk alone."""
        w = self.w
        other = w.compare("icmp ne", w.load(self.chunk, "i64", 8), position.chunk)
        some = self._is_other(self.waiting, 0)
        when(w, w.binary("and", other, some), self._flush)
        self._wait(position)

    def _wait(self, position: Position) -> None:
        """A position waits until there are enough."""
        w, form, n = self.w, self.form, self.form.labels
        w.store(position.chunk, self.chunk, 8)
        count = w.load(self.waiting, "i64", 8)
        entry = advanced(w, self.entries, times(w, count, form.entry), "i64")
        index = (n.out_batch, *(s.out for s in form.spatial))
        for k, value in enumerate((position.offset, *(position.index[d] for d in index))):
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
        padding = [w.int(s.window.pad_low) for s in self.form.spatial]
        self._call(self.resum, [*factors, self.memory[2], self.entries, chunk, *padding])
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
        w.call_declared(name, *arguments)
