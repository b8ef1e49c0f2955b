"""sort, topk: rows sorted one by one, always stably.

A comparator that is a total order on keys (sort_order.py): each key becomes unsigned integers,
with the element's position beside them, sorted by radix (sort_radix.py); then every operand is read
by position. Any other comparator: a merge sort of positions (sort_merge.py). A topk of few
elements scans the row once (topk_scan.py).
A unit is one row; positions and keys live in the thread's scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.emitters.applied import inlined
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.structural import elemental_of
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.sorting import merge as sort_merge
from hlo.backend.kernels.sorting import radix as sort_radix
from hlo.backend.kernels.sorting import topk_scan
from hlo.backend.kernels.sorting.order import Order, recognised
from hlo.backend.kernels.sorting.row import Row
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.expression import unsupported
from hlo.backend.loops.schedule import Plan
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ops.sorting import SortAttributes, TopKAttributes

_LIMIT = 1 << 31  # positions are 32 bits wide


def sort_kernel(instruction: Instruction, target: Target) -> Kernel:
    """The kernel of a sort or topk instruction."""
    shape = instruction.operands[0].shape
    if instruction.opcode == "topk":
        along = shape.rank - 1
    else:
        (along,) = SortAttributes[Computation].of(instruction.attributes).dimensions
    row = Row.of(shape.dims, along)
    if row.count >= _LIMIT:
        raise unsupported(instruction, "of rows of 2^31 elements")
    w = Writer()
    nest = Nest(w, target)
    lanes = target.vector_bytes // 4
    build = _Build(nest, elemental_of(nest, lanes), instruction, row)
    scratch = build.topk() if instruction.opcode == "topk" else build.sort()
    w.ret()
    moved = sum(o.shape.size_bytes for o in instruction.operands)
    made = Kernel(
        w.function(has_entry=True),
        row.rows,
        *w.beside,
        scratch_bytes=scratch,
        bytes_moved=2 * moved,
        flops=row.rows * row.count * max(1, row.count.bit_length()) * 2,
    )
    return target.shown(made, lambda: Plan((build.plan,)))


class _Build:
    """The kernel under construction."""

    def __init__(
        self, nest: Nest, elemental: Elemental, instruction: Instruction, row: Row
    ) -> None:
        self.nest = nest
        self.elemental = elemental
        self.instruction = instruction
        self.row = row
        self.kinds = [o.shape.dtype for o in instruction.operands]
        leaves = len(self.kinds) + (2 if instruction.opcode == "topk" else len(self.kinds))
        self.buffers = [self._buffer(k) for k in range(leaves + 1)]
        self.plan = ""

    def _buffer(self, k: int) -> Value:
        w = self.nest.w
        return w.load_address(w.address(Value("%buffers", "ptr"), w.int(k), "ptr"))

    @property
    def scratch(self) -> Value:
        return self.buffers[-1]

    # -- the three forms ---------------------------------------------------------------------

    def sort(self) -> int:
        """Emit the rows of a sort; the bytes of scratch that one thread needs."""
        comparator = self.instruction["to_apply"]
        assert isinstance(comparator, Computation)
        orders = recognised(comparator)
        if not orders:
            return self._merged(comparator)
        if len(orders) == 1 and orders[0].invertible and len(self.kinds) == 1:
            return self._keys_alone(orders[0])
        plans = [sort_radix.radix_form(self.row.count, o.bits, with_position=True) for o in orders]
        self.plan = "radix sort with positions: " + ", then ".join(p.text for p in plans[::-1])
        held = 4 * self.row.count if len(orders) > 1 else 0  # positions between two sorts
        held = -(-held // 64) * 64

        def sorted_row(base: Value) -> None:
            records = self._sorted_by(orders, plans, base, held)
            self._each(lambda j: self._carry(base, j, plans[0].position(self.nest, records, j)))

        self._rows(sorted_row)
        return held + max(plan.scratch_bytes for plan in plans)

    def _sorted_by(
        self, orders: tuple[Order, ...], plans: list[sort_radix.RadixForm], base: Value, held: int
    ) -> list[Value]:
        """By the last key first: sorts are stable, so that the first has the last word."""
        w = self.nest.w
        positions = self.scratch
        space = w.address(self.scratch, w.int(held), "i8") if held else self.scratch
        records: list[Value] = []
        for n in range(len(orders) - 1, -1, -1):
            key, plan = self._key(orders[n], base), plans[n]
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

        self._each(keep)

    def topk(self) -> int:
        """The first k of the descending (or ascending) total order, with their positions."""
        dtype = self.kinds[0]
        largest = TopKAttributes.of(self.instruction.attributes).largest
        order = Order(0, dtype, largest, total=True)
        plan = sort_radix.radix_form(self.row.count, order.bits, with_position=True)
        k = self.instruction.shape.elements[0].dims[-1]
        storage = _storage(self.kinds[0].item_bytes)
        self.plan = f"radix sort with positions: {plan.text}, of which {k} are taken"
        scans = topk_scan.pays(self.row.count, order.bits, k)

        def best(base: Value) -> None:
            w = self.nest.w
            row = w.binary("udiv", base, w.int(max(1, self.row.count)))
            start = w.binary("mul", row, w.int(k))
            if scans:
                shape = (self.row.count, k)
                key = self._key(order, base)
                topk_scan.scanned(self.nest, self.scratch, key, shape, self.elemental.lanes)
                records = [self.scratch]
            else:
                records = self._sorted(order, plan, base)

            def write(j: Value) -> None:
                position = plan.position(self.nest, records, j)
                at = w.binary("add", base, position)
                place = w.binary("add", start, j)
                value = w.load(w.address(self.buffers[0], at, storage), storage)
                w.store(value, w.address(self.buffers[1], place, storage))
                index = w.cast("trunc", position, "i32")
                w.store(index, w.address(self.buffers[2], place, "i32"))

            self._each(write, k)

        self._rows(best)
        if scans:
            self.plan = f"scan: the best {k} held, vectors compared with the least of them"
            return topk_scan.scratch_bytes(k, order.bits, self.elemental.lanes)
        return plan.scratch_bytes

    def _keys_alone(self, order: Order) -> int:
        """One operand whose elements come back from their keys: nothing else is moved."""
        plan = sort_radix.radix_form(self.row.count, order.bits, with_position=False)
        self.plan = f"radix sort: {plan.text}"

        def sorted_row(base: Value) -> None:
            (records, *_) = self._sorted(order, plan, base)

            def write(j: Value) -> None:
                w = self.nest.w
                key = w.load(w.address(records, j, plan.record), plan.record)
                raw = order.element(self.elemental, key)
                w.store(raw, self.row.address(w, self.buffers[1], base, j, raw.type))

            self._each(write)

        self._rows(sorted_row)
        return plan.scratch_bytes

    def _merged(self, comparator: Computation) -> int:
        self.plan = f"merge sort of positions: rows of {self.row.count} by {comparator.name}"

        def before(base: Value, left: Value, right: Value) -> Value:
            given: list[tuple[Lanes, ...]] = []
            for k in range(len(self.kinds)):
                given += [(self._element(k, base, left),), (self._element(k, base, right),)]
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
                self._carry(base, j, w.cast("zext", narrow, "i64"))

            self._each(carry)

        self._rows(sorted_row)
        return sort_merge.scratch_bytes(self.row.count)

    # -- parts of a row ----------------------------------------------------------------------

    def _rows(self, body: Callable[[Value], None]) -> None:
        def each(r: Value, _: list[Value]) -> list[Value]:
            body(self.row.base(self.nest.w, r))
            return []

        self.nest.loop(BEGIN, END, 1, [], each)

    def _each(self, body: Callable[[Value], None], count: int | None = None) -> None:
        def step(j: Value, _: list[Value]) -> list[Value]:
            body(j)
            return []

        self.nest.loop(0, self.row.count if count is None else count, 1, [], step)

    def _sorted(self, order: Order, plan: sort_radix.RadixForm, base: Value) -> list[Value]:
        """Keys written to scratch and sorted: the addresses of the columns of records."""
        lanes = self.elemental.lanes if self.row.inner == 1 else 1
        plan.fill(self.nest, self.scratch, self._key(order, base), lanes)
        return plan.sort(self.nest, self.scratch)

    def _key(self, order: Order, base: Value) -> Callable[[Value, int], Value]:
        """The keys of `lanes` neighbours, from position j on."""

        def key(j: Value, lanes: int) -> Value:
            if order.reads_codes:
                return order.key_of_code(self.elemental, self._raw(order.operand, base, j, lanes))
            return order.key(self.elemental, self._element(order.operand, base, j, lanes))

        return key

    def _element(self, operand: int, base: Value, j: Value, lanes: int = 1) -> Lanes:
        """Element(s) j of the row, as compute lanes."""
        w, dtype = self.nest.w, self.kinds[operand]
        storage = types.storage_scalar(dtype)
        if not dtype.is_complex:
            raw = self._raw(operand, base, j, lanes)
            return types.decoded(w, self.nest.target, raw, dtype)
        if lanes > 1:
            raise unsupported(self.instruction, "with a complex key in lanes")
        pair = self.row.address(w, self.buffers[operand], base, j, f"{{{storage}, {storage}}}")
        return w.load(pair, storage), w.load(w.address(pair, w.int(1), storage), storage)

    def _raw(self, operand: int, base: Value, j: Value, lanes: int) -> Value:
        """Element(s) j of the row as they lie in memory."""
        w, storage = self.nest.w, types.storage_scalar(self.kinds[operand])
        address = self.row.address(w, self.buffers[operand], base, j, storage)
        return w.load(address, vector_of(storage, lanes))

    def _carry(self, base: Value, j: Value, position: Value) -> None:
        """Every operand's element at `position` to place j of its result."""
        w = self.nest.w
        for k, dtype in enumerate(self.kinds):
            storage = _storage(dtype.item_bytes)
            source = self.row.address(w, self.buffers[k], base, position, storage)
            place = self.row.address(w, self.buffers[len(self.kinds) + k], base, j, storage)
            w.store(w.load(source, storage), place)


def _storage(item_bytes: int) -> str:
    return f"i{8 * item_bytes}"
