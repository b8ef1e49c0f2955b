"""The loops of word streams, as a schedule has them, and how long their chains of additions are."""

from __future__ import annotations

from hlo.backend.kernels.contraction.problem.nests import DEPTH, SUMS, batches, cached, stored
from hlo.backend.kernels.contraction.problem.sum_blocks import BLOCK
from hlo.backend.kernels.contraction.vectors.word_plan import word_stream_sums
from hlo.backend.kernels.contraction.vectors.word_stream import WordStream
from hlo.backend.loops.one_nest import Nodes, around, schedule_of
from hlo.backend.loops.schedule import Axis, Fill, Loop, LoopSchedule, Role, Tail

_TOTALS = f"totals of {SUMS}"


def word_stream_schedule(stream: WordStream) -> LoopSchedule:
    """The loops of word_stream.py's kernel."""
    c, sums = stream.c, word_stream_sums(stream.c)
    tail = Tail.SHORT if c.n % stream.chunk else Tail.NONE
    axes = (batches(c), Axis("j", c.n, Role.PARALLEL, stream.chunk, tail=tail))
    remarks = [f"sums: {sums.plan}, chains of {sums.chain} additions at most"]
    if stream.checks:
        remarks.append("check: whether a column has subnormal numbers")
    found = around(axes, _body(stream))
    return schedule_of(axes, found, remarks, scratch_bytes=stream.scratch_bytes)


def _body(stream: WordStream) -> Nodes:
    c, ring, dims = stream.c, stream.ring, (stream.rows, stream.chunk)
    groups, rest = divmod(c.k, stream.depths)
    whole, zero = groups * stream.depths, Fill(SUMS, "0")
    group = _steps(stream, _added(stream, f"{stream.depths} depths"))
    found: Nodes = (cached(SUMS, dims, ring), *_steps(stream, (zero,)))
    rounds: Nodes = (
        (Loop(Axis(DEPTH, whole, Role.REDUCED, stream.depths), group),) if groups else ()
    )
    finished = SUMS
    if stream.has_totals:
        of = whole if whole % BLOCK else 0
        inner = Loop(Axis(DEPTH, BLOCK, Role.REDUCED, stream.depths, of=of), group)
        joined = _steps(stream, (Fill(_TOTALS, f"add of {_TOTALS} and {SUMS}"), zero))
        rounds = (Loop(Axis(DEPTH, whole, Role.REDUCED, BLOCK), (inner, *joined)),)
        cleared = _steps(stream, (zero, Fill(_TOTALS, "0")))
        found = (cached(SUMS, dims, ring), cached(_TOTALS, dims, ring), *cleared)
        finished = f"add of {_TOTALS} and {SUMS}"
    if rest:
        rounds += _steps(stream, _added(stream, f"the last {rest} depths"))
    return (*found, *rounds, *_steps(stream, (stored(c, stream.epilogue, finished),)))


def _added(stream: WordStream, depths: str) -> Nodes:
    reads = f"{stream.c.lhs.read_from}, {stream.c.rhs.read_from}"
    return (Fill(SUMS, f"add of {SUMS} and products of {depths}, reads {reads}"),)


def _steps(stream: WordStream, body: Nodes) -> Nodes:
    """A unit's columns."""
    n, step, lanes = stream.c.n, stream.elements, stream.ring.lanes
    tail = Tail.MASKED if n % step else Tail.NONE
    of = n if stream.blocks > 1 else 0
    extent = min(stream.chunk, n)
    tail_step = step if tail is not Tail.NONE else 0
    return (Loop(Axis("j", extent, Role.VECTOR, step, lanes, tail, tail_step, of), body),)
