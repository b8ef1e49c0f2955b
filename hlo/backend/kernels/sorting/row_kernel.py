"""Row kernels: what sorts and selections share.

A unit is one row, or some rows together; keys and positions live in the thread's scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.analysis.sort_orders import Order
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.structural import elemental_of
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.sorting.keys import element_of, key_of, key_of_code
from hlo.backend.kernels.sorting.row import Row
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.expression import unsupported
from hlo.backend.loops.schedule import Plan
from hlo.ir.instruction import Instruction

_LIMIT = 1 << 31  # Rows are shorter: positions are 32 bits wide.


class RowKernel:
    """The kernel under construction, of rows along a dimension. temporaries: how many its table
    has besides."""

    def __init__(
        self, instruction: Instruction, target: Target, along: int, temporaries: int = 0
    ) -> None:
        self.instruction = instruction
        self.row = Row.of(instruction.operands[0].shape.dims, along)
        if self.row.count >= _LIMIT:
            raise unsupported(instruction, "of rows of 2^31 elements")
        self.nest = Nest(Writer(), target)
        self.elemental: Elemental = elemental_of(self.nest, target.vector_bytes // 4)
        self.kinds = [o.shape.dtype for o in instruction.operands]
        self.leaves = len(self.kinds) + len(list(instruction.shape.leaves()))
        self.buffers = [self._buffer(k) for k in range(self.leaves + temporaries + 1)]

    def _buffer(self, k: int) -> Value:
        w = self.nest.w
        return w.load_address(w.address(Value("%buffers", "ptr"), w.int(k), "ptr"))

    @property
    def scratch(self) -> Value:
        return self.buffers[-1]

    def kernel(
        self, plan: str, units: int, scratch_bytes: int, flops: int, elements: int | None = None
    ) -> Kernel:
        """The kernel, its code being written; plan: what it does, in a line; elements: that it
        reads of each operand, if not all.
        """
        w = self.nest.w
        w.ret()
        shapes = [o.shape for o in self.instruction.operands]
        moved = sum(
            s.size_bytes if elements is None else elements * s.dtype.item_bytes for s in shapes
        )
        made = Kernel(
            w.function(has_entry=True),
            units,
            *w.beside,
            scratch_bytes=scratch_bytes,
            bytes_moved=2 * moved,
            flops=flops,
        )
        return self.nest.target.shown(made, lambda: Plan((plan,)))

    # -- parts of a row ----------------------------------------------------------------------

    def each_row(self, body: Callable[[Value], None]) -> None:
        """Run the body for each unit's row, which begins with the element of this number."""

        def each(r: Value, _: list[Value]) -> list[Value]:
            body(self.row.base(self.nest.w, r))
            return []

        self.nest.loop(BEGIN, END, 1, [], each)

    def each(self, body: Callable[[Value], None], count: int | None = None) -> None:
        """Run the body for each element of a row, or the first `count` ones."""

        def step(j: Value, _: list[Value]) -> list[Value]:
            body(j)
            return []

        self.nest.loop(0, self.row.count if count is None else count, 1, [], step)

    def key(self, order: Order, base: Value) -> Callable[[Value, int], Value]:
        """The keys of `lanes` neighbours, from position j on."""

        def keys(j: Value, lanes: int) -> Value:
            if order.reads_codes:
                return key_of_code(order, self.elemental, self.raw(order.operand, base, j, lanes))
            return key_of(order, self.elemental, self.element(order.operand, base, j, lanes))

        return keys

    def element(self, operand: int, base: Value, j: Value, lanes: int = 1) -> Lanes:
        """Element(s) j of the row, as compute lanes."""
        w, dtype = self.nest.w, self.kinds[operand]
        storage = types.storage_scalar(dtype)
        if not dtype.is_complex:
            raw = self.raw(operand, base, j, lanes)
            return types.decoded(w, self.nest.target, raw, dtype)
        if lanes > 1:
            raise unsupported(self.instruction, "with a complex key in lanes")
        pair = self.row.address(w, self.buffers[operand], base, j, f"{{{storage}, {storage}}}")
        return w.load(pair, storage), w.load(w.address(pair, w.int(1), storage), storage)

    def raw(self, operand: int, base: Value, j: Value, lanes: int) -> Value:
        """Element(s) j of the row as they lie in memory."""
        w, storage = self.nest.w, types.storage_scalar(self.kinds[operand])
        address = self.row.address(w, self.buffers[operand], base, j, storage)
        return w.load(address, vector_of(storage, lanes))

    # -- results of sorts --------------------------------------------------------------------

    def carry(self, base: Value, j: Value, position: Value) -> None:
        """Every operand's element at `position` to place j of its result."""
        w = self.nest.w
        for k, dtype in enumerate(self.kinds):
            storage = f"i{8 * dtype.item_bytes}"
            source = self.row.address(w, self.buffers[k], base, position, storage)
            place = self.row.address(w, self.buffers[len(self.kinds) + k], base, j, storage)
            w.store(w.load(source, storage), place)

    def restore(self, order: Order, base: Value, j: Value, key: Value) -> None:
        """The element whose key this is to place j of the only result, or so many in a run."""
        w, raw = self.nest.w, element_of(order, self.elemental, key)
        w.store(raw, self.row.address(w, self.buffers[1], base, j, raw.scalar_type))
