"""scatter: updates combined into the operand's memory, position after position.

    for s in scatter positions, row-major: p = start(s); if the window at p lies inside:
        for w in the window: operand[p + w] = f(operand[p + w], update[s, w])

The result is the operand's memory (the plan copies it first if it is still needed). Positions run
in order, so that duplicates combine as the reference does. The units of the kernel are batches, if
the outermost loop counts those, or, where windows are long, parts of the window, or runs of equal
indices (runs.py): they never meet, and any split gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlo.analysis.blocks.blocking import number
from hlo.analysis.scatters import computed_scatter
from hlo.backend.emitters.applied import inlined
from hlo.backend.emitters.structural import elemental_of
from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.scatter.computed import (
    ComputedUpdates,
    computed_lanes,
    members,
)
from hlo.backend.kernels.scatter.form import ScatterForm
from hlo.backend.kernels.scatter.window import pieces
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Bound, Nest
from hlo.backend.lanes.open_loops import known_or, when
from hlo.backend.lanes.types import Lanes, parts
from hlo.backend.loops.schedule import Plan
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32, DType
from hlo.ir.instruction import Instruction

if TYPE_CHECKING:
    from hlo.backend.kernels.scatter.runs import Share

# Single elements of one round of the loop: an element is as little work as the loop around it.
_TOGETHER = 4


def scatter_kernels(instruction: Instruction, target: Target) -> Kernel | KernelSequence:
    """The kernel of a scatter, or where positions may be shared out the one that looks at indices
    before it.
    """
    scatter = computed_scatter(instruction) or instruction
    count = len(scatter.operands) // 2
    leaves = len(instruction.operands) + count
    calls, temporaries = scatter_calls(instruction, target, tuple(range(leaves)), leaves)
    if not temporaries:
        return calls[-1].kernel
    return KernelSequence(calls, temporaries, must_alias=calls[-1].kernel.must_alias)


def scatter_calls(
    instruction: Instruction, target: Target, buffers: tuple[int, ...], place: int
) -> tuple[tuple[KernelCall, ...], tuple[int, ...]]:
    """The calls of a scatter on buffers of operands and results, the last of which combines, and
    the sizes of temporaries, the first of which has the number `place`.
    """
    scatter = computed_scatter(instruction) or instruction
    form = ScatterForm.of(scatter, is_computing=scatter is not instruction)
    # One thread alone has to know whether runs are long, where an element may stay in a register.
    is_asked = form.is_in_registers or not target.is_alone
    if target.is_small or not (is_asked and form.may_have_runs):
        return (KernelCall(_kernel(instruction, scatter, form, target), buffers),), ()
    from hlo.backend.kernels.check_flag import FLAG_BYTES, cleared_flag_kernel
    from hlo.backend.kernels.scatter.runs import unsorted_flag_kernel  # long scatters have runs

    at = len(scatter.operands) // 2
    indices = scatter.operands[at]
    if form.is_computing:
        at = number(indices)
    check = unsorted_flag_kernel(form.positions[0], indices.shape.dtype, target)
    made = _kernel(instruction, scatter, replace(form, has_runs=True), target)
    calls = (
        KernelCall(cleared_flag_kernel(), (place,)),
        KernelCall(check, (buffers[at], place)),
        KernelCall(made, (*buffers, place)),
    )
    return calls, (FLAG_BYTES,)


def _kernel(
    whole: Instruction, instruction: Instruction, form: ScatterForm, target: Target
) -> Kernel:
    """whole: the scatter, or the fusion of it and what makes its updates."""
    w = Writer()
    build = _Build(Nest(w, target), whole, instruction, form)
    build.emit()
    w.ret()
    updates = instruction.operands[build.count + 1 :]
    each = 1 + members(updates[0]) if form.is_computing else 1
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


class _Build:
    """The kernel under construction."""

    def __init__(
        self, nest: Nest, whole: Instruction, instruction: Instruction, form: ScatterForm
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
        if form.has_runs:
            self.flag = nest.w.buffer_address(first + self.count)
        self.share: Share | None = None  # Of positions, where these are not all.

    def emit(self) -> None:
        """Units, positions, then the window."""
        form = self.form
        if form.is_batched:
            self._positions(0, (self.nest.w.int(0), self.nest.w.int(0), ()), None)
            return
        if form.has_runs:
            self._runs()
            return
        if form.units == 1:
            some = self.nest.w.compare("icmp slt", BEGIN, END)
            when(self.nest, some, lambda: self._unit(None))
            return
        self._unit(self._columns())

    def _columns(self) -> tuple[Value, Value]:
        """A call's range of units as a run of a window dimension; of the innermost one its ends are
        whole vectors, so that a split changes no lane's neighbours.
        """
        w, units = self.nest.w, self.form.units
        is_outside = self.form.is_split_outside
        size, lanes = (
            self.form.window[0 if is_outside else -1].size,
            1 if is_outside else self.lanes,
        )
        part = -(-size // units // lanes) * lanes

        def bound(unit: Value) -> Value:
            reached = w.binary("mul", unit, w.int(part))
            last = w.compare("icmp eq", unit, w.int(units))
            capped = w.intrinsic("llvm.umin", "i64", reached, w.int(size))
            return w.select(last, w.int(size), capped)

        return bound(BEGIN), bound(END)

    def _runs(self) -> None:
        """Units that are runs of equal indices, where these are sorted."""
        from hlo.backend.kernels.scatter.runs import share_of

        form, w = self.form, self.nest.w
        zero = w.int(0)
        begin = zero, zero, ()
        self.share = share = share_of(self.nest, form, self.flag, self._component)
        if form.has_parts:
            low, high = self._columns()
            last = w.select(share.is_sorted, w.int(form.window[-1].size), high)
            self._each_position(0, begin, (w.select(share.is_sorted, zero, low), last))
            return
        if not (form.is_element and self.kinds[0].is_float):
            self._each_position(0, begin, None)
            return
        is_short = w.binary("xor", share.is_long, w.int(1, "i1"))
        when(self.nest, share.is_long, lambda: self._in_registers(begin))
        when(self.nest, is_short, lambda: self._each_position(0, begin, None))

    def _range(self, depth: int) -> tuple[Bound, Bound]:
        """A loop's positions."""
        if depth == 0 and self.form.is_batched:
            return BEGIN, END
        if self.share is None:
            return 0, self.form.positions[depth]
        return self.share.begin, self.share.end

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
        form = self.form
        if depth == len(form.positions):
            self._position(*at, span)
            return
        if depth == len(form.positions) - 1 and form.is_in_registers:
            self._in_registers(at)
        else:
            self._each_position(depth, at, span)

    def _each_position(
        self,
        depth: int,
        at: tuple[Value, Value, tuple[Value, ...]],
        span: tuple[Value, Value] | None,
    ) -> None:
        """One of these loops."""
        form, w = self.form, self.nest.w

        def each(i: Value, _: list[Value]) -> list[Value]:
            update = add(w, at[0], times(w, i, form.update_strides[depth]))
            index = add(w, at[1], times(w, i, form.index_strides[depth]))
            if self.computed is not None:
                self.computed.enter(form.update_dims[depth], i, form.positions[depth])
            self._positions(depth + 1, (update, index, (*at[2], i)), span)
            return []

        low, high = self._range(depth)
        whole = low
        if depth == len(form.positions) - 1 and not form.window and form.may_fit:
            whole = self._whole(low, high)

        def several(i: Value, _: list[Value]) -> list[Value]:
            for k in range(_TOGETHER):
                each(add(w, i, w.int(k)), [])
            return []

        if whole is not low:
            self.nest.loop(low, whole, _TOGETHER, [], several)
        self.nest.loop(whole, high, 1, [], each)

    def _whole(self, low: Bound, high: Bound) -> Bound:
        """Where the last _TOGETHER positions end."""
        if isinstance(low, int) and isinstance(high, int):
            return high - (high - low) % _TOGETHER
        w = self.nest.w
        first, last = (b if isinstance(b, Value) else w.int(b) for b in (low, high))
        length = w.binary("and", w.binary("sub", last, first), w.int(-_TOGETHER))
        return add(w, first, length)

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
        low, high = self._range(len(form.positions) - 1)
        self.nest.loop(low, high, 1, start, each)

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
