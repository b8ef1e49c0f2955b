"""sort: rows sorted one by one, always stably.

A comparator that is a total order on keys (analysis/sort_orders.py): each key becomes unsigned
integers, with the element's position beside them, sorted by radix (radix.py); then every operand is
read by position. Any other comparator: a merge sort of positions (merge.py).
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.analysis.sort_orders import Order, recognised
from hlo.backend.emitters.applied import inlined
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value
from hlo.backend.isa.target import Target
from hlo.backend.kernels.sorting import merge as sort_merge
from hlo.backend.kernels.sorting import network
from hlo.backend.kernels.sorting import radix as sort_radix
from hlo.backend.kernels.sorting.row_kernel import RowKernel
from hlo.backend.kernels.sorting.rows_together import Together, TogetherSort, together
from hlo.backend.lanes.types import Lanes
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.machine import aligned
from hlo.ops.sorting import SortAttributes


def sort_kernel(instruction: Instruction, target: Target) -> Kernel:
    """The kernel of a sort."""
    (along,) = SortAttributes[Computation].of(instruction.attributes).dimensions
    build = _Sort(instruction, target, along)
    scratch = build.sort()
    return build.kernel(build.plan, build.units, scratch, build.operations)


class _Sort(RowKernel):
    """The kernel under construction."""

    plan = ""

    @property
    def units(self) -> int:
        return self.form.units if self.form is not None else self.row.rows

    @property
    def operations(self) -> int:
        """About how many operations it takes."""
        if self.form is not None:
            return self.form.operations
        return self.row_operations * self.row.rows

    form: Together | None = None
    row_operations = 0  # about how many a row by itself takes

    def sort(self) -> int:
        """Emit the rows of a sort; the bytes of scratch that one thread needs."""
        comparator = self.instruction["to_apply"]
        assert isinstance(comparator, Computation)
        orders = recognised(comparator)
        if not orders:
            return self._merged(comparator)
        self.form = together(self.row, orders, self.kinds, self.nest.target)
        if self.form is not None and self.form.with_position:
            return self._together(orders[0], None, 0)
        is_alone = len(orders) == 1 and orders[0].invertible and len(self.kinds) == 1
        if is_alone:
            return self._together(orders[0], None, 0) if self.form else self._keys_alone(orders[0])
        plans = [sort_radix.radix_form(self.row.count, o.bits, with_position=True) for o in orders]
        self.plan = "radix sort with positions: " + ", then ".join(p.text for p in plans[::-1])
        self.row_operations = sum(p.operations for p in plans)
        # Positions between two sorts.
        held = aligned(4 * self.row.count) if len(orders) > 1 else 0

        def sorted_row(base: Value) -> None:
            records = self._sorted_by(orders, plans, base, held)
            self.each(lambda j: self.carry(base, j, plans[0].position(self.nest, records, j)))

        scratch_bytes = held + max(plan.scratch_bytes for plan in plans)
        if self.form is not None:
            return self._together(orders[0], sorted_row, scratch_bytes)
        self.each_row(sorted_row)
        return scratch_bytes

    def _together(self, order: Order, alone: Callable[[Value], None] | None, used: int) -> int:
        """Rows a vector at a time; those that have to be alone have so many bytes of scratch."""
        assert self.form is not None
        w, begin = self.nest.w, aligned(used)
        memory = w.address(self.scratch, w.int(begin), "i8")
        TogetherSort(self, self.form, order, memory, alone).emit()
        pairs = network.comparators(self.row.count)
        self.plan = f"{self.form.lanes} rows of {self.row.count} at once, by {pairs} comparators"
        return begin + self.form.memory_bytes

    def _sorted_by(
        self, orders: tuple[Order, ...], plans: list[sort_radix.RadixForm], base: Value, held: int
    ) -> list[Value]:
        """By the last key first: sorts are stable, so that the first has the last word."""
        w = self.nest.w
        positions = self.scratch
        space = w.address(self.scratch, w.int(held), "i8") if held else self.scratch
        records: list[Value] = []
        for n in range(len(orders) - 1, -1, -1):
            key, plan = self.key(orders[n], base), plans[n]
            if not records:
                lanes = self.elemental.lanes if self.row.inner == 1 else 1
                plan.fill(self.nest, space, key, lanes)
            else:
                self._hold(plans[n + 1], records, positions)
                plan.refill(self.nest, space, key, positions)
            records = plan.sort(self.nest, space)
        return records

    def _hold(self, plan: sort_radix.RadixForm, records: list[Value], positions: Value) -> None:
        w = self.nest.w

        def keep(j: Value) -> None:
            narrow = w.cast("trunc", plan.position(self.nest, records, j), "i32")
            w.store(narrow, w.address(positions, j, "i32"))

        self.each(keep)

    def _keys_alone(self, order: Order) -> int:
        """One operand whose elements come back from their keys: nothing else is moved."""
        plan = sort_radix.radix_form(self.row.count, order.bits, with_position=False)
        self.plan = f"radix sort: {plan.text}"
        self.row_operations = plan.operations

        def sorted_row(base: Value) -> None:
            (records, *_) = self._sorted(order, plan, base)

            def write(j: Value) -> None:
                w = self.nest.w
                key = w.load(w.address(records, j, plan.record), plan.record)
                self.restore(order, base, j, key)

            self.each(write)

        self.each_row(sorted_row)
        return plan.scratch_bytes

    def _merged(self, comparator: Computation) -> int:
        self.plan = f"merge sort of positions: rows of {self.row.count} by {comparator.name}"
        self.row_operations = sort_merge.operations(self.row.count)

        def before(base: Value, left: Value, right: Value) -> Value:
            given: list[tuple[Lanes, ...]] = []
            for k in range(len(self.kinds)):
                given += [(self.element(k, base, left),), (self.element(k, base, right),)]
            values = dict(zip(comparator.parameters, given, strict=True))
            (result,) = inlined(self.elemental.nest, comparator.root, values)
            assert isinstance(result, Value), "a pred"
            return result

        def sorted_row(base: Value) -> None:
            positions = sort_merge.merged(
                self.nest, self.row.count, self.scratch, lambda a, b: before(base, a, b)
            )

            def carry(j: Value) -> None:
                w = self.nest.w
                narrow = w.load(w.address(positions, j, "i32"), "i32")
                self.carry(base, j, w.cast("zext", narrow, "i64"))

            self.each(carry)

        self.each_row(sorted_row)
        return sort_merge.scratch_bytes(self.row.count)

    def _sorted(self, order: Order, plan: sort_radix.RadixForm, base: Value) -> list[Value]:
        """Keys written to scratch and sorted: the addresses of the columns of records."""
        lanes = self.elemental.lanes if self.row.inner == 1 else 1
        plan.fill(self.nest, self.scratch, self.key(order, base), lanes)
        return plan.sort(self.nest, self.scratch)
