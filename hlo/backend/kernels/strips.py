"""Strips: parts whose lanes run over what all folds keep, around loops over what they fold.

    part with a strip --emit_strips--> per batch of lanes: each fold, then the loops that store

A norm over a middle dimension has its lanes side by side in the last one; rows of a few elements
would leave lanes idle, so that each lane takes a row. Both read their strip from memory once and
find it in the cache in later stages; elements that two stages need and that are expensive to
compute, or to gather, are kept in a buffer of the strip's size.
"""

from __future__ import annotations

from math import prod

from hlo.backend.codegen import access, indexing, types
from hlo.backend.codegen.access import Memory
from hlo.backend.codegen.elemental import Elemental
from hlo.backend.codegen.indexing import Expr, Index, Variable
from hlo.backend.codegen.lane_loops import lane_loop_between
from hlo.backend.codegen.types import Lanes
from hlo.backend.codegen.writer import Value
from hlo.backend.emitters.reduction import UNROLLED
from hlo.backend.kernels.part import Part
from hlo.backend.kernels.parts import traced
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.records import dataclass

_KEPT_BYTES = 128 * 1024  # of all strips of a kernel: they lie on the stack


def emit_strips(elemental: Elemental, part: Part, outer: list[Expr], block: Expr) -> None:
    """The batches of one unit."""
    nest, w = elemental.nest, elemental.nest.w
    length, step = part.extents[part.lane_loop], part.lanes * part.copies
    low, high = w.int(0), w.int(length)
    if part.block:
        low = nest.scalar(block * part.block)
        high = w.binary("add", low, w.int(part.block))
        if length % part.block:
            high = w.intrinsic("llvm.smin", "i64", high, w.int(length))
    lane_loop_between(
        nest, low, high, (0, length), part.lanes, part.copies,
        _Strip(elemental, part, outer).emit, rest_lanes=part.lanes if length % step else 0,
    )  # fmt: skip


@dataclass(slots=True)
class _Strip:
    """A batch of vectors being written; outer: values of the loops around it."""

    elemental: Elemental
    part: Part
    outer: list[Expr]

    def emit(self, columns: list[Expr]) -> None:
        """Folds as stages, results of fewer dimensions, then the loops over what is folded."""
        elemental, part = self.elemental, self.part
        for kept in elemental.saved.values():
            kept.is_filled = kept.is_touched = False
        free = [indexing.of(v) for v in part.variables[part.lane_loop + 1 :]]
        at = [part.index([*self.outer, column, *free]) for column in columns]
        found = [traced(elemental, part, index).reductions for index in at]
        for stage in zip(*(reversed(reductions) for reductions in found), strict=True):
            reduce = stage[0][0]
            wanted = [index for _, index in stage]
            if not any(e.depends_on(v) for e in wanted[0] for v in part.variables):
                elemental.lanes_at(reduce, wanted, (0,) if reduce.shape.is_tuple else ())
                elemental.end_stage()
        for output in part.outer:
            for column in columns:
                place = output.row_index(part.index([*self.outer, column, *free]))
                (lanes,) = elemental.lanes_at(output.source, [place], output.path)
                access.store(elemental.nest, output.memory, output.place(place), lanes)
        self._inner([], columns)

    def _inner(self, inner: list[Expr], columns: list[Expr]) -> None:
        """Loops over the folded dimensions around the stores; few steps are written out."""
        part, nest = self.part, self.elemental.nest
        extents = part.extents[part.lane_loop + 1 + len(inner) :]
        if not extents:
            self._store(inner, columns)
            return
        if not inner and prod(extents) <= UNROLLED:
            for position in range(prod(extents)):
                fixed = indexing.delinearized(indexing.number(position), extents)
                self._store(list(fixed), columns)
            return

        def body(counter: Value, _: list[Value]) -> list[Value]:
            self._inner([*inner, nest.variable(counter, 0, extents[0] - 1)], columns)
            return []

        nest.loop(0, extents[0], 1, [], body)

    def _store(self, inner: list[Expr], columns: list[Expr]) -> None:
        """Everything is evaluated before the first store: an output may lie over an operand."""
        elemental, part = self.elemental, self.part
        indices = [part.index([*self.outer, column, *inner]) for column in columns]
        found = [elemental.lanes_at(o.source, indices, o.path) for o in part.outputs]
        for output, lanes in zip(part.outputs, found, strict=True):
            for value, index in zip(lanes, indices, strict=True):
                access.store(elemental.nest, output.memory, output.place(index), value)


# -- elements that several stages need ---------------------------------------------------------


@dataclass(slots=True, eq=False)
class SavedStrip:
    """An expensive element, kept for the batch: [folded dimensions][width]."""

    row: Memory
    sizes: tuple[int, ...]
    folded: tuple[int, ...]
    batch: int
    width: int
    is_touched: bool = False
    is_filled: bool = False

    def lanes_at(
        self, elemental: Elemental, instruction: Instruction, indices: list[Index]
    ) -> list[Lanes]:
        """The lanes: read where a stage has left them, else computed and left there."""
        nest = elemental.nest
        places = [self._place(index) for index in indices]
        if self.is_filled:
            return [access.load(nest, self.row, place, None) for place in places]
        results = elemental.computed(instruction, indices, ())
        self.is_touched = True  # not before: what it needs may be stages that end meanwhile
        for place, lanes in zip(places, results, strict=True):
            access.store(nest, self.row, place, elemental.splat(lanes, place.lanes))
        return results

    def _place(self, index: Index) -> Expr:
        """Vectors of a batch differ by constants: these, and the lane, are the place in a row."""
        (across,) = [e for e in index if e.lanes > 1]
        lane = Variable("0", 0, across.lanes - 1, 0, across.lanes, Value("0", "i64"))
        place = indexing.linear([index[d] for d in self.folded], self.sizes)
        return place * self.width + Expr({lane: 1}, across.constant % self.batch)


def saved_strips(elemental: Elemental, part: Part) -> dict[Instruction, SavedStrip]:
    """Buffers for the part's expensive elements that are asked for in two stages."""
    found: dict[Instruction, SavedStrip] = {}
    folded = prod(part.extents[part.lane_loop + 1 :])
    batch = part.lanes * part.copies
    total = 0
    for instruction, indices in (part.trace.heavy_at | _gathered(part)).items():
        inner = _folded_dims(part, indices)
        if inner is None or folded <= UNROLLED or instruction.shape.dtype.is_complex:
            continue
        sizes = tuple(instruction.shape.dims[d] for d in inner)
        size = prod(sizes) * (batch + part.lanes)
        dtype = instruction.shape.dtype
        if types.is_narrow_float(dtype):
            dtype = dt.F32  # what the lanes are: neither packed nor spread again
        total += size * dtype.item_bytes
        if prod(sizes) != folded or total > _KEPT_BYTES:
            continue
        with elemental.nest.at(0):
            w = elemental.nest.w
            base = w.assign("ptr", f"alloca [{size * dtype.item_bytes} x i8], align 64")
        memory = Memory(base, dtype, size)
        found[instruction] = SavedStrip(memory, sizes, inner, batch, batch + part.lanes)
    return found


def _gathered(part: Part) -> dict[Instruction, list[Index]]:
    """The operands whose elements for neighbouring lanes lie apart, with the indices of reads."""
    if part.trace.conditions:
        return {}
    lane = part.variables[part.lane_loop]
    apart = {r.source for r in part.trace.reads if (r.position.coefficient(lane) or 0) > 1}
    found: dict[Instruction, list[Index]] = {}
    for read in part.trace.reads:
        if read.source in apart and read.source.shape.is_array:
            found.setdefault(read.source, []).append(read.index)
    return found


def _folded_dims(part: Part, indices: list[Index]) -> tuple[int, ...] | None:
    """The dimensions in which the stages' indices differ, if lanes are one other dimension."""
    if len(indices) < 2:
        return None
    inner = [d for d in range(len(indices[0])) if any(i[d] != indices[0][d] for i in indices)]
    lane = part.variables[part.lane_loop]
    for index in indices:
        across = [d for d, e in enumerate(index) if e.depends_on(lane)]
        if len(across) != 1 or across[0] in inner or index[across[0]].coefficient(lane) != 1:
            return None
        if not all(isinstance(a, Variable) for d in inner for a in index[d].terms):
            return None
    return tuple(inner)
