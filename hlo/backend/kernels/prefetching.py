"""Prefetching: hints for lines that a nest reads some rows later (loops/choose_prefetches.py)."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.lanes import types
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.nest_schedule import Ahead, NestSchedule
from hlo.indexing import affine
from hlo.indexing.affine import Atom, Expr, Index
from hlo.ir.instruction import Instruction


def prefetch_rows(
    elemental: Elemental,
    schedule: NestSchedule,
    rows: Sequence[Sequence[Expr]],
    last: Sequence[Expr],
) -> None:
    """Hints for what the last stage reads and writes at the loops' values, some rows or squares
    further on.
    """
    variables, line_bytes = schedule.domain.variables, schedule.machine.line_bytes
    for ahead in schedule.ahead:
        assert ahead.position is not None, "rows are read at a position"
        memory = _memory(elemental, ahead)
        vectors = max(1, line_bytes // (schedule.lanes * memory.dtype.item_bytes))
        # A square's vectors lie along its rows, and its columns are a line of memory each.
        is_turned = ahead.vectors > 1
        for row in rows[:1] if is_turned else rows:
            for place in last if is_turned else last[::vectors]:
                values: dict[Atom, Expr] = dict(zip(variables, (*row, place), strict=True))
                position = ahead.position.substituted(values)
                for k in range(ahead.vectors):
                    ahead_bytes = ahead.ahead_bytes + k * ahead.apart_bytes
                    _fetch(
                        elemental.nest, memory, position, ahead_bytes, is_written=ahead.is_written
                    )


class Prefetched:
    """An operand of the last reduction: with its elements, hints for those some rows further on."""

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


def fetched(elemental: Elemental, schedule: NestSchedule) -> dict[Instruction, Prefetched]:
    """The operands that the last reduction asks for ahead."""
    return {
        ahead.source: Prefetched(_memory(elemental, ahead), ahead.ahead_bytes)
        for ahead in schedule.fetched
        if ahead.source is not None
    }


def _memory(elemental: Elemental, ahead: Ahead) -> Memory:
    """Of an entry in the table."""
    if ahead.is_written:
        return elemental.results[ahead.leaf]
    known = {memory.leaf: memory for memory in elemental.memory.values()}
    return known[ahead.leaf]


def _fetch(
    nest: Nest, memory: Memory, position: Expr, ahead_bytes: int, *, is_written: bool = False
) -> None:
    """A hint, which is no access: it may lie behind the array."""
    w, parts = nest.w, 2 if memory.dtype.is_complex else 1
    here = nest.pointer(memory.base, position * parts, types.storage_scalar(memory.dtype))
    ahead = w.offset("getelementptr", here, w.int(ahead_bytes), "i8")
    w.prefetch(ahead, is_written=is_written)
