"""The loops of matrix-vector products, as a schedule has them.

Dots | Axpys --vector_schedule--> LoopSchedule
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.backend.kernels.contraction.problem.nests import DEPTH, SUMS, batches, cached, stored
from hlo.backend.kernels.contraction.problem.sum_blocks import BLOCK, block_sizes
from hlo.backend.kernels.contraction.vectors.axpys import Axpys
from hlo.backend.kernels.contraction.vectors.gemv import Dots
from hlo.backend.kernels.contraction.vectors.plan import dots_rows, vector_sums
from hlo.backend.loops.one_nest import Nodes, around, schedule_of
from hlo.backend.loops.schedule import (
    Axis,
    Fill,
    Join,
    Loop,
    LoopSchedule,
    Reduction,
    Role,
    Tail,
    axis_name,
)


def vector_schedule(stream: Dots | Axpys) -> LoopSchedule:
    """The loops of gemv.py's kernels."""
    c, sums = stream.c, vector_sums(stream.c, stream.ring)
    body = _dots(stream) if isinstance(stream, Dots) else _axpys(stream)
    step = stream.size * stream.at_once if isinstance(stream, Dots) else stream.chunk
    tail = Tail.SHORT if c.n % step else Tail.NONE
    axes = (batches(c), Axis("j", max(c.n, 1), Role.PARALLEL, step, tail=tail))
    remark = f"sums: {sums.plan}, chains of {sums.chain} additions at most"
    found = around(axes, body)
    return schedule_of(axes, found, (remark,), scratch_bytes=stream.scratch_bytes)


def _reads(stream: Dots | Axpys) -> tuple[str, str]:
    return stream.c.lhs.read_from, stream.c.rhs.read_from


# -- dots --------------------------------------------------------------------------------------


def _dots(stream: Dots) -> Nodes:
    """Some columns at a time, each with all rows."""
    c = stream.c
    step = stream.at_once
    columns = Axis(
        "j",
        min(stream.size * step, c.n),
        Role.SERIAL,
        step,
        tail=Tail.MASKED if c.n % step else Tail.NONE,
        of=c.n if stream.blocks > 1 else 0,
    )
    join = Join.TOGETHER if step > 1 else Join.HALVED
    axes = tuple(depth_axes(stream))
    groups = dots_rows(c, stream.ring)
    together = len(groups[0]) * step
    made = Reduction(
        SUMS, "add of products", axes, 1, together, stream.chains, join=join, reads=_reads(stream)
    )
    return (Loop(columns, _of_groups(groups, (made, stored(c, stream.epilogue)))),)


def _of_groups(groups: Sequence[range], body: Nodes) -> Nodes:
    """The body for each group of rows."""
    if len(groups) == 1:
        return body
    size, rows = len(groups[0]), groups[-1].stop
    tail = Tail.SHORT if rows % size else Tail.NONE
    return (Loop(Axis("i", rows, Role.UNROLLED, size, tail=tail), body),)


def depth_axes(stream: Dots) -> Iterator[Axis]:
    """Loops over depth; the innermost one over vectors, as many a round as there are chains."""
    cut, lanes = stream.cut, stream.ring.lanes
    *outer, last = stream.c.depth
    for level, axis in enumerate(outer):
        blocks = cut.blocks(level) if cut else ()
        apart = blocks[-1:] == (1,)
        own = blocks[: len(blocks) - apart]
        yield Axis(axis_name(level, "r"), axis.size, Role.REDUCED, blocks=own, apart=apart)
    step, size = lanes * stream.chains, last.size
    rounds = cut.rounds if cut and cut.level == len(outer) else 0
    blocks = tuple(n * step for n in block_sizes(rounds, size // step)) if rounds else ()
    tail = Tail.MASKED if size % lanes else Tail.SHORT if size % step else Tail.NONE
    yield Axis(axis_name(len(outer), "r"), size, Role.VECTOR, step, lanes, tail, blocks=blocks)


# -- axpys -------------------------------------------------------------------------------------


def _axpys(stream: Axpys) -> Nodes:
    """Some rows of the matrix at a time, onto sums that wait in scratch."""
    c, ring, depths = stream.c, stream.ring, stream.depths
    dims, totals = (c.m, stream.sums_size // c.m), f"totals of {SUMS}"
    whole, zero = stream.whole, Fill(SUMS, "0")
    group = _of_groups(
        stream.groups, _columns(stream, _added(stream, f"{depths} depths"), stream.vectors)
    )
    found: Nodes = (cached(SUMS, dims, ring), *_columns(stream, (zero,)))
    rounds: Nodes = (Loop(Axis(DEPTH, whole, Role.REDUCED, depths), group),) if whole else ()
    finished = SUMS
    if stream.has_totals:
        block = BLOCK // depths * depths
        of = whole if whole % block else 0
        inner = Loop(Axis(DEPTH, block, Role.REDUCED, depths, of=of), group)
        joined = _columns(stream, (Fill(totals, f"add of {totals} and {SUMS}"), zero))
        rounds = (Loop(Axis(DEPTH, whole, Role.REDUCED, block), (inner, *joined)),)
        cleared = _columns(stream, (zero, Fill(totals, "0")))
        found = (cached(SUMS, dims, ring), cached(totals, dims, ring), *cleared)
        finished = f"add of {totals} and {SUMS}"
    for first in range(whole, c.k, depths):
        rest = min(depths, c.k - first)
        text = f"the last {rest} depths" if first + rest == c.k else f"{rest} depths"
        rounds += _of_groups(stream.groups, _columns(stream, _added(stream, text), stream.vectors))
    return (*found, *rounds, *_columns(stream, (stored(c, stream.epilogue, finished),)))


def _added(stream: Axpys, depths: str) -> Nodes:
    text = f"add of {SUMS} and products of {depths}, reads {', '.join(_reads(stream))}"
    return (Fill(SUMS, text),)


def _columns(stream: Axpys, body: Nodes, vectors: int = 1) -> Nodes:
    """A unit's columns, some vectors of them at a time."""
    n, lanes = stream.c.n, stream.ring.lanes
    step = vectors * lanes
    short = Tail.SHORT if stream.leaves_vectors(vectors) else Tail.NONE
    tail = Tail.MASKED if n % lanes else short
    tail_step = lanes if tail is not Tail.NONE else 0
    of = n if stream.blocks > 1 else 0
    extent = min(stream.chunk, n)
    return (Loop(Axis("j", extent, Role.VECTOR, step, lanes, tail, tail_step, of), body),)
