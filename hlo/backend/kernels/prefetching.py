"""Prefetching: the rows that come next are on their way while one is computed.

    part whose rows are folded, then stored --fetch_ahead--> a hint per line of what it reads

A processor's own prefetcher ends at a page, so that every row of a few KB begins with a wait for
memory; and while a row's exponentials are computed memory would be idle. The hints stand in the
last stage, which goes through the row once.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.codegen import types
from hlo.backend.codegen.access import Memory
from hlo.backend.codegen.elemental import Elemental
from hlo.backend.codegen.indexing import Atom, Expr
from hlo.backend.codegen.nest import Nest
from hlo.backend.kernels.parts import LEAST_STREAM_BYTES, LINE_BYTES, Part

_AHEAD_BYTES = 4096  # that memory delivers while it is waited for: at least one row


def fetch_ahead(
    elemental: Elemental, part: Part, outers: Sequence[Sequence[Expr]], last: Sequence[Expr]
) -> None:
    """Hints for what the last stage reads at the loops' values, some rows further on."""
    if not part.trace.reductions or part.streams or part.tile is not None or not part.loops:
        return
    row, lane = part.variables[part.loops - 1], part.variables[-1]
    known = {memory.leaf: memory for memory in elemental.memory.values()}
    positions = {
        (known[read.leaf], read.position)
        for read in part.trace.reads
        if read.leaf in known and not read.folded and read.position.coefficient(lane) == 1
    }
    for memory, position in sorted(positions, key=lambda p: (p[0].leaf, repr(p[1]))):
        item_bytes = memory.dtype.item_bytes
        step_bytes = (position.coefficient(row) or 0) * part.rows * item_bytes
        if step_bytes <= 0 or memory.size_bytes < LEAST_STREAM_BYTES:
            continue
        ahead_bytes = -(-_AHEAD_BYTES // step_bytes) * step_bytes
        vectors = max(1, LINE_BYTES // (part.lanes * item_bytes))
        for outer in outers:
            for place in last[::vectors]:
                values: dict[Atom, Expr] = dict(zip(part.variables, (*outer, place), strict=True))
                _fetch(elemental.nest, memory, position.substituted(values), ahead_bytes)


def _fetch(nest: Nest, memory: Memory, position: Expr, ahead_bytes: int) -> None:
    """A hint, which is no access: it may lie behind the array."""
    w = nest.w
    here = nest.pointer(memory.base, position, types.storage_scalar(memory.dtype))
    ahead = w.pure("ptr", f"getelementptr i8, ptr {here}, i64 {ahead_bytes}")
    w.declare("void", "llvm.prefetch.p0", ["ptr", "i32", "i32", "i32"])
    w.emit(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")
