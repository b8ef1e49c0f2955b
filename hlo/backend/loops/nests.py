"""Nests: the loops of schedules as a tree of axes, caches and stores, for --emit=loops and tests.

[NestSchedule] --loop_nests--> [LoopNest], without the reductions (placing.py puts them in)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from hlo.analysis.reducers import reducer_of
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.nest_schedule import Keep, NestSchedule, Walk
from hlo.backend.loops.outputs import Output
from hlo.backend.loops.reading import arrays_of, names_read
from hlo.backend.loops.schedule import (
    Axis,
    Cache,
    Fill,
    Hint,
    Loop,
    LoopNest,
    Node,
    Prefetch,
    Role,
    Storage,
    Store,
    Tail,
    axis_name,
)
from hlo.backend.loops.spans import Span
from hlo.backend.loops.storage import StorageUse
from hlo.indexing import affine
from hlo.indexing.affine import Atom, Expr, Index, Variable
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal

Nodes = tuple[Node, ...]


def loop_nests(
    expression: Expression,
    schedules: Sequence[NestSchedule],
    spans: Sequence[Span],
    *,
    are_fenced: bool,
) -> list[LoopNest]:
    """The tree of each schedule; spans: the kernel's units that it has; are_fenced: whether lines
    past the cache are waited for by an instruction of their own.
    """
    storage_use = StorageUse()  # in the order in which the nests' code asks for memory
    nests = (_Nest(expression, s, storage_use, are_fenced=are_fenced) for s in schedules)
    return [nest.tree(span) for nest, span in zip(nests, spans, strict=True)]


class _Nest:
    """One schedule's. named: the domain's variables under the names of axes."""

    def __init__(
        self,
        expression: Expression,
        schedule: NestSchedule,
        storage_use: StorageUse,
        *,
        are_fenced: bool,
    ) -> None:
        self.are_fenced = are_fenced
        self.expression = expression
        self.schedule = schedule
        self.domain = schedule.domain
        self.storage_use = storage_use
        variables = self.domain.variables
        named = {v: Variable(axis_name(k), v.low, v.high) for k, v in enumerate(variables)}
        self.named: dict[Atom, Expr] = {v: affine.of(n) for v, n in named.items()}

    def tree(self, span: Span) -> LoopNest:
        schedule = self.schedule
        body = self._squares() if schedule.is_blocked else self._around(())
        for axis in reversed(schedule.parallel):
            body = (Loop(axis, body),)
        low, dims, remarks = self.domain.low, self.domain.dims, schedule.remarks
        return LoopNest(low, dims, schedule.units, span.first, span.count, body, remarks=remarks)

    # -- around the lanes ------------------------------------------------------------------------

    def _around(self, opened: tuple[Axis, ...]) -> Nodes:
        """What runs where these axes are open beside the parallel ones: results of fewer
        dimensions, then what is left. Reductions are put before them where they were made.
        """
        schedule = self.schedule
        serial = [
            a
            for a in schedule.axes
            if a.role in (Role.SERIAL, Role.UNROLLED) and a.loop < schedule.loops
            if a is not schedule.turn
        ]
        if schedule.inner and len(opened) == len(serial):
            return self._strip()
        depth = schedule.prefix + len(opened)
        stored = tuple(
            self._store(o, is_row=True) for o in self.domain.outer if self._depth(o) == depth
        )
        if len(opened) == len(serial):
            rows = () if schedule.stages else tuple(self._caches())
            return (*rows, *stored, *self._lanes())
        axis = serial[len(opened)]
        return (*stored, Loop(axis, self._around((*opened, axis))))

    def _depth(self, output: Output) -> int:
        """The loops that are open where a result of fewer dimensions is stored."""
        index = output.row_index(self.domain.own_index)
        return max(self.domain.fixes(index), self.schedule.prefix)

    def _lanes(self) -> Nodes:
        schedule, vector = self.schedule, self.schedule.vector
        stores = tuple(self._store(o) for o in self.domain.outputs)
        deeper = [o for o in self.domain.outer if self._depth(o) > schedule.loops]
        stores += tuple(self._store(o, is_row=True) for o in deeper)
        if vector is None:
            return (*_prefetches(schedule, in_reductions=True), *stores)
        streams = tuple(n for walk in schedule.walks for n in self._walked(walk))
        if schedule.stages:
            return self._stages(vector, stores)
        loop = Loop(vector, (*stores, *_prefetches(schedule)))
        if schedule.turn is not None:
            return (*streams, Loop(schedule.turn, (loop,)))
        return (*streams, loop)

    def _stages(self, vector: Axis, stores: Nodes) -> Nodes:
        """One loop after the other over a block."""
        loops: list[Node] = list(self._caches())
        for kept in self.schedule.stages:
            fills = tuple(Fill(i.name, self._from(i)) for i in kept)
            loops.append(Loop(vector, fills))
        loops.append(Loop(vector, stores))
        block = [a for a in self.schedule.axes if a.role is Role.SERIAL and a.loop == vector.loop]
        return (Loop(block[0], tuple(loops)),) if block else tuple(loops)

    def _from(self, instruction: Instruction) -> str:
        operands = ", ".join(self.expression.name(o) for o in instruction.operands)
        return f"{instruction.opcode}({operands})"

    # -- strips ----------------------------------------------------------------------------------

    def _strip(self) -> Nodes:
        """A batch of lanes: what is kept, results of fewer dimensions, then the reduced loops."""
        schedule, domain = self.schedule, self.domain
        assert schedule.vector is not None, "a strip has lanes"
        free = domain.variables[schedule.vector.loop + 1 :]
        index = domain.own_index
        deeper = [
            o
            for o in domain.outer
            if any(e.depends_on(v) for e in o.row_index(index) for v in free)
        ]
        stores = tuple(self._store(o, is_row=True) for o in domain.outer if o not in deeper)
        inner: Nodes = tuple(self._store(o) for o in domain.outputs)
        inner += tuple(self._store(o, is_row=True) for o in deeper)
        for axis in reversed(schedule.inner):
            inner = (Loop(axis, inner),)
        return (Loop(schedule.vector, (*self._caches(), *stores, *inner)),)

    # -- squares ---------------------------------------------------------------------------------

    def _squares(self) -> Nodes:
        """Squares turned into a buffer, from which whole lines are stored."""
        schedule, rows, columns = self.schedule, self.schedule.tile, self.schedule.vector
        assert rows is not None
        assert columns is not None
        body: list[Node] = []
        for output in self.domain.outputs:
            dtype, dims = output.array.dtype, (rows.step, columns.extent)
            size = prod(dims) * dtype.item_bytes
            storage = self.storage_use.next(size)
            body.append(Cache(output.source.name, dims, dtype.name, size, storage))
        names = [o.source.name for o in self.domain.outputs]
        fills = tuple(Fill(name, "squares turned in registers") for name in names)
        body.append(Loop(columns, fills))
        for output in self.domain.outputs:
            per_line = schedule.machine.line_bytes // output.array.dtype.item_bytes
            axis = Axis(
                columns.name, columns.extent, Role.VECTOR, per_line, per_line, of=columns.of
            )
            hints: tuple[Hint, ...] = (Hint.NON_TEMPORAL, Hint.VERSIONED)
            hints += (Hint.FENCED,) * self.are_fenced
            body.append(Loop(axis, (self._store(output, hints=hints),)))
        return (Loop(rows, tuple(body)),)

    # -- streams ---------------------------------------------------------------------------------

    def _walked(self, walk: Walk) -> list[Node]:
        """Memory for columns, their start, the rows."""
        columns = self.schedule.vector
        assert columns is not None, "columns are lanes"
        reductions = [reduction.reduce for reduction in walk.reductions]
        names = " and ".join(reduction.name for reduction in reductions)
        totals = f"totals of {names}" if walk.block else names
        found: list[Node] = [self._memories(walk, names), Loop(columns, (Fill(totals, "start"),))]
        if any(reduction.accumulators == 3 for reduction in walk.reductions):
            found.append(Loop(columns, (Fill(f"surplus of {names}", "0"),)))
        *outer, length = walk.extents
        whole = length // walk.rows * walk.rows
        forms = " and ".join(dict.fromkeys(reducer_of(reduction).name for reduction in reductions))
        reads = dict.fromkeys(
            n for f in reductions for n in names_read(self.expression, (), arrays_of(f))
        )
        order = (
            "in order" if any(reduction.shape.is_tuple for reduction in reductions) else "by pairs"
        )
        text = f"{forms} of {walk.rows} rows {order}, reads {', '.join(reads)}"
        name, chunk = axis_name(len(outer), "r"), Loop(columns, (Fill(names, text),))
        if walk.block:
            rows = Loop(Axis(name, walk.block, Role.REDUCED, walk.rows, of=whole), (chunk,))
            join = Fill(totals, f"{forms} of {totals} and {names}")
            block = Loop(columns, (Fill(names, "start"),)), rows, Loop(columns, (join,))
            inner: list[Node] = [Loop(Axis(name, whole, Role.REDUCED, walk.block), block)]
            if whole < length:
                rest = Fill(totals, f"{forms} of the last {length - whole} rows")
                inner.append(Loop(columns, (rest,)))
        else:
            tail = Tail.SHORT if whole < length else Tail.NONE
            inner = [Loop(Axis(name, length, Role.REDUCED, walk.rows, tail=tail), (chunk,))]
        for k in reversed(range(len(outer))):
            inner = [Loop(Axis(axis_name(k, "r"), outer[k], Role.REDUCED), tuple(inner))]
        return found + inner

    def _memories(self, walk: Walk, names: str) -> Cache:
        """One line for all of a walk's."""
        columns = walk.reductions[0].columns
        dtypes = [
            d for reduction in walk.reductions for d in reduction.dtypes * reduction.accumulators
        ]
        kept_in = [self.storage_use.next(columns * dtype.item_bytes) for dtype in dtypes]
        storage = Storage.SCRATCH if Storage.SCRATCH in kept_in else Storage.STACK
        size_bytes = columns * sum(d.item_bytes for d in dtypes)
        text = " and ".join(dict.fromkeys(d.name for d in dtypes))
        return Cache(names, (len(dtypes), columns), text, size_bytes, storage)

    # -- memory ----------------------------------------------------------------------------------

    def _caches(self) -> Iterator[Cache]:
        """What is kept, with where it lies."""
        schedule = self.schedule
        strip = (
            self.storage_use.next(schedule.kept_bytes)
            if schedule.inner and schedule.keeps
            else None
        )
        for keep in schedule.keeps:
            storage = strip or self.storage_use.next(
                keep.size_bytes + keep.over * keep.dtype.item_bytes
            )
            shares = keep.shares.name if keep.shares is not None else ""
            dims, name = _kept_dims(keep), keep.value.name
            yield Cache(name, dims, keep.dtype.name, keep.size_bytes, storage, shares)

    # -- stores ----------------------------------------------------------------------------------

    def _store(
        self, output: Output, *, is_row: bool = False, hints: tuple[Hint, ...] = ()
    ) -> Store:
        """A result at the loops' variables."""
        index = self.domain.own_index
        if is_row:
            index = output.row_index(index)
        kept = [keep.value for keep in self.schedule.keeps]
        reads = names_read(self.expression, kept, [(output.source, index, output.path)])
        value = output.source.name
        if output.path:
            value += "{" + ",".join(map(str, output.path)) + "}"
        if output.source.opcode in ("reduce", "reduce-window"):
            reads = ()  # its own line says what
        start, over = _window(output)
        return Store(
            output.name,
            output.array.number,
            tuple(self._named(index)),
            value,
            start,
            over,
            hints,
            reads,
        )

    def _named(self, index: Index) -> Iterator[str]:
        for e in index:
            yield repr(e.substituted(self.named)).replace(" ", "")


def _prefetches(schedule: NestSchedule, *, in_reductions: bool = False) -> Nodes:
    """Hints for the rows that come next."""
    ahead = schedule.fetched if in_reductions else schedule.ahead
    wanted = dict.fromkeys((a.name, a.ahead_bytes) for a in ahead)
    return tuple(Prefetch(name, ahead_bytes) for name, ahead_bytes in wanted)


def _kept_dims(keep: Keep) -> tuple[int, ...]:
    """A row's elements, or those of a batch of columns."""
    if keep.width:
        return (*keep.sizes, keep.width)
    if not keep.inner:
        return (keep.size,)
    own = prod(keep.sizes)
    rows = keep.size // own
    return (rows, own) if rows > 1 else (own,)


def _window(output: Output) -> tuple[str, str]:
    """Where the window that a result's update writes begins, and which operand lies there."""
    if output.alias is None:
        return "", ""
    updates = [u for u in output.source.users if u.opcode == "dynamic-update-slice"]
    starts = updates[0].operands[2:] if updates else ()
    return f"({', '.join(map(_start, starts))})", f"p{output.alias[0]}"


def _start(operand: Instruction) -> str:
    literal = operand.get("literal")
    return str(literal.value) if isinstance(literal, Literal) else operand.name
