"""scatter: updates combined into the operand's memory, position after position.

    for s in scatter positions, row-major: p = start(s); if the window at p lies inside:
        for w in the window: operand[p + w] = f(operand[p + w], update[s, w])

The result is the operand's memory (the plan copies it first if it is still needed). Positions run
in order, so that duplicates combine as the reference does. The units of the kernel are batches, if
the outermost loop counts those, or, where windows are long, parts of the window: they never meet,
and any split gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from hlo.analysis.blocking import number
from hlo.analysis.scatters import computed_scatter
from hlo.backend.emitters.applied import inlined
from hlo.backend.emitters.structural import elemental_of
from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.scatter.computed import (
    COMPUTED_PART,
    ComputedUpdates,
    computed_lanes,
    computed_parts,
    members,
)
from hlo.backend.kernels.scatter.window import Loop, joined, pieces
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import known_or, when
from hlo.backend.lanes.types import Lanes, parts
from hlo.backend.loops.schedule import Plan
from hlo.indexing.affine import row_major_strides
from hlo.indexing.queries import written_dims
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32, DType
from hlo.ir.instruction import Instruction
from hlo.ops.indexing import ScatterAttributes

_PART = 128  # Elements of the innermost window dimension that are worth a unit.
_MOST_PARTS = 16
# Single elements of one round of the loop: an element is as little work as the loop around it.
_TOGETHER = 4


def scatter_kernel(instruction: Instruction, target: Target) -> Kernel:
    """The kernel of a scatter."""
    w, whole = Writer(), instruction
    instruction = computed_scatter(whole) or whole
    is_computing = whole is not instruction
    form = _ScatterForm.of(instruction, is_computing=is_computing)
    build = _Build(Nest(w, target), whole, instruction, form)
    build.emit()
    w.ret()
    updates = instruction.operands[build.count + 1 :]
    each = 1 + members(updates[0]) if is_computing else 1
    elements = each * sum(u.shape.size for u in updates)
    made = Kernel(
        w.function(has_entry=True),
        form.units,
        *w.beside,
        must_alias=frozenset((leaf, k) for k, leaf in enumerate(build.leaves[: build.count])),
        bytes_moved=3 * sum(u.shape.size_bytes for u in updates),
        # Single elements are added one after the other, each in the time of a vector.
        flops=elements if form.window else elements * target.lanes(F32),
    )
    return target.shown(made, lambda: Plan((form.text,)))


class _Start(Struct, frozen=True):
    """Where operand dimension `dim` starts: an index component, or a batch coordinate.

    limit: the greatest start with the window inside; negative: the window never fits.
    """

    stride: int
    limit: int
    component: int | None
    position: int  # Where the batch coordinate stands among the scatter loops.


class _ScatterForm(Struct, frozen=True):
    """positions: the scatter loops' sizes; update_strides, index_strides: per scatter loop;
    update_dims: the updates' dimensions that they are.
    """

    positions: tuple[int, ...]
    update_dims: tuple[int, ...]
    update_strides: tuple[int, ...]
    index_strides: tuple[int, ...]
    component_stride: int
    starts: tuple[_Start, ...]
    window: tuple[Loop, ...]
    is_plain: bool  # One operand, of real numbers.
    is_sorted: bool
    is_computing: bool  # Updates are made here.

    @property
    def is_batched(self) -> bool:
        """Whether the outermost loop over positions is a batch: its windows meet no other's."""
        is_batch = any(start.position == 0 for start in self.starts)
        return is_batch and self.positions[0] > 1

    @property
    def units(self) -> int:
        """Batches, or parts of the innermost window dimension."""
        if not math.prod(self.positions):
            return 1
        if self.is_batched:
            return self.positions[0]
        if not self.window:
            return 1
        if not self.is_computing:
            return max(1, min(_MOST_PARTS, self.window[-1].size // _PART))
        parted = self.window[0 if self.is_split_outside else -1].size
        return computed_parts(math.prod(loop.size for loop in self.window), parted, _MOST_PARTS)

    @property
    def is_split_outside(self) -> bool:
        """Whether units are parts of the outermost window dimension, where they compute and the
        innermost one is too short to be parted.
        """
        is_short = len(self.window) > 1 and self.window[-1].size < 2 * COMPUTED_PART
        return self.is_computing and is_short

    @property
    def may_fit(self) -> bool:
        """Whether any window lies inside."""
        return all(start.limit >= 0 for start in self.starts if start.component is not None)

    @property
    def is_in_registers(self) -> bool:
        """Whether single elements that were just combined stay in a register for the next ones:
        where neighbours are likely to be the same, as sorted ones are, and pairs (distances between
        rows and columns). Where they never are, asking takes half as long again.
        """
        indexed = any(start.component is not None for start in self.starts)
        loops = len(self.positions) - self.is_batched  # batches are units
        is_row = loops > 0 and self.positions[-1] > 1
        is_likely = self.is_sorted or loops > 1
        is_element = self.is_plain and not self.window and self.may_fit
        return is_element and indexed and is_row and is_likely

    @property
    def text(self) -> str:
        """What it says, in a line."""
        batch_dims = " x ".join(map(str, self.positions)) or "1"
        window = " x ".join(str(loop.size) for loop in self.window) or "1"
        order = "side by side in the first, else " if self.is_batched else ""
        kept = ", the last in a register" if self.is_in_registers else ""
        made = ", computed where they are combined" if self.is_computing else ""
        windows = f"{batch_dims} windows of {window} elements{made}"
        return f"scatter: {windows}, {order}one after the other{kept}"

    @staticmethod
    def of(instruction: Instruction, *, is_computing: bool = False) -> _ScatterForm:
        """What the attributes say about loops and strides."""
        count = len(instruction.operands) // 2
        dims = instruction.operands[0].shape.dims
        index_dims = instruction.operands[count].shape.dims
        update_dims = instruction.operands[count + 1].shape.dims
        attrs: ScatterAttributes[Computation] = ScatterAttributes.of(instruction.attributes)
        window_dims, vector = attrs.update_window_dims, attrs.index_vector_dim
        scatter_dims = [d for d in range(len(update_dims)) if d not in window_dims]
        batch_dims = [d for d in range(len(index_dims)) if d != vector]
        update_strides, index_strides = (
            row_major_strides(update_dims),
            row_major_strides(index_dims),
        )
        along = {d: k for d, k in enumerate(written_dims(instruction)) if k is not None}
        spread = {d: k for d, k in along.items() if k in window_dims}
        sizes = {d: update_dims[k] for d, k in spread.items()}
        window = [
            Loop(update_dims[k], row_major_strides(dims)[d], update_strides[k], k)
            for d, k in spread.items()
        ]
        batches = {d: scatter_dims.index(k) for d, k in along.items() if k in scatter_dims}
        return _ScatterForm(
            tuple(update_dims[d] for d in scatter_dims),
            tuple(scatter_dims),
            tuple(update_strides[d] for d in scatter_dims),
            tuple(index_strides[d] for d in batch_dims),
            index_strides[vector] if vector < len(index_dims) else 0,
            _starts(attrs, dims, sizes, batches),
            tuple(loop for loop in window if loop.size != 1) if is_computing else joined(window),
            is_plain=count == 1 and not instruction.operands[0].shape.dtype.is_complex,
            is_sorted=attrs.indices_are_sorted,
            is_computing=is_computing,
        )


def _starts(
    attrs: ScatterAttributes[Computation],
    dims: Sequence[int],
    sizes: dict[int, int],
    batches: dict[int, int],
) -> tuple[_Start, ...]:
    strides = row_major_strides(dims)
    indexed = [
        _Start(strides[d], dims[d] - sizes.get(d, 1), component, -1)
        for component, d in enumerate(attrs.scatter_dims_to_operand_dims)
    ]
    batched = (_Start(strides[d], dims[d] - 1, None, k) for d, k in batches.items())
    return (*indexed, *batched)


class _Build:
    """The kernel under construction."""

    def __init__(
        self, nest: Nest, whole: Instruction, instruction: Instruction, form: _ScatterForm
    ) -> None:
        """whole: the scatter, or the fusion of it and what makes its updates."""
        self.nest = nest
        self.form = form
        self.count = len(instruction.operands) // 2
        self.kinds = [o.shape.dtype for o in instruction.operands[: self.count]]
        self.index_type = instruction.operands[self.count].shape.dtype
        combiner = instruction["to_apply"]
        assert isinstance(combiner, Computation)
        self.combiner = combiner
        plain = all(not k.is_complex for k in self.kinds)
        lanes = nest.target.vector_bytes // max(4, *(k.item_bytes for k in self.kinds))
        inner = form.window[-1] if form.window else None
        dense = inner is not None and inner.operand == 1 and inner.update == 1
        self.lanes = lanes if plain and dense else 1
        self.leaves = list(range(self.count + 1))  # The table's entries of operands and indices.
        self.computed: ComputedUpdates | None = None
        self.updates: list[Value] = []
        first = len(whole.operands)
        if form.is_computing:
            self.leaves = [number(o) for o in instruction.operands[: self.count + 1]]
            made = instruction.operands[-1]
            self.lanes = computed_lanes(made, self.lanes, nest.target.vector_bytes)
            self.computed = ComputedUpdates(nest, whole, made, self.lanes)
        else:
            self.updates = [nest.w.buffer_address(self.count + 1 + k) for k in range(self.count)]
        self.elemental = elemental_of(nest, self.lanes)
        self.operands = [nest.w.buffer_address(first + k) for k in range(self.count)]
        self.indices = nest.w.buffer_address(self.leaves[-1])

    def emit(self) -> None:
        """Units, positions, then the window."""
        form = self.form
        if form.is_batched:
            self._positions(0, (self.nest.w.int(0), self.nest.w.int(0), ()), None)
            return
        if form.units == 1:
            some = self.nest.w.compare("icmp slt", BEGIN, END)
            when(self.nest, some, lambda: self._unit(None))
            return
        units, w = form.units, self.nest.w
        size = form.window[0 if form.is_split_outside else -1].size
        # A call's range of units is one run of a window dimension; of the innermost one its ends
        # are whole vectors, so that a split changes no lane's neighbours.
        lanes = 1 if form.is_split_outside else self.lanes
        step = -(-size // units // lanes) * lanes

        def bound(unit: Value) -> Value:
            reached = w.binary("mul", unit, w.int(step))
            last = w.compare("icmp eq", unit, w.int(units))
            capped = w.intrinsic("llvm.umin", "i64", reached, w.int(size))
            return w.select(last, w.int(size), capped)

        self._unit((bound(BEGIN), bound(END)))

    def _unit(self, span: tuple[Value, Value] | None) -> None:
        w = self.nest.w
        self._positions(0, (w.int(0), w.int(0), ()), span)

    def _positions(
        self,
        depth: int,
        at: tuple[Value, Value, tuple[Value, ...]],
        span: tuple[Value, Value] | None,
    ) -> None:
        """The loops over scatter positions; at: offsets in updates and indices, coordinates."""
        form, w = self.form, self.nest.w
        if depth == len(form.positions):
            self._position(*at, span)
            return
        if depth == len(form.positions) - 1 and form.is_in_registers:
            self._in_registers(at)
            return

        def each(i: Value, _: list[Value]) -> list[Value]:
            update = add(w, at[0], times(w, i, form.update_strides[depth]))
            index = add(w, at[1], times(w, i, form.index_strides[depth]))
            if self.computed is not None:
                self.computed.enter(form.update_dims[depth], i, form.positions[depth])
            self._positions(depth + 1, (update, index, (*at[2], i)), span)
            return []

        if depth == 0 and form.is_batched:
            self.nest.loop(BEGIN, END, 1, [], each)
            return
        count = form.positions[depth]
        is_element = depth == len(form.positions) - 1 and not form.window
        whole = count - count % _TOGETHER if is_element and form.may_fit else 0

        def several(i: Value, _: list[Value]) -> list[Value]:
            for k in range(_TOGETHER):
                each(add(w, i, w.int(k)), [])
            return []

        self.nest.loop(0, whole, _TOGETHER, [], several)
        self.nest.loop(whole, count, 1, [], each)

    def _in_registers(self, at: tuple[Value, Value, tuple[Value, ...]]) -> None:
        """The innermost loop over positions of single elements, one that was just combined in a
        register: where the next one is the same, it is taken from there, not from memory, which
        would have it some ten cycles later. The order of combining stays, and so do all bits.
        """
        form, w = self.form, self.nest.w
        (kind,), (memory,) = self.kinds, self.operands
        storage = types.storage_scalar(kind)

        def each(i: Value, before: list[Value]) -> list[Value]:
            last, raw = before
            update = add(w, at[0], times(w, i, form.update_strides[-1]))
            index = add(w, at[1], times(w, i, form.index_strides[-1]))
            if self.computed is not None:
                self.computed.enter(form.update_dims[-1], i, form.positions[-1])
            inside, offset = self._place(index, (*at[2], i))
            assert inside is not None, "an index is looked at"
            is_same = w.compare("icmp eq", offset, last)

            def combine() -> Value:
                place = w.address(memory, offset, storage)
                old = known_or(self.nest, is_same, raw, lambda: w.load(place, storage))
                current = types.decoded(w, self.nest.target, old, kind)
                (result,) = self._combined([current], self._given(update, 1))
                lanes = self.elemental.splat(result, 1)
                assert isinstance(lanes, Value), "of no pair"
                made = types.encoded(w, self.nest.target, lanes, kind)
                w.store(made, place)
                return made

            is_outside = w.binary("xor", inside, w.int(1, "i1"))
            return [w.select(inside, offset, last), known_or(self.nest, is_outside, raw, combine)]

        start = [w.int(-1), w.zero(storage)]
        self.nest.loop(0, form.positions[-1], 1, start, each)

    def _position(
        self,
        update: Value,
        index: Value,
        coordinates: tuple[Value, ...],
        span: tuple[Value, Value] | None,
    ) -> None:
        """One window, if it lies inside."""
        if not self.form.may_fit:
            return
        inside, offset = self._place(index, coordinates)
        if inside is None:
            self._window(0, offset, update, span)
        else:
            when(self.nest, inside, lambda: self._window(0, offset, update, span))

    def _place(self, index: Value, coordinates: tuple[Value, ...]) -> tuple[Value | None, Value]:
        """Whether a window lies inside, where an index is looked at; and where it begins."""
        w = self.nest.w
        inside: Value | None = None
        offset = w.int(0)
        for start in self.form.starts:
            if start.component is None:
                offset = add(w, offset, times(w, coordinates[start.position], start.stride))
                continue
            p = self._component(add(w, index, w.int(start.component * self.form.component_stride)))
            fits = w.compare("icmp ule", p, w.int(start.limit))
            inside = fits if inside is None else w.binary("and", inside, fits)
            offset = add(w, offset, times(w, p, start.stride))
        return inside, offset

    def _component(self, at: Value) -> Value:
        w, dtype = self.nest.w, self.index_type
        storage = types.storage_scalar(dtype)
        raw = w.load(w.address(self.indices, at, storage), storage)
        return w.cast("sext" if dtype.is_signed else "zext", raw, "i64")

    # -- the window --------------------------------------------------------------------------

    def _window(
        self, depth: int, operand: Value, update: Value, span: tuple[Value, Value] | None
    ) -> None:
        w = self.nest.w
        if depth == len(self.form.window):
            self._combine(operand, update, 1)
            return
        loop = self.form.window[depth]
        is_last = depth == len(self.form.window) - 1
        rest = None if self.form.is_split_outside else span

        def each(lanes: int) -> Callable[[Value, list[Value]], list[Value]]:
            def step(i: Value, _: list[Value]) -> list[Value]:
                if self.computed is not None:
                    self.computed.enter(loop.dim, i, loop.size, lanes)
                place = add(w, operand, times(w, i, loop.operand))
                source = add(w, update, times(w, i, loop.update))
                if is_last:
                    self._combine(place, source, lanes)
                else:
                    self._window(depth + 1, place, source, rest)
                return []

            return step

        if not is_last:
            low, high = (0, loop.size) if span is None or rest is span else span
            self.nest.loop(low, high, 1, [], each(1))
            return
        if span is None and loop.size <= 2 * self.lanes:
            first = 0
            for lanes in pieces(loop.size, self.lanes):
                each(lanes)(w.int(first), [])
                first += lanes
            return
        low, high = span or (w.int(0), w.int(loop.size))
        if self.lanes > 1:
            length = w.binary("sub", high, low)
            whole = w.binary("and", length, w.int(-self.lanes))
            middle = w.binary("add", low, whole)
            self.nest.loop(low, middle, self.lanes, [], each(self.lanes))
            low = middle
        self.nest.loop(low, high, 1, [], each(1))

    def _combine(self, operand: Value, update: Value, lanes: int) -> None:
        """operand[..] = f(operand[..], update[..]) for `lanes` neighbours."""
        current = [self._load(m, k, operand, lanes) for m, k in self._of(self.operands)]
        results = self._combined(current, self._given(update, lanes))
        for (memory, kind), result in zip(self._of(self.operands), results, strict=True):
            self._store(memory, kind, operand, self.elemental.splat(result, lanes))

    def _given(self, update: Value, lanes: int) -> list[Lanes]:
        """What is combined with what is there."""
        if self.computed is not None:
            return [self.computed.lanes_here(lanes)]
        return [self._load(m, k, update, lanes) for m, k in self._of(self.updates)]

    def _combined(self, current: Sequence[Lanes], given: Sequence[Lanes]) -> Sequence[Lanes]:
        """f(current, given)"""
        pairs = zip(self.combiner.parameters, (*current, *given), strict=True)
        values: dict[Instruction, tuple[Lanes, ...]] = {p: (v,) for p, v in pairs}
        return inlined(self.elemental.nest, self.combiner.root, values)

    def _of(self, memories: list[Value]) -> list[tuple[Value, DType]]:
        return list(zip(memories, self.kinds, strict=True))

    def _load(self, memory: Value, kind: DType, at: Value, lanes: int) -> Lanes:
        w, storage = self.nest.w, types.storage_scalar(kind)
        if not kind.is_complex:
            raw = w.load(w.address(memory, at, storage), vector_of(storage, lanes))
            return types.decoded(w, self.nest.target, raw, kind)
        pair = w.address(memory, at, f"{{{storage}, {storage}}}")
        return w.load(pair, storage), w.load(w.address(pair, w.int(1), storage), storage)

    def _store(self, memory: Value, kind: DType, at: Value, lanes: Lanes) -> None:
        w, storage = self.nest.w, types.storage_scalar(kind)
        element = f"{{{storage}, {storage}}}" if kind.is_complex else storage
        address = w.address(memory, at, element)
        for k, part in enumerate(parts(lanes)):
            raw = types.encoded(w, self.nest.target, part, kind)
            w.store(raw, w.address(address, w.int(k), storage) if k else address)
