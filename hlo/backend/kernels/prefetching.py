"""Prefetching: the rows that come next are on their way while one is computed.

    part whose rows are folded, then stored --fetch_ahead--> a hint per line of what it reads

A processor's own prefetcher ends at a page, so that every row of a few KB begins with a wait for
memory; and while a row's exponentials are computed memory would be idle. The hints stand in the
last stage, which goes through the row once: the one that stores, or the last fold where none does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.kernels.part import Part, is_streamed
from hlo.backend.lanes import types
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.trace import trace
from hlo.indexing import affine
from hlo.indexing.affine import Atom, Expr, Index
from hlo.ir.instruction import Instruction
from hlo.machine import Machine


def fetch_ahead(
    elemental: Elemental, part: Part, outers: Sequence[Sequence[Expr]], last: Sequence[Expr]
) -> None:
    """Hints for what the last stage reads at the loops' values, some rows further on."""
    for memory, position, ahead_bytes in read_ahead(elemental, part):
        vectors = max(1, part.machine.line_bytes // (part.lanes * memory.dtype.item_bytes))
        for outer in outers:
            for place in last[::vectors]:
                values: dict[Atom, Expr] = dict(zip(part.variables, (*outer, place), strict=True))
                _fetch(elemental.nest, memory, position.substituted(values), ahead_bytes)


def read_ahead(elemental: Elemental, part: Part) -> Iterator[tuple[Memory, Expr, int]]:
    """What the last stage reads row by row: memory, position, how many bytes further on."""
    if not part.trace.reductions or part.streams or part.tile is not None or not part.loops:
        return
    row, lane = part.variables[part.loops - 1], part.variables[-1]
    known = {memory.leaf: memory for memory in elemental.memory.values()}
    positions = {
        (known[read.leaf], read.position)
        for read in part.trace.reads
        if read.leaf in known and not read.folded and read.position.coefficient(lane) == 1
        # where a run-time value leads is known behind its load only
        if not affine.rests_on_values(read.position)
    }
    for memory, position in sorted(positions, key=lambda p: (p[0].leaf, repr(p[1]))):
        item_bytes = memory.dtype.item_bytes
        step_bytes = (position.coefficient(row) or 0) * part.rows * item_bytes
        if step_bytes <= 0 or not is_streamed(part.machine, memory.size_bytes):
            continue
        yield memory, position, _ahead_bytes(part.machine, step_bytes)


def _ahead_bytes(machine: Machine, row_bytes: int) -> int:
    """Whole rows, as many as memory delivers while it is waited for."""
    return -(-machine.rates.awaited_bytes // row_bytes) * row_bytes


def folds_in_order(elemental: Elemental, part: Part) -> list[tuple[Instruction, Index]]:
    """The part's folds, last the one that rests on the most others where that gives hints."""
    folds = part.trace.reductions[::-1]
    if part.in_lanes or len(folds) < 2:
        return folds
    counts = {}
    for fold, index in folds:
        path = (0,) if fold.shape.is_tuple else ()
        counts[fold] = len(trace(elemental.expression, [(fold, index, path)]).reductions)
    return sorted(folds, key=lambda pair: counts[pair[0]])


class Fetched:
    """An operand of the last fold: with its elements, hints for those some rows further on."""

    is_touched = is_filled = False

    def __init__(self, memory: Memory, ahead_bytes: int) -> None:
        self.memory = memory
        self.ahead_bytes = ahead_bytes

    def lanes_at(
        self, elemental: Elemental, instruction: Instruction, indices: list[Index]
    ) -> list[Lanes]:
        found = elemental.computed(instruction, indices, ())
        lines: dict[tuple[object, int], Expr] = {}
        line_bytes = elemental.nest.target.machine.line_bytes
        for index in indices:
            position = affine.linear(index, instruction.shape.dims)
            line = position.constant * self.memory.dtype.item_bytes // line_bytes
            lines.setdefault((frozenset(position.terms.items()), line), position)
        for position in lines.values():
            if position.lanes > 1:
                _fetch(elemental.nest, self.memory, position, self.ahead_bytes)
        return found


def fetched(elemental: Elemental, part: Part) -> dict[Instruction, Fetched]:
    """The operands of a part that stores no rows, only what its folds make of them."""
    if part.in_lanes or not part.loops or not part.trace.reductions:
        return {}
    row = part.variables[part.loops - 1]
    known = {memory.leaf: memory for memory in elemental.memory.values()}
    found: dict[Instruction, Fetched] = {}
    for read in part.trace.reads:
        memory, step = known.get(read.leaf), read.position.coefficient(row) or 0
        runs = any(read.position.coefficient(v) == 1 for v in read.folded)
        if memory is None or not runs or step <= 0 or not read.source.shape.is_array:
            continue
        step_bytes = step * part.rows * memory.dtype.item_bytes
        if is_streamed(part.machine, memory.size_bytes):
            found[read.source] = Fetched(memory, _ahead_bytes(part.machine, step_bytes))
    return found


def _fetch(nest: Nest, memory: Memory, position: Expr, ahead_bytes: int) -> None:
    """A hint, which is no access: it may lie behind the array."""
    w = nest.w
    here = nest.pointer(memory.base, position, types.storage_scalar(memory.dtype))
    ahead = w.offset("getelementptr", here, w.int(ahead_bytes), "i8")
    w.call_declared("llvm.prefetch.p0", ahead, *(w.int(n, "i32") for n in (0, 3, 1)))
