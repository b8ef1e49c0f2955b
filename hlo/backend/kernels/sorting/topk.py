"""topk: the first k of each row's total order, equal elements in the order of their positions.

Four ways, the first that pays: many short rows at once, a row a lane (topk_rows.py); one pass that
keeps a sorted list of few (topk_scan.py); one pass that sorts what passes a bound (topk_filter.py);
a radix sort of the row (radix.py).
"""

from __future__ import annotations

from hlo.analysis.sort_orders import Order
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value
from hlo.backend.isa.target import Target
from hlo.backend.kernels.sorting import topk_scan
from hlo.backend.kernels.sorting.radix import radix_form
from hlo.backend.kernels.sorting.row_kernel import RowKernel
from hlo.backend.kernels.sorting.topk_filter import Filter
from hlo.backend.kernels.sorting.topk_rows import RowLanes
from hlo.ir.instruction import Instruction
from hlo.ops.sorting import TopKAttributes

_READ_OPS = 4  # Operations for each element of a row that is only looked at.


def topk_kernel(instruction: Instruction, target: Target) -> Kernel:
    """The kernel of a topk."""
    return _TopK(instruction, target).written()


class _TopK(RowKernel):
    """The kernel under construction."""

    def __init__(self, instruction: Instruction, target: Target) -> None:
        super().__init__(instruction, target, instruction.operands[0].shape.rank - 1)
        largest = TopKAttributes.of(instruction.attributes).largest
        self.order = Order(0, self.kinds[0], largest, total=True)
        self.k = instruction.shape.elements[0].dims[-1]

    def written(self) -> Kernel:
        row, bits, machine = self.row, self.order.bits, self.nest.target.machine
        sizes = (machine.vector_bytes, machine.registers)
        together = RowLanes(row.rows, row.count, self.k, bits, *sizes)
        if together.pays:
            return self._together(together)
        if topk_scan.pays(row.count, bits, self.k):
            return self._scanned()
        few = Filter(row.count, self.k, bits, self.elemental.lanes)
        return self._filtered(few) if few.pays else self._sorted()

    def _together(self, form: RowLanes) -> Kernel:
        w = self.nest.w

        def unit(n: Value, _: list[Value]) -> list[Value]:
            first = w.binary("mul", n, w.int(form.lanes))
            form.best(self.nest, self.scratch, self._key_of_row, first)
            rest = w.binary("sub", w.int(self.row.rows), first)

            def row(lane: Value, _: list[Value]) -> list[Value]:
                number = w.binary("add", first, lane)

                def write(t: Value) -> None:
                    self._write(number, t, form.position(self.nest, self.scratch, t, lane))

                self.each(write, self.k)
                return []

            valid = w.intrinsic("llvm.umin", "i64", rest, w.int(form.lanes))
            self.nest.loop(w.int(0), valid, 1, [], row)
            return []

        self.nest.loop(BEGIN, END, 1, [], unit)
        plan = f"{form.lanes} rows at once: the best {self.k} of each held, all elements enter"
        steps = self.row.rows * self.row.count * self.k
        return self.kernel(plan, form.units, form.scratch_bytes, 2 * steps)

    def _key_of_row(self, row: Value, j: Value, lanes: int) -> Value:
        return self.key(self.order, self.row.base(self.nest.w, row))(j, lanes)

    def _scanned(self) -> Kernel:
        shape, lanes = (self.row.count, self.k), self.elemental.lanes

        def best(base: Value) -> None:
            key = self.key(self.order, base)
            topk_scan.scanned(self.nest, self.scratch, key, shape, lanes)
            self._write_records(base, [self.scratch])

        self.each_row(best)
        plan = f"scan: the best {self.k} held, vectors compared with the least of them"
        scratch = topk_scan.scratch_bytes(self.k, self.order.bits, lanes)
        return self.kernel(plan, self.row.rows, scratch, self._reading())

    def _filtered(self, form: Filter) -> Kernel:
        def best(base: Value) -> None:
            form.filtered(self.nest, self.scratch, self.key(self.order, base))
            self._write_records(base, [self.scratch])

        self.each_row(best)
        plan = f"filter: the best {self.k} sorted out of buffers of {form.buffer}"
        return self.kernel(plan, self.row.rows, form.scratch_bytes, self._reading())

    def _sorted(self) -> Kernel:
        form = radix_form(self.row.count, self.order.bits, with_position=True)

        def best(base: Value) -> None:
            form.fill(self.nest, self.scratch, self.key(self.order, base), self.elemental.lanes)
            self._write_records(base, form.sort(self.nest, self.scratch))

        self.each_row(best)
        plan = f"radix sort with positions: {form.text}, of which {self.k} are taken"
        return self.kernel(plan, self.row.rows, form.scratch_bytes, self.row.rows * form.operations)

    def _reading(self) -> int:
        return _READ_OPS * self.row.rows * self.row.count

    def _write_records(self, base: Value, records: list[Value]) -> None:
        """The first k records of the row that begins with element `base`."""
        w = self.nest.w
        form = radix_form(self.row.count, self.order.bits, with_position=True)
        row = w.binary("udiv", base, w.int(max(1, self.row.count)))
        self.each(lambda t: self._write(row, t, form.position(self.nest, records, t)), self.k)

    def _write(self, row: Value, t: Value, position: Value) -> None:
        """A row's t-th element and its place: that of `position`."""
        w = self.nest.w
        storage = f"i{8 * self.kinds[0].item_bytes}"
        at = w.binary("add", self.row.base(w, row), position)
        place = w.binary("add", w.binary("mul", row, w.int(self.k)), t)
        value = w.load(w.address(self.buffers[0], at, storage), storage)
        w.store(value, w.address(self.buffers[1], place, storage))
        w.store(w.cast("trunc", position, "i32"), w.address(self.buffers[2], place, "i32"))
