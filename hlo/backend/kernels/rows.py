"""Saved rows: elements that several stages read and that cost much are computed by the first only.

The exponential of a softmax is asked for by the sum and by the division: it is kept in a row of the
inner dimensions, in memory of the thread, so it stays in the first levels of cache.
"""

from __future__ import annotations

from math import prod

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.kernels.kept import Kept
from hlo.backend.kernels.part import Part, covers, fixed_by
from hlo.backend.kernels.thread_memory import thread_memory
from hlo.backend.lanes.access import Memory
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction


class SavedRow(Kept):
    """An expensive element that several stages read: kept in a row of memory by the first.

    row: where it lies, and after it those of the rows side by side; inner: the dimensions that
    make up the row.
    """

    def __init__(self, row: Memory, dims: tuple[int, ...], inner: tuple[int, ...]) -> None:
        super().__init__(row)
        self.dims = dims
        self.inner = inner
        self.rows: dict[Index, int] = {}  # the other dimensions' indices: which row it is

    def place(self, index: Index) -> Expr:
        sizes = [self.dims[d] for d in self.inner]
        outer = tuple(e for d, e in enumerate(index) if d not in self.inner)
        row = self.rows.setdefault(outer, len(self.rows))
        return affine.linear([index[d] for d in self.inner], sizes) + row * prod(sizes)


def saved_rows(elemental: Elemental, part: Part) -> dict[Instruction, SavedRow]:
    """Rows for the part's elements that are asked for at several indices with one outer part.

    A longer row than a part of the second-level cache is as slow as computing again; elements that
    are cheap come faster out of the first level only.
    """
    if not part.trace.reductions or part.block:
        return {}
    found: dict[Instruction, SavedRow] = {}
    total = 0
    first, second = part.machine.first_cache.bytes, part.machine.second_cache.bytes
    for instruction, inner in _worth_a_row(part).items():
        dtype = instruction.shape.dtype
        if dtype.is_narrow_float:
            dtype = dt.F32  # what the lanes are: neither packed nor spread again
        size = prod(instruction.shape.dims[d] for d in inner) * part.rows
        size_bytes = size * dtype.item_bytes
        most = second // 32 if instruction in part.trace.heavy_at else first // 2
        if size < elemental.lanes or size_bytes > most or total + size_bytes > second // 8:
            continue
        total += size_bytes
        part.remarks.append(f"row: {instruction.name} kept, {size_bytes} bytes of {most} at most")
        memory = Memory(thread_memory(elemental, size_bytes), dtype, size)
        found[instruction] = SavedRow(memory, instruction.shape.dims, inner)
    return found


def _worth_a_row(part: Part) -> dict[Instruction, tuple[int, ...]]:
    """What several stages read, with the dimensions of its row: the expensive, and of what is
    rounded (five instructions each) the last before something that is not kept.
    """
    found: dict[Instruction, tuple[int, ...]] = {}
    for instruction, indices in (part.trace.heavy_at | part.trace.rounded_at).items():
        inner = _inner(indices, instruction.shape.dims)
        if inner is None or instruction.shape.dtype.is_complex:
            continue
        if not any(_is_across(part, i, inner) or _is_partial(part, i, inner) for i in indices):
            found[instruction] = inner
    return {
        i: inner
        for i, inner in found.items()
        if i in part.trace.heavy_at or not i.users or any(u not in found for u in i.users)
    }


def _inner(indices: list[Index], dims: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dimensions in which the indices differ, if each runs over all of them; else None."""
    if len(indices) < 2:
        return None
    inner = tuple(d for d in range(len(dims)) if any(i[d] != indices[0][d] for i in indices))
    for index in indices:
        place = affine.linear([index[d] for d in inner], [dims[d] for d in inner])
        if not covers(place, prod(dims[d] for d in inner)):
            return None
        outer = {a for d in range(len(dims)) if d not in inner for a in index[d].terms}
        if outer & set(place.terms):
            return None
    return inner


def _is_across(part: Part, index: Index, inner: tuple[int, ...]) -> bool:
    """Whether the part's lanes are elements of different rows."""
    if not part.in_lanes:
        return False
    lane = part.variables[-1]
    return any(e.depends_on(lane) for d, e in enumerate(index) if d not in inner)


def _is_partial(part: Part, index: Index, inner: tuple[int, ...]) -> bool:
    """Whether it is an element of the row at a place that is fixed where the folds are."""
    depth = max((fixed_by(part, at) for _, at in part.trace.reductions), default=0)
    return any(index[d].depends_on(v) for d in inner for v in part.variables[:depth])
