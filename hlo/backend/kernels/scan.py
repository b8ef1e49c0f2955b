"""Cumulative reduce-windows: a scan along one dimension, linear in its length.

    reduce-window --choose_scan--> ScanSchedule --lower_scan--> Kernel

out[.., i, ..] = f(.. f(f(z, x_0), x_1) .., x_i): a window as long as the dimension, padded before
it (or after it: the scan runs from the end, for reducers whose order is free). How it runs is
chosen before any code is written (loops/choose_scan.py). Other windows are left to fused loops
(None).
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.analysis.underflow import multiplies_many
from hlo.backend.emitters.structural import elemental_of
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.fused_loops import enter_operands, function_of, lanes_of
from hlo.backend.kernels.lower_scan import lower_scan
from hlo.backend.kernels.stored import enter_outputs
from hlo.backend.lanes.nest import Nest
from hlo.backend.loops.choose_scan import ScanSchedule, choose_scan
from hlo.backend.loops.outputs import outputs_of
from hlo.ir.dtype import F32
from hlo.ir.instruction import Instruction

_AT_ONCE = 2048  # Elements, before the next ones of which it is seen what was met.


def scan_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """The kernel of a cumulative reduce-window of one array, None for all other windows.

    Of products, which underflow where they are long, in versions.
    """
    schedule = choose_scan(instruction, lanes_of(instruction, target))
    if schedule is None:
        return None
    usual, mode = _made(instruction, schedule, target), target.isa.float_mode
    waits = target.waits_for_subnormals and not target.is_small
    is_product = multiplies_many(instruction) and instruction.shape.dtype is F32
    if mode is None or not mode.met or not waits or not is_product:
        return usual
    from hlo.backend.kernels.versions import of_met  # few programs have such products

    careful = _made(instruction, schedule, replace(target, on_doubles=True, schedules=None))
    at_once = max(1, _AT_ONCE * schedule.units // instruction.shape.size)
    kernel = of_met(usual, careful, mode, at_once)
    if target.schedules is not None:
        target.schedules.enter_same(kernel.text, usual.text)
    return kernel


def _made(instruction: Instruction, schedule: ScanSchedule, target: Target) -> Kernel:
    lanes = lanes_of(instruction, target)
    w = Writer()
    elemental = elemental_of(Nest(w, target), lanes)
    count = enter_operands(elemental.expression, instruction)
    (output,) = outputs_of(elemental.expression, instruction, count)
    elemental.enter_leaves()
    enter_outputs(elemental, [output])
    record = elemental.nest.begin_record() if target.schedules is not None else None
    lower_scan(elemental, schedule, output)
    function = function_of(w)
    if target.schedules is not None:
        target.schedules.enter(function.text, schedule.loops(output.array.number), record)
    size_bytes = 2 * instruction.shape.size_bytes
    return Kernel(
        function,
        schedule.units,
        *w.beside,
        bytes_moved=size_bytes,
        flops=4 * instruction.shape.size,
    )
