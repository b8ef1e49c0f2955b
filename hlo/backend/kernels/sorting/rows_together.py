"""Sorts of many short rows: a vector's rows at once, by a network (network.py), a row a lane.

    load element j of each row  ->  keys  ->  network  ->  elements of the keys  ->  store

One operand whose elements come back from their keys: all of them, or all but a few values that the
comparator takes for others (JAX's: -0 for 0, every NaN for one). Rows that have such values are
sorted one by one, for their order among equals counts. Other operands follow keys of up to 32 bits,
which have their positions below them then. Along an outer dimension a vector is so many
neighbours; rows that lie side by side are turned in registers.

Zen 3, two threads, of the time of rows one by one: 0.01 to 0.1 up to 40 elements, 0.1 to
0.2 with 200, 0.2 to 0.5 with 1,000.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hlo.analysis.sort_orders import Order
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.sorting import network
from hlo.backend.kernels.sorting.keys import (
    code_of,
    element_of,
    element_of_signed,
    key_of,
    key_of_code,
    signed_key_of_code,
)
from hlo.backend.kernels.sorting.row import Row
from hlo.backend.kernels.sorting.row_kernel import RowKernel
from hlo.backend.lanes import types
from hlo.backend.lanes.open_loops import when
from hlo.backend.lanes.transposed import transposed
from hlo.backend.lanes.types import Lanes
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction

# Elements of a row: pairs grow faster than the passes of a radix sort, of which a key of few bits
# takes few.
_MOST, _MOST_OF_A_BIT = 1024, 64
_MOST_OF_A_BIT_WITH_POSITION = 8
_FEWEST_LANES = 4
_WRITTEN_OUT = 32  # So many records have names of their own; more lie in memory.
_POSITION = (1 << 32) - 1  # Of a record: its low half.


class Together(Struct, frozen=True):
    """How many rows are sorted at once: lanes; by records of so many bytes. is_turned: whether rows
    lie side by side. with_position: records are keys above positions, by which all operands follow.
    """

    row: Row
    bytes: int
    lanes: int
    is_turned: bool
    with_position: bool

    @property
    def is_written_out(self) -> bool:
        """Whether records are values, rather than vectors in memory."""
        return self.row.count <= _WRITTEN_OUT

    @property
    def operations(self) -> int:
        """About how many operations it takes."""
        return 2 * network.comparators(self.row.count) * self.units * self.lanes

    @property
    def width(self) -> int:
        """Elements of a row that are loaded together."""
        return self.lanes if self.is_turned else 1

    @property
    def memory_bytes(self) -> int:
        """What the records take that are no values."""
        is_held = self.with_position or not self.is_written_out
        held = self.row.count if is_held else 0
        return held * self.lanes * self.bytes

    @property
    def groups(self) -> int:
        """Whole vectors of rows that are neighbours."""
        return self.neighbours // self.lanes

    @property
    def neighbours(self) -> int:
        return self.row.rows if self.is_turned else self.row.inner

    @property
    def units(self) -> int:
        return self.row.rows // self.neighbours * self.groups


def together(
    row: Row, orders: tuple[Order, ...], kinds: list[DType], target: Target
) -> Together | None:
    """How rows of operands of these types are sorted many at once; None where they are not."""
    if len(orders) != 1 or target.is_small or row.count < 2:
        return None
    (order,) = orders
    is_alone = len(kinds) == 1 and kinds[0].bits >= 8
    if is_alone and (order.invertible or _is_nearly_invertible(order, kinds[0])):
        most, bits = min(_MOST, _MOST_OF_A_BIT * order.bits), order.bits
    else:
        most, bits, is_alone = _MOST_OF_A_BIT_WITH_POSITION * order.bits, 64, False
    is_turned = row.inner == 1
    if is_turned:
        bounds = [8 * target.vector_bytes // bits, row.rows, row.count]
    else:  # whole lines: rows a power of two apart drive each other's lines out of the caches
        bounds = [8 * target.machine.line_bytes // bits, row.inner]
    lanes = 1 << max(min(bounds).bit_length() - 1, 0)
    is_wide = not is_alone and order.bits > bits // 2
    if row.count > most or lanes < _FEWEST_LANES or is_wide:
        return None
    return Together(row, bits // 8, lanes, is_turned, with_position=not is_alone)


def _is_nearly_invertible(order: Order, dtype: DType) -> bool:
    """Whether the key is the element's, or that of a number that the comparator takes for it."""
    if order.in_float_lanes or order.dtype != dtype or not dtype.is_float:
        return False
    waiting: list[Instruction] = [order.root] if order.root is not None else []
    while waiting:
        top = waiting.pop()
        if top.opcode == "select":
            waiting += top.operands[1:]
        elif top is not order.parameter and top.opcode != "constant":
            return False
    return True


class TogetherSort(Struct):
    """The code of a sort's units. alone: what sorts the row that begins with an element, where
    elements do not come back from their keys."""

    build: RowKernel
    form: Together
    order: Order
    memory: Value
    alone: Callable[[Value], None] | None

    def emit(self) -> None:
        """Each unit is a vector of rows; the last of neighbours has those that are left, too."""
        nest, form = self.build.nest, self.form
        w = nest.w

        def unit(n: Value, _: list[Value]) -> list[Value]:
            outer = w.binary("udiv", n, w.int(form.groups))
            group = w.binary("urem", n, w.int(form.groups))
            first = w.binary("mul", outer, w.int(form.neighbours))
            is_last = w.compare("icmp eq", group, w.int(form.groups - 1))
            rest = form.neighbours - form.groups * form.lanes
            times = w.select(is_last, w.int(2), w.int(1)) if rest else w.int(1)

            def vector(k: Value, _: list[Value]) -> list[Value]:
                start = w.binary("mul", group, w.int(form.lanes))
                more = w.binary("mul", k, w.int(rest))
                self._rows(w.binary("add", first, w.binary("add", start, more)))
                return []

            nest.loop(w.int(0), times, 1, [], vector)
            return []

        nest.loop(BEGIN, END, 1, [], unit)

    def _rows(self, first: Value) -> None:
        """Sort the rows from this one on."""
        nest, w = self.build.nest, self.build.nest.w
        found, differs = self._read(first)

        def sort() -> None:
            if self.form.with_position:
                self._sort_positions(first, found)
            elif self.form.is_written_out:
                records = network.sorted_values(nest, found)
                raws = [self._element(record) for record in records]
                for start in self._starts():
                    self._store(first, w.int(start), raws[start : start + self.form.width])
            else:
                network.sort_memory(nest, self.memory, self.form.row.count, self._record)
                self._store_from_memory(first)

        if self.alone is None:
            sort()
            return
        alone = self.alone

        def one_by_one() -> None:
            def row(lane: Value, _: list[Value]) -> list[Value]:
                alone(self.form.row.base(w, w.binary("add", first, lane)))
                return []

            nest.loop(0, self.form.lanes, 1, [], row)

        is_other = w.any_lane(w.compare("icmp ne", differs, w.zero(differs.type)))
        when(nest, is_other, one_by_one)
        when(nest, w.binary("xor", is_other, w.int(1, "i1")), sort)

    def _sort_positions(self, first: Value, found: list[Value]) -> None:
        """Sort records, of values or in memory, and have all operands follow them."""
        nest, w, form = self.build.nest, self.build.nest.w, self.form
        if found:
            for n, record in enumerate(network.sorted_values(nest, found)):
                w.store(record, self._place(w.int(n), 0))
        else:
            network.sort_memory(nest, self.memory, form.row.count, self._record)

        def follow(lane: Value, _: list[Value]) -> list[Value]:
            base = form.row.base(w, w.binary("add", first, lane))

            def carry(j: Value) -> None:
                at = w.binary("add", w.binary("mul", j, w.int(form.lanes)), lane)
                record = w.load(w.address(self.memory, at, "i64"), "i64")
                self.build.carry(base, j, w.binary("and", record, w.int(_POSITION)))

            self.build.each(carry)
            return []

        nest.loop(0, form.lanes, 1, [], follow)

    # -- tiles: elements of a row that are loaded together ------------------------------------

    def _starts(self) -> list[int]:
        """Where tiles begin; the last one may have elements of the one before."""
        count, width = self.form.row.count, self.form.width
        starts = list(range(0, count - width + 1, width))
        return starts if count % width == 0 else [*starts, count - width]

    def _each_tile(
        self, carried: list[Value], body: Callable[[Value, list[Value]], list[Value]]
    ) -> list[Value]:
        """The same by a loop."""
        nest, count, width = self.build.nest, self.form.row.count, self.form.width
        w = nest.w

        def tile(n: Value, carried: list[Value]) -> list[Value]:
            start = w.binary("mul", n, w.int(width))
            if count % width:
                start = w.intrinsic("llvm.umin", "i64", start, w.int(count - width))
            return body(start, carried)

        return nest.loop(0, -(-count // width), 1, carried, tile)

    def _read(self, first: Value) -> tuple[list[Value], Value]:
        """The rows' keys, as values or in memory, and the bits in which elements differ from those
        that come back from their keys.
        """
        w, found = self.build.nest.w, dict[int, Value]()
        differs = w.zero(vector_of(f"i{max(8, self.order.bits)}", self.form.lanes))
        if self.form.is_written_out:
            for start in self._starts():
                for n, raw in enumerate(self._load(first, w.int(start)), start):
                    found[n], differs = self._record_of(raw, w.int(n), differs)
            return [found[n] for n in range(self.form.row.count)], differs

        def tile(start: Value, carried: list[Value]) -> list[Value]:
            (differs,) = carried
            for n, raw in enumerate(self._load(first, start)):
                key, differs = self._record_of(raw, w.binary("add", start, w.int(n)), differs)
                w.store(key, self._place(start, n))
            return [differs]

        (differs,) = self._each_tile([differs], tile)
        return [], differs

    def _record_of(self, raw: Value, j: Value, differs: Value) -> tuple[Value, Value]:
        """The keys of elements at place j; differs, with the bits in which these differ too."""
        w = self.build.nest.w
        if not self._is_float:
            return _turned(w, self._key(raw, j)), differs
        code = self._code(raw)
        if self.alone is not None:
            other = w.binary("xor", code, _bits(w, raw, code.type))
            differs = w.binary("or", differs, other)
        return signed_key_of_code(self.order, self.build.elemental, code), differs

    def _code(self, raw: Value) -> Value:
        """The bits of a float that its key is made of."""
        return raw if self.order.reads_codes else code_of(*self._read_by_order(raw))

    def _key(self, raw: Value, j: Value) -> Value:
        """Any other key, unsigned, above its element's place j where that is asked for."""
        w = self.build.nest.w
        if self.order.reads_codes:
            key = key_of_code(self.order, self.build.elemental, raw)
        else:
            key = key_of(*self._read_by_order(raw))
        if not self.form.with_position:
            return key
        wide = w.cast("zext", key, self._record)
        key = w.binary("shl", wide, w.int(32, self._record))
        return w.binary("or", key, w.splat(j, self.form.lanes))

    def _read_by_order(self, raw: Value) -> tuple[Order, Elemental, Lanes]:
        build = self.build
        dtype = build.kinds[self.order.operand]
        lanes = types.decoded(build.nest.w, build.nest.target, raw, dtype)
        return self.order, build.elemental, lanes

    @property
    def _is_float(self) -> bool:
        """Whether records are floats' keys alone, which are signed numbers at once."""
        return self.order.dtype.is_float and not self.form.with_position

    def _load(self, first: Value, start: Value) -> list[Value]:
        """A tile's elements of the rows from the first on, as they lie in memory."""
        w, form, type = self.build.nest.w, self.form, self._raw
        if not form.is_turned:
            return [w.load(self._address(self.order.operand, first, start), type)]
        places = self._row_addresses(self.order.operand, first, start)
        rows = [w.load(at, type) for at in places]
        return transposed(self.build.nest, rows)

    def _store(self, first: Value, start: Value, raws: list[Value]) -> None:
        """A tile of the rows' elements."""
        w = self.build.nest.w
        if not self.form.is_turned:
            w.store(raws[0], self._address(1, first, start))
            return
        places = self._row_addresses(1, first, start)
        for raw, place in zip(transposed(self.build.nest, raws), places, strict=True):
            w.store(raw, place)

    def _element(self, key: Value) -> Value:
        """What has this key, as it lies in memory."""
        if self._is_float:
            return element_of_signed(self.order, self.build.elemental, key)
        return element_of(self.order, self.build.elemental, _turned(self.build.nest.w, key))

    def _store_from_memory(self, first: Value) -> None:
        """All elements of the rows, whose keys lie in memory."""
        w, width = self.build.nest.w, self.form.width

        def tile(start: Value, _: list[Value]) -> list[Value]:
            keys = [w.load(self._place(start, n), self._record) for n in range(width)]
            self._store(first, start, [self._element(key) for key in keys])
            return []

        self._each_tile([], tile)

    def _row_addresses(self, leaf: int, first: Value, start: Value) -> list[Value]:
        w = self.build.nest.w
        rows = (w.binary("add", first, w.int(lane)) for lane in range(self.form.lanes))
        return [self._address(leaf, row, start) for row in rows]

    def _address(self, leaf: int, row: Value, j: Value) -> Value:
        w, build = self.build.nest.w, self.build
        return build.row.address(w, build.buffers[leaf], build.row.base(w, row), j, self._storage)

    def _place(self, start: Value, n: int) -> Value:
        w = self.build.nest.w
        return w.address(self.memory, w.binary("add", start, w.int(n)), self._record)

    @property
    def _storage(self) -> str:
        return types.storage_scalar(self.build.kinds[self.order.operand])

    @property
    def _raw(self) -> str:
        return vector_of(self._storage, self.form.lanes)

    @property
    def _record(self) -> str:
        return vector_of(f"i{8 * self.form.bytes}", self.form.lanes)


def _turned(w: Writer, key: Value) -> Value:
    """The highest bit turned over: signed order as unsigned, which 64 bits take longer for."""
    return w.binary("xor", key, w.int(-(1 << (int(key.scalar_type[1:]) - 1)), key.type))


def _bits(w: Writer, lanes: Value, type: str) -> Value:
    return lanes if lanes.type == type else w.cast("bitcast", lanes, type)
