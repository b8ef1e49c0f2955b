"""Shadow: the loop schedule of a staged kernel, from its parts and what was decided as they were
written.

    [Part], [Written] --shadow--> LoopSchedule

It shows what `stage`, `strips`, `streams` and `squares` do, and stands beside them only until
kernels are lowered from schedules. That it says what they do is tested: the loops that follow from
it are those that were opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.reading import names_read
from hlo.backend.kernels.kept_strips import KeptStrip
from hlo.backend.kernels.lane_axis import lane_axis, strip_axis
from hlo.backend.kernels.numbering import Span, spans_of, total_of
from hlo.backend.kernels.outputs import Output
from hlo.backend.kernels.part import Part, fixed_by, streamed_from
from hlo.backend.kernels.phases import KeptRow, block_of
from hlo.backend.kernels.prefetching import fetched, read_ahead
from hlo.backend.kernels.rows import SavedRow
from hlo.backend.kernels.shadow_streams import stream_nodes
from hlo.backend.kernels.squares import is_fenced
from hlo.backend.kernels.stage import Written
from hlo.backend.loops.folds import UNROLLED
from hlo.backend.loops.opened import Record
from hlo.backend.loops.placing import placed
from hlo.backend.loops.schedule import (
    Axis,
    Cache,
    Fill,
    Hint,
    Loop,
    LoopNest,
    LoopSchedule,
    Node,
    Prefetch,
    Role,
    Store,
    Table,
    Tail,
    axis_name,
)
from hlo.indexing import affine
from hlo.indexing.affine import Atom, Expr, Index, Variable
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal

Nodes = tuple[Node, ...]


def shadow(
    elemental: Elemental, record: Record, parts: Sequence[Part], written: list[Written]
) -> LoopSchedule:
    """The schedule of a kernel that has been written; record: what was opened meanwhile."""
    spans = spans_of(parts)
    shown = [
        _Shadow(elemental, part, made).nest(span)
        for part, made, span in zip(parts, written, spans, strict=True)
    ]
    return LoopSchedule(
        total_of(spans),
        elemental.scratch_bytes,
        placed(shown, record.loops),
        _tables(elemental),
    )


def _tables(elemental: Elemental) -> tuple[Table, ...]:
    """What the kernel looks up: the chains whose tables are known at its entry."""
    known = elemental.nest.path[0].memo
    chains = [c for c in elemental.expression.chains.values() if c is not None]
    return tuple(
        Table(
            c.root.name,
            _name(elemental, c.source[0]),
            1 << c.source[0].shape.dtype.bits,
            c.root.shape.dtype.name,
        )
        for c in chains
        if ("table", c.root, c.source) in known
    )


def _name(elemental: Elemental, operand: Instruction) -> str:
    """p0, p1, .. for what is read from memory, else the instruction that makes it."""
    source, path = elemental.expression.source(operand, ())
    memory = elemental.memory.get((source, path))
    return source.name if memory is None or memory.leaf < 0 else f"p{memory.leaf}"


class _Shadow:
    """One part. variables: its loop variables under the names of axes."""

    def __init__(self, elemental: Elemental, part: Part, written: Written) -> None:
        self.elemental = elemental
        self.part = part
        self.written = written
        named = {v: Variable(axis_name(k), v.low, v.high) for k, v in enumerate(part.variables)}
        self.named: dict[Atom, Expr] = {v: affine.of(n) for v, n in named.items()}

    def nest(self, span: Span) -> LoopNest:
        part = self.part
        body = self._squares() if part.squares is not None else self._body()
        remarks = tuple(dict.fromkeys((*part.remarks, *self._ahead())))
        return LoopNest(
            part.low, part.dims, part.units, span.first, span.count, body, remarks=remarks
        )

    def _ahead(self) -> Iterator[str]:
        """Why rows are asked for ahead."""
        for memory, _, ahead_bytes in read_ahead(self.elemental, self.part):
            least = streamed_from(self.part.machine)
            size = f"{memory.size_bytes} bytes, {least} and more come from memory"
            yield f"ahead: p{memory.leaf} by {ahead_bytes} bytes, it has {size}"

    def _body(self) -> Nodes:
        part = self.part
        body = self._strip() if part.strip else self._rows(part.prefix)
        if part.block:
            extent, k = part.extents[part.lane_loop], part.lane_loop % len(part.extents)
            tail = Tail.SHORT if extent % part.block else Tail.NONE
            axis = Axis(axis_name(k), extent, Role.PARALLEL, part.block, tail=tail)
            body = (Loop(axis, body),)
        for k in reversed(range(part.prefix)):
            body = (Loop(self._outer_axis(k, Role.PARALLEL), body),)
        return body

    def _outer_axis(self, k: int, role: Role) -> Axis:
        """A loop around the lanes: rows side by side, or the steps of a tile."""
        part, extent = self.part, self.part.extents[k]
        step = part.lanes if k == part.tile else part.rows if k == part.loops - 1 else 1
        if part.strip:
            step = 1
        tail = Tail.OVERLAPPING if extent % step else Tail.NONE
        return Axis(axis_name(k), extent, role, step, tail=tail)

    # -- rows ------------------------------------------------------------------------------------

    def _rows(self, depth: int) -> Nodes:
        """What runs where so many loops are open: results of fewer dimensions, then what is left.

        Reductions are put before them where they were made.
        """
        part = self.part
        stored = tuple(self._store(o, is_row=True) for o in part.outer if self._depth(o) == depth)
        if depth == part.loops:
            return (*self._caches(SavedRow), *stored, *self._innermost())
        axis = self._outer_axis(depth, Role.SERIAL)
        return (*stored, Loop(axis, self._rows(depth + 1)))

    def _depth(self, output: Output) -> int:
        """The loops that are open where a result of fewer dimensions is stored."""
        part = self.part
        index = output.row_index(part.index([affine.of(v) for v in part.variables]))
        return max(fixed_by(part, index), part.prefix)

    def _innermost(self) -> Nodes:
        part = self.part
        stores = tuple(self._store(o) for o in part.outputs)
        deeper = [o for o in part.outer if self._depth(o) > part.loops]
        stores += tuple(self._store(o, is_row=True) for o in deeper)
        if not part.in_lanes:
            return (*self._fetched(), *stores)
        extent = part.block
        places = self.written.places[len(self.written.saved) :]
        streams = stream_nodes(self.elemental, part, places) if part.streams else ()
        if self.written.phases:
            return self._phases(stores)
        loop = Loop(lane_axis(part, extent), (*stores, *self._prefetches()))
        if part.in_turn:
            axis = Axis(axis_name(part.loops - 1), part.rows, Role.UNROLLED)
            return (*streams, Loop(axis, (loop,)))
        return (*streams, loop)

    def _phases(self, stores: Nodes) -> Nodes:
        """One loop after the other over a block."""
        part, length = self.part, self.part.extents[-1]
        block = block_of(part.machine)
        is_whole = not part.block and length <= block
        axis = lane_axis(part, 0 if is_whole else block)
        loops: list[Node] = list(self._caches(KeptRow))
        for kept in self.written.phases:
            fills = tuple(Fill(i.name, self._from(i)) for i in kept)
            loops.append(Loop(axis, fills))
        loops.append(Loop(axis, stores))
        if is_whole:
            return tuple(loops)
        extent = part.block or length
        return (Loop(Axis(axis.name, extent, Role.SERIAL, block, of=length), tuple(loops)),)

    def _from(self, instruction: Instruction) -> str:
        operands = ", ".join(_name(self.elemental, o) for o in instruction.operands)
        return f"{instruction.opcode}({operands})"

    # -- strips ----------------------------------------------------------------------------------

    def _strip(self) -> Nodes:
        """A batch of lanes: what is kept, results of fewer dimensions, then the folded loops."""
        part, first = self.part, self.part.lane_loop + 1
        free = set(part.variables[first:])
        index = part.index([affine.of(v) for v in part.variables])
        deeper = [
            o for o in part.outer if any(e.depends_on(v) for e in o.row_index(index) for v in free)
        ]
        stores = tuple(self._store(o, is_row=True) for o in part.outer if o not in deeper)
        inner: Nodes = tuple(self._store(o) for o in part.outputs)
        inner += tuple(self._store(o, is_row=True) for o in deeper)
        extents = part.extents[first:]
        role = Role.UNROLLED if prod(extents) <= UNROLLED else Role.SERIAL
        for k in reversed(range(len(extents))):
            inner = (Loop(Axis(axis_name(first + k), extents[k], role), inner),)
        return (Loop(strip_axis(part), (*self._caches(KeptStrip), *stores, *inner)),)

    # -- squares ---------------------------------------------------------------------------------

    def _squares(self) -> Nodes:
        """Blocks of squares, turned into a buffer, from which whole lines are stored."""
        part, squares, tile = self.part, self.part.squares, self.part.tile
        assert squares is not None
        assert tile is not None
        last, lanes = len(part.extents) - 1, part.lanes

        def within(k: int, size: int) -> Axis:
            extent = part.extents[k]
            tail = Tail.OVERLAPPING if extent % lanes else Tail.NONE
            return Axis(axis_name(k), size, Role.VECTOR, lanes, lanes, tail, of=extent)

        body: list[Node] = []
        for output, place in zip(part.outputs, self.written.places, strict=True):
            dtype = output.array.dtype
            size = lanes * squares.columns * dtype.item_bytes
            dims = lanes, squares.columns
            body.append(Cache(output.source.name, dims, dtype.name, size, place))
        fills = tuple(Fill(o.source.name, "squares turned in registers") for o in part.outputs)
        body.append(Loop(within(last, squares.columns), fills))
        for output in part.outputs:
            per_line = part.machine.line_bytes // output.array.dtype.item_bytes
            axis = Axis(
                axis_name(last), squares.columns, Role.VECTOR, per_line, per_line,
                of=part.extents[last],
            )  # fmt: skip
            hints: tuple[Hint, ...] = (Hint.NON_TEMPORAL, Hint.VERSIONED)
            hints += (Hint.FENCED,) * is_fenced(self.elemental.nest.target)
            body.append(Loop(axis, (self._store(output, hints=hints),)))
        found: Nodes = (Loop(within(tile, squares.rows), tuple(body)),)
        for k, size in ((tile, squares.rows), (last, squares.columns)):
            tail = Tail.SHORT if part.extents[k] % size else Tail.NONE
            axis = Axis(axis_name(k), part.extents[k], Role.PARALLEL, size, tail=tail)
            found = (Loop(axis, found),)
        for k in reversed(range(last)):
            if k != tile:
                found = (Loop(Axis(axis_name(k), part.extents[k], Role.PARALLEL), found),)
        return found

    # -- memory ----------------------------------------------------------------------------------

    def _caches(self, kind: type) -> Iterator[Cache]:
        """What is kept in one way, with where it lies."""
        places = iter(self.written.places)
        shared: dict[str, str] = {}
        for instruction, kept in self.written.saved.items():
            if not isinstance(kept, kind):
                next(places, None)
                continue
            assert isinstance(kept, SavedRow | KeptRow | KeptStrip)
            is_strip = isinstance(kept, KeptStrip)
            place = self.written.places[0] if is_strip else next(places)
            dims = _kept_dims(kept, instruction)
            size_bytes = kept.row.size * kept.row.dtype.item_bytes
            shares = shared.get(kept.row.base.text, "")
            shared[kept.row.base.text] = instruction.name
            dtype = kept.row.dtype.name
            yield Cache(instruction.name, dims, dtype, size_bytes, place, shares)

    def _prefetches(self) -> Nodes:
        """Hints for the rows that come next."""
        ahead = [(m.leaf, n) for m, _, n in read_ahead(self.elemental, self.part)]
        return tuple(Prefetch(f"p{leaf}", n) for leaf, n in dict.fromkeys(ahead))

    def _fetched(self) -> Nodes:
        """The same of what the last fold reads."""
        found = fetched(self.elemental, self.part).values()
        return tuple(Prefetch(f"p{f.memory.leaf}", f.ahead_bytes) for f in found)

    # -- stores ----------------------------------------------------------------------------------

    def _store(
        self, output: Output, *, is_row: bool = False, hints: tuple[Hint, ...] = ()
    ) -> Store:
        """A result at the loops' variables."""
        part, elemental = self.part, self.elemental
        index = part.index([affine.of(v) for v in part.variables])
        if is_row:
            index = output.row_index(index)
        elemental.saved = self.written.saved
        reads = names_read(elemental, [(output.source, index, output.path)])
        elemental.saved = {}
        value = output.source.name
        if output.path:
            value += "{" + ",".join(map(str, output.path)) + "}"
        if output.source.opcode in ("reduce", "reduce-window"):
            reads = ()  # its own line says what
        start, over = _window(output)
        return Store(
            "result" if output.leaf == 0 else f"result{output.leaf}",
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


def _kept_dims(kept: SavedRow | KeptRow | KeptStrip, instruction: Instruction) -> tuple[int, ...]:
    """A row's elements, or those of a batch of columns."""
    if isinstance(kept, KeptStrip):
        return (*kept.sizes, kept.width)
    if isinstance(kept, KeptRow):
        return (kept.row.size,)
    own = prod(instruction.shape.dims[d] for d in kept.inner)
    rows = kept.row.size // own
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
