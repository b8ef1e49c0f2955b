"""Row loops: a while that reads and writes rows of arrays in its trips, as one kernel.

    fusion of a while --choose_row_loop--> RowLoopSchedule --> Kernel

A unit takes some vectors of lanes from the loop's start to its end, its state in registers: in each
trip it loads their parts of the rows that are read and stores those of the rows that are written
(emitters/lane_loop.py). Rows are written all, each in one trip, so that what lay there before is
nowhere seen. Other fusions are left to fused loops (None).
"""

from __future__ import annotations

from hlo.analysis.leaves import leaves_of
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.lane_loop import run_rows
from hlo.backend.emitters.structural import elemental_of
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.fused_loops import (
    enter_operands,
    function_of,
    lanes_of,
    underflows_in,
)
from hlo.backend.kernels.stored import enter_outputs, memory_of, store
from hlo.backend.lanes.nest import Nest
from hlo.backend.loops.choose_row_loop import RowLoopSchedule, choose_row_loop
from hlo.backend.loops.outputs import Output, outputs_of
from hlo.backend.loops.schedule import Axis, Tail
from hlo.indexing.affine import Expr
from hlo.ir.instruction import Instruction


def row_loop_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """The kernel of a fusion that is a while which writes rows, None for all others."""
    lanes = lanes_of(instruction, target)
    schedule = choose_row_loop(instruction, lanes, target.machine)
    if schedule is None:
        return None
    w = Writer()
    elemental = elemental_of(Nest(w, target), lanes)
    elemental.expression.underflows_in = underflows_in(instruction, target)
    count = enter_operands(elemental.expression, instruction)
    outputs = outputs_of(elemental.expression, instruction, count)
    elemental.enter_leaves()
    enter_outputs(elemental, outputs)
    record = elemental.nest.begin_record() if target.schedules is not None else None
    _lower(elemental, schedule, outputs)
    function = function_of(w)
    if target.schedules is not None:
        target.schedules.enter(function.text, schedule.loops(outputs), record)
    shapes = [*leaves_of(instruction.shape)]
    shapes += [leaf for o in instruction.operands for leaf in leaves_of(o.shape)]
    return Kernel(
        function,
        schedule.units,
        *w.beside,
        bytes_moved=sum(shape.size_bytes for shape in shapes if shape.is_array),
        flops=schedule.flops,
    )


def _lower(elemental: Elemental, schedule: RowLoopSchedule, outputs: list[Output]) -> None:
    """The code for units [%begin, %end)."""
    nest, written = elemental.nest, schedule.found.written
    rows = {o.path[0]: memory_of(elemental, o) for o in outputs if o.path[0] in written}
    ends = [o for o in outputs if o.path[0] not in written]

    def unit(counter: Value, _: list[Value]) -> list[Value]:
        position = nest.variable(counter, 0, schedule.units - 1)
        across = schedule.across
        indices = [schedule.index(e) for e in _lanes(nest, across, position)]
        states = run_rows(elemental, schedule.loop, schedule.found, indices, rows)
        nest.tell_loop(schedule.trips, (memory.leaf for memory in rows.values()))
        for output in ends:
            for index, state in zip(indices, states, strict=True):
                value = elemental.splat(state[output.path[0]], across.lanes)
                store(elemental, output, index, value)
        return []

    nest.loop(BEGIN, END, 1, [], unit)


def _lanes(nest: Nest, across: Axis, unit: Expr) -> list[Expr]:
    """The places of a unit's vectors: neighbours, so that an array takes one address; where the row
    is shorter than they are, each where it fits.
    """
    w, lanes, rest = nest.w, across.lanes, across.extent - across.step
    if rest >= 0:
        start = nest.scalar(unit * across.step)
        if across.tail is Tail.OVERLAPPING:
            start = w.intrinsic("llvm.smin", "i64", start, w.int(rest))
        first = nest.variable(start, 0, rest + lanes - 1, lanes)
        return [first + n for n in range(0, across.step, lanes)]
    if across.tail is Tail.PREDICATED:
        mask = w.compare("icmp slt", counted("i64", lanes), w.splat(w.int(across.extent), lanes))
        return [nest.variable(w.int(0), 0, across.extent - 1, lanes, mask)]
    starts = [min(n, across.extent - lanes) for n in range(0, across.step, lanes)]
    return [nest.variable(w.int(n), 0, across.extent - 1, lanes) for n in starts]
