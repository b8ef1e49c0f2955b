"""Row loops: how a while that reads and writes rows of arrays runs, its lanes each by themselves.

    fusion of a while --choose_row_loop--> RowLoopSchedule

Lanes run over the elements of a row, all its dimensions as one. A unit is as many vectors as have
their state in registers (choose_units.chains): they go through all trips together, for a trip is a
chain of ops that each wait for the one before. The last unit ends where the row does: what two of
them hold is computed twice, with the same bits. Does not know: how code is written.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from hlo.analysis.while_loops.lane_loops import LaneLoop, elementwise_members, row_loop, row_loop_of
from hlo.analysis.while_loops.loop_state import counter
from hlo.backend.loops.choose_units import chains
from hlo.backend.loops.outputs import Output
from hlo.backend.loops.schedule import (
    Axis,
    Fill,
    Loop,
    LoopNest,
    LoopSchedule,
    Node,
    Role,
    Store,
    Tail,
    axis_name,
)
from hlo.backend.loops.trace import MOST_OPS
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.ir.instruction import Instruction
from hlo.machine import Machine
from hlo.ops.table import OPS

_UNITS = 8  # As many as threads share evenly: a row's parts come from memory at their own pace.
# The most vectors of a unit that computes little, and the most that their code may weigh: of an
# average over 500 rows of 4 KiB, a page each, 16 take 0.55 of the time of 4.
_MOST_WIDE, _WIDE_WEIGHT = 16, 64


class RowLoopSchedule(Struct, frozen=True):
    """How a loop over rows runs, lanes each by themselves.

    loop: the while, what is known of it and how many trips it takes; across: the axis of its
    lanes, a unit each round.
    """

    loop: Instruction
    found: LaneLoop
    trips: int
    across: Axis

    @property
    def units(self) -> int:
        return self.across.rounds

    @property
    def flops(self) -> int:
        """Operations of all trips."""
        members = [m for m in elementwise_members(self.loop) if m.shape.dims]
        ops = sum(min(OPS[m.opcode].cost.operations, MOST_OPS) for m in members)
        return self.trips * ops * self.across.extent

    def index(self, position: Expr) -> Index:
        """Where in arrays of the state a lane is."""
        return affine.reshaped((position,), (self.across.extent,), self.found.dims)

    def loops(self, outputs: list[Output]) -> LoopSchedule:
        """Its loops, as they are shown."""
        lane, trip = self.across.name, axis_name(0, "t")
        rows: list[Node] = []
        ends: list[Node] = []
        for output in outputs:
            (k,) = output.path
            name = "result" if output.leaf == 0 else f"result{output.leaf}"
            value = f"{self.loop.name}{{{k}}}"
            is_row = k in self.found.written
            at = (trip, lane) if is_row else (lane,)
            store = Store(name, output.array.number, at, value)
            (rows if is_row else ends).append(store)
        state = Fill(f"state of {self.loop.name}", f"{len(self.found.changed)} values in registers")
        trips: Node = Loop(Axis(trip, self.trips, Role.SCANNED), (state, *rows))
        body = (Loop(self.across, (trips, *ends)),)
        nest = LoopNest((0,), (self.across.extent,), self.units, 0, self.units, body)
        return LoopSchedule(self.units, 0, (nest,))


def choose_row_loop(
    instruction: Instruction, lanes: int, machine: Machine
) -> RowLoopSchedule | None:
    """How a fusion of a while that writes rows runs; None for all else. lanes: of a full vector of
    the kernel.
    """
    loop = row_loop_of(instruction)
    found = row_loop(loop) if loop is not None else None
    if loop is None or found is None:
        return None
    known = counter(loop)
    assert known is not None, "what writes rows counts"
    size = prod(found.dims)
    members = [m for m in elementwise_members(loop) if m.shape.dims]
    weight = len(members) + 8 * sum(OPS[m.opcode].cost.is_high for m in members)
    changing = [loop.shape.elements[k] for k in found.changed if loop.shape.elements[k].dims]
    carried = sum(1 + shape.dtype.is_complex for shape in changing)
    vectors = _vectors(carried, weight, -(-size // lanes), machine)
    tail = Tail.NONE if size % (lanes * vectors) == 0 else Tail.OVERLAPPING
    if size < lanes:
        tail = Tail.PREDICATED
    across = Axis(axis_name(0), size, Role.PARALLEL, lanes * vectors, lanes, tail)
    return RowLoopSchedule(loop, found, known.iterations, across)


def _vectors(carried: int, weight: int, all: int, machine: Machine) -> int:
    """Of a unit. A loop that computes little waits for rows: long runs of them come faster, if
    there are two units at least. Others take as many as their chains ask for, but two where there
    would be few units.
    """
    most = wide = chains(carried, weight, machine)
    while (
        2 * wide <= _MOST_WIDE
        and 2 * wide * weight <= _WIDE_WEIGHT
        and 2 * wide * (carried + 1) <= machine.registers
        and 4 * wide <= all
    ):
        wide *= 2
    if wide > most:
        return wide
    while most > 2 and all < _UNITS * most:
        most //= 2
    return min(most, all)
