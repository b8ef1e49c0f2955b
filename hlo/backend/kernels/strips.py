"""Strips: parts whose lanes run over what all folds keep, around loops over what they fold.

    part with a strip --emit_strips--> per batch of lanes: each fold, then the loops that store

A norm over a middle dimension has its lanes side by side in the last one; rows of a few elements
would leave lanes idle, so that each lane takes a row. Both read their strip from memory once and
find it in the cache in later stages; what two stages need may be kept (kernels/kept_strips.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from msgspec import Struct, field

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.kept_strips import KeptStrip
from hlo.backend.kernels.lane_axis import strip_axis
from hlo.backend.kernels.outputs import Output, store
from hlo.backend.kernels.part import Part, is_within, reduce_dims
from hlo.backend.kernels.parts import traced
from hlo.backend.lanes.lane_loops import lane_loop_between, masked_loop
from hlo.backend.loops.folds import UNROLLED
from hlo.backend.loops.schedule import Tail
from hlo.backend.loops.trace import Trace
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.ir.instruction import Instruction


def emit_strips(elemental: Elemental, part: Part, outer: list[Expr], block: Expr) -> None:
    """The batches of one unit."""
    nest, w = elemental.nest, elemental.nest.w
    length = part.extents[part.lane_loop]
    low, high = w.int(0), w.int(length)
    if part.block:
        low = nest.scalar(block * part.block)
        high = w.binary("add", low, w.int(part.block))
        if length % part.block:
            high = w.intrinsic("llvm.smin", "i64", high, w.int(length))
    strip, limits, axis = _Strip(elemental, part, outer), (0, length), strip_axis(part)
    if axis.tail is Tail.PREDICATED:
        masked_loop(nest, low, high, limits, part.lanes, strip.emit, part.copies)
        return
    rest = (part.lanes, axis.tail_step // part.lanes) if axis.tail_step else None
    lane_loop_between(nest, low, high, limits, part.lanes, part.copies, strip.emit, rest=rest)


class _Strip(Struct):
    """A batch of vectors being written.

    outer: values of the loops around it; deeper: results of fewer dimensions that the loops over
    what is folded store.
    """

    elemental: Elemental
    part: Part
    outer: list[Expr]
    deeper: list[Output] = field(default_factory=list)

    def emit(self, columns: list[Expr]) -> None:
        """Folds as stages, results of fewer dimensions, then the loops over what is folded."""
        elemental, part = self.elemental, self.part
        for kept in elemental.saved.values():
            assert isinstance(kept, KeptStrip), "strips keep nothing else"
            kept.begin()
        free = [affine.of(v) for v in part.variables[part.lane_loop + 1 :]]
        at = [part.index([*self.outer, column, *free]) for column in columns]
        for reduce, wanted in _stages([traced(elemental.expression, part, index) for index in at]):
            if not any(e.depends_on(v) for e in wanted[0] for v in part.variables):
                elemental.lanes_at(reduce, wanted, (0,) if reduce.shape.is_tuple else ())
                elemental.end_stage()
        self.deeper = [o for o in part.outer if _depends(o.row_index(at[0]), free)]
        for output in part.outer:
            for index in at if output not in self.deeper else ():
                place = output.row_index(index)
                (lanes,) = elemental.lanes_at(output.source, [place], output.path)
                store(elemental, output, place, lanes)
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
                fixed = affine.delinearized(affine.number(position), extents)
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
        places = [(o, indices) for o in part.outputs]
        places += [(o, [o.row_index(index) for index in indices]) for o in self.deeper]
        found = [elemental.lanes_at(o.source, at, o.path) for o, at in places]
        for (output, at), lanes in zip(places, found, strict=True):
            for value, index in zip(lanes, at, strict=True):
                store(elemental, output, index, value)


def _depends(index: Index, free: list[Expr]) -> bool:
    """Whether an index names loops that are not open yet: folds keep other dimensions than it."""
    return any(e.depends_on(v) for e in index for f in free for v in f.terms)


def _stages(columns: Sequence[Trace]) -> Iterator[tuple[Instruction, list[Index]]]:
    """The folds that all columns need, with its index in each; those first that others need.

    Not beside a padded operand, say: where such a fold is asked for, a test stands before it.
    """
    first, *others = [dict(_numbered(found.reductions)) for found in columns]
    for fold, index in reversed(first.items()):
        wanted = [index, *(other[fold] for other in others if fold in other)]
        reduce, _ = fold
        if len(wanted) == len(columns) and all(is_within(i, reduce_dims(reduce)) for i in wanted):
            yield reduce, wanted


def _numbered(
    folds: Sequence[tuple[Instruction, Index]],
) -> Iterator[tuple[tuple[Instruction, int], Index]]:
    """Each fold with how often it was met before, at another index."""
    counts: Counter[Instruction] = Counter()
    for reduce, index in folds:
        yield (reduce, counts[reduce]), index
        counts[reduce] += 1
