"""One long row sorted by several threads: its parts are dealt into buckets, and these sorted.

    sample  ->  fill (parts)  ->  deal (parts)  ->  sort (buckets);   for each key, the last first

Of a sample's keys some are bounds between buckets. A part makes its records (radix.py), finds the
bucket of each and counts them; then it moves them behind those of lesser buckets, and those of its
bucket in the parts before it. A bucket is sorted by radix: from the least key's distance, whose
bits are few, so that most buckets take a pass less than the row would. Each step keeps the order of
equal keys, so that there is one result, the stable order: bits depend neither on threads nor on the
sample, and are those of the kernel of rows (sort.py). Equal keys share a bucket, whose digits agree
then, and are passed over.

Zen 4, two threads, of the time of the kernel of rows: numbers alone 0.77 to 0.63 (32 thousand to a
million), with others that follow them 0.65 to 0.85.

Source: samplesort of Frazer and McKellar 1970; after it the radix sort of each bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hlo.analysis.sort_orders import Order, recognised
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence
from hlo.backend.ir.values import vector_of
from hlo.backend.ir.writer import Value
from hlo.backend.isa.target import Target
from hlo.backend.kernels.sorting.buckets import BUCKETS, PLACES_BYTES, Buckets, Parts
from hlo.backend.kernels.sorting.radix import MOVED, Key, RadixForm, radix_form
from hlo.backend.kernels.sorting.row_kernel import RowKernel
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ops.sorting import SortAttributes

_LEAST = 9 << 11  # Shorter rows gain nothing from it: they are one unit's.
_SAMPLED = 16  # Keys of the sample for each bucket.
# What a record takes in each kernel, in plain operations.
_FILL, _DEAL, _SORT = MOVED, MOVED, 3 * MOVED


def long_row_kernels(instruction: Instruction, target: Target) -> KernelSequence | None:
    """The kernels of a sort of one long row by known keys; None for other sorts, and where no
    threads share it: the kernel of rows moves each record less often."""
    if target.is_alone or target.is_small:
        return None
    attrs = SortAttributes[Computation].of(instruction.attributes)
    (along,) = attrs.dimensions
    x = instruction.operands[0].shape
    if x.size != x.dims[along] or not _LEAST <= x.size < 1 << 31:
        return None
    orders = recognised(attrs.to_apply)
    if not orders:
        return None
    alone = len(orders) == 1 and orders[0].invertible and len(instruction.operands) == 1
    sequence = _Sequence(instruction, target, along)
    calls: list[KernelCall] = []
    for n in range(len(orders) - 1, -1, -1):
        form = radix_form(x.size, orders[n].bits, with_position=not alone)
        is_first, is_last = n == len(orders) - 1, n == 0
        calls += sequence.by(orders[n], form, is_first=is_first, is_last=is_last)
    return KernelSequence(tuple(calls), sequence.sizes(holds=len(orders) > 1))


class _Sequence:
    """The sequence under construction. Every kernel's table: operands, results, then both copies
    of records and of positions beside them, each record's bucket, counters, bounds, and between two
    keys the order found so far."""

    def __init__(self, instruction: Instruction, target: Target, along: int) -> None:
        self.instruction, self.target, self.along = instruction, target, along
        self.parts = Parts(instruction.operands[0].shape.size)
        self.record_bytes, self.position_bytes = 0, 0

    def sizes(self, *, holds: bool) -> tuple[int, ...]:
        """Of the temporaries; holds: whether there is a second key."""
        count = self.parts.count
        return (
            *2 * (count * self.record_bytes,), *2 * (count * self.position_bytes,), count,
            4 * BUCKETS * self.parts.number, 8 * BUCKETS, 4 * count * holds,
        )  # fmt: skip

    def by(
        self, order: Order, form: RadixForm, *, is_first: bool, is_last: bool
    ) -> list[KernelCall]:
        """The kernels that sort by one key; is_first: nothing was sorted before."""
        self.record_bytes = max(self.record_bytes, form.record_bytes)
        self.position_bytes = max(self.position_bytes, 4 * form.beside)
        made = [
            _Kernel(self.instruction, self.target, self.along, order, form, is_first=is_first)
            for _ in range(4)
        ]
        kernels = made[0].sample(), made[1].fill(), made[2].deal(), made[3].sort(is_last=is_last)
        return [KernelCall(kernel, tuple(range(made[0].leaves + 8))) for kernel in kernels]


class _Kernel(RowKernel):
    """A kernel under construction."""

    def __init__(
        self,
        instruction: Instruction,
        target: Target,
        along: int,
        order: Order,
        form: RadixForm,
        *,
        is_first: bool,
    ) -> None:
        super().__init__(instruction, target, along, temporaries=8)
        self.order, self.form, self.is_first = order, form, is_first
        self.parts = Parts(self.row.count)
        self.base = self.nest.w.int(0)
        self.key_of: Key = self.key(order, self.base)
        # The temporaries that kernels hand on.
        a, b, c, d, numbers, counters, bounds, _ = self.buffers[self.leaves : -1]
        copies = ([a, c], [b, d]) if form.beside else ([a], [b])
        self.buckets = Buckets(self.nest, form, self.parts, copies, numbers, counters, bounds)

    def _position(self, j: Value) -> Value:
        """Where in the row the j-th element is, as far as it is sorted."""
        if self.is_first:
            return j
        w = self.nest.w
        return w.cast("zext", w.load(w.address(self.held, j, "i32"), "i32"), "i64")

    @property
    def held(self) -> Value:
        """Where positions stand between the sorts by two keys."""
        return self.buffers[-2]

    @property
    def _is_alone(self) -> bool:
        """Whether elements are made from their keys."""
        return not (self.form.joined or self.form.beside)

    def _finished(self, plan: str, units: int, scratch: int, operations: int) -> Kernel:
        return self.kernel(plan, units, scratch, operations * self.row.count)

    def _each(self, body: Callable[[Value], None]) -> None:
        def each(unit: Value, _: list[Value]) -> list[Value]:
            body(unit)
            return []

        self.nest.loop(BEGIN, END, 1, [], each)

    def _in_turn(
        self, low: Value, high: Value, lanes: int, body: Callable[[Value, int], None]
    ) -> None:
        """body(j, lanes) for whole vectors of a range, then for the rest one by one."""
        w = self.nest.w

        def step(width: int) -> Callable[[Value, list[Value]], list[Value]]:
            def run(j: Value, _: list[Value]) -> list[Value]:
                body(j, width)
                return []

            return run

        self.nest.loop(low, high, lanes, [], step(lanes))
        if lanes > 1:
            rest = w.binary("urem", w.binary("sub", high, low), w.int(lanes))
            self.nest.loop(w.binary("sub", high, rest), high, 1, [], step(1))

    # -- the four kernels --------------------------------------------------------------------

    def sample(self) -> Kernel:
        """Keys from all over the row, not quite evenly far apart; of the sorted ones some."""
        w, nest = self.nest.w, self.nest
        count = _SAMPLED * BUCKETS
        form = radix_form(count, self.order.bits, with_position=False)
        step = self.row.count // count

        def take(i: Value, _: list[Value]) -> list[Value]:
            scrambled = w.binary("mul", i, w.int(0x9E3779B1))
            aside = w.binary("urem", scrambled, w.int(step))
            j = w.binary("add", w.binary("mul", i, w.int(step)), aside)
            w.store(self.key_of(self._position(j), 1), w.address(self.scratch, i, form.record))
            return []

        def bound(i: Value, _: list[Value]) -> list[Value]:
            at = w.binary("mul", w.binary("add", i, w.int(1)), w.int(_SAMPLED))
            key = w.load(w.address(records, at, form.record), form.record)
            w.store(key, w.address(self.buckets.bounds, i, form.record))
            return []

        nest.loop(0, count, 1, [], take)
        (records,) = form.sort(nest, self.scratch)
        nest.loop(0, BUCKETS - 1, 1, [], bound)
        plan = f"bounds between {BUCKETS} buckets of a long row, of {count} keys"
        return self.kernel(plan, 1, form.scratch_bytes, _SORT * count, count)

    def fill(self) -> Kernel:
        """The records of each part and their buckets."""
        lanes = self.elemental.lanes if self.is_first else 1
        bounds = self.buckets.loaded_bounds()

        def part(number: Value) -> None:
            low, high = self.parts.bounds(self.nest.w, number)
            self._in_turn(low, high, lanes, self._write)
            self.buckets.find(bounds, number, (low, high), self.elemental.lanes)

        self._each(part)
        plan = f"records of {self.parts.number} parts of {self.parts.size}, and their buckets"
        return self._finished(plan, self.parts.number, 0, _FILL)

    def _write(self, j: Value, lanes: int) -> None:
        """The records of elements from the j-th on."""
        at = self._position(j)
        self.form.write(self.nest, self.buckets.copies[0], j, self.key_of(at, lanes), at)

    def deal(self) -> Kernel:
        """Each part's records into the buckets."""

        def part(number: Value) -> None:
            self.buckets.deal(number, self.parts.bounds(self.nest.w, number), self.scratch)

        self._each(part)
        plan = f"records of {self.parts.number} parts dealt into {BUCKETS} buckets"
        return self._finished(plan, self.parts.number, PLACES_BYTES, _DEAL)

    def sort(self, *, is_last: bool) -> Kernel:
        """Each bucket, and what becomes of it: results, or the order to sort again."""
        lanes = self.elemental.lanes if self._is_alone else 1

        def bucket(number: Value) -> None:
            low, high = self.buckets.limits(number, self.scratch)
            records = self.buckets.sorted(low, high, self.scratch)
            self._in_turn(low, high, lanes, partial(self._finish, records, is_last=is_last))

        self._each(bucket)
        plan = f"{BUCKETS} buckets of a long row, radix sort by distances from the least key"
        return self._finished(plan, BUCKETS, self.buckets.scratch_bytes, _SORT)

    def _finish(self, records: list[Value], j: Value, lanes: int, *, is_last: bool) -> None:
        """What the j-th sorted record says: an element, or a position."""
        w, form = self.nest.w, self.form
        if self._is_alone:
            type = vector_of(form.record, lanes)
            key = w.load(w.address(records[0], j, form.record), type)
            self.restore(self.order, self.base, j, key)
            return
        position = form.position(self.nest, records, j)
        if is_last:
            self.carry(self.base, j, position)
        else:
            w.store(w.cast("trunc", position, "i32"), w.address(self.held, j, "i32"))
