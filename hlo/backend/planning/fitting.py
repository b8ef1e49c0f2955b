"""Fitting: whether a planned program can run on this machine at all, asked before any code is made.

    BufferPlan --check_addressable--> an arena whose offsets are 64-bit numbers
    Program --check_fits--> results and temporaries that this process can have

Arguments are the caller's: they may be files in memory, or one array many times.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.leaves import leaves_of
from hlo.backend.planning.allocations import Allocation, AllocationKind
from hlo.backend.planning.memory import peak
from hlo.backend.planning.program import HostStep, Program
from hlo.errors import HloError, Violation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import OPS, KernelFamily
from hlo.process.memory import LARGE, machine_bytes, memory_error, numpy_problem

# The most bytes of an arena: with what packing adds, offsets stay below 2^63.
ADDRESSABLE = 1 << 61
_MADE = (AllocationKind.ARENA, AllocationKind.RESULT)


def check_addressable(allocations: Sequence[Allocation]) -> None:
    """Raises HloError "memory" where the values in use at a time have no 64-bit offsets."""
    _, size = peak([c for c in allocations if c.kind in _MADE and c.size])
    size += sum(c.size for c in allocations if c.kind is AllocationKind.SPARE)
    if size > ADDRESSABLE:
        raise _refused(allocations, size)


def check_fits(program: Program) -> None:
    """Raises HloError "memory" where a run would take more than this process can ever have."""
    plan = program.plan
    results = sum(c.size for c in plan.allocations if c.kind is AllocationKind.RESULT)
    size = plan.arena_bytes + plan.spare_bytes + program.working_bytes + results
    if size > LARGE and size > machine_bytes():
        raise _refused(plan.allocations, size)


def _refused(allocations: Sequence[Allocation], size: int) -> HloError:
    """The error, at the instruction that makes the largest value."""
    largest = max((c for c in allocations if c.kind in _MADE), key=lambda c: c.size, default=None)
    instruction = None if largest is None else _maker(largest)
    if largest is None or instruction is None:
        return memory_error(size, "the program's results and temporaries")
    what = f"{instruction.opcode}: the largest of the program's results and temporaries is "
    what += f"{instruction.name}, {largest.size} bytes; together"
    return memory_error(size, what, instruction.span)


def _maker(allocation: Allocation) -> Instruction | None:
    """What computes the value: a result's allocation names the entry's root."""
    return (
        allocation.held[-1]
        if allocation.kind is AllocationKind.RESULT and allocation.held
        else allocation.instruction
    )


def check_windows(module: Module) -> None:
    """Raises HloError "limit" for windows whose positions are too many to be walked, or too far."""
    for computation in module.computations:
        for instruction in computation.instructions:
            is_windowed = OPS[instruction.opcode].family is KernelFamily.WINDOW
            if is_windowed or instruction.opcode == "convolution":
                try:
                    _check_window(instruction)
                except Violation as violation:
                    from hlo.ops.placing import located  # for faults alone

                    raise located(violation, instruction) from None


def _check_window(instruction: Instruction) -> None:
    from hlo.attributes.window import Window
    from hlo.ops.windows import NO_WINDOW, check_places, check_walk  # few programs have any

    dims = instruction.operands[0].shape.dims
    window = instruction.attributes.get("window", NO_WINDOW)
    assert isinstance(window, Window), "its kind"
    if instruction.opcode != "convolution":
        return check_walk(dims, window)
    from hlo.ops.convolution import ConvolutionAttributes

    labels = ConvolutionAttributes.of(instruction.attributes).dim_labels
    return check_places(tuple(dims[d] for d in labels.lhs_spatial), window)


def check_arrays(module: Module) -> None:
    """Raises HloError "limit" where a caller would get or give an array that NumPy has not."""
    for instruction in (*module.entry.parameters, module.entry.root):
        _check_array(instruction)


def check_host_arrays(steps: Sequence[HostStep]) -> None:
    """The same of what the reference evaluates during a run."""
    for step in steps:
        for instruction in (step.instruction, *step.instruction.operands):
            _check_array(instruction)


def _check_array(instruction: Instruction) -> None:
    for leaf in leaves_of(instruction.shape):
        problem = numpy_problem(leaf.dims, leaf.dtype.item_bytes) if leaf.is_array else ""
        if problem:
            message = f"{instruction.opcode}: {instruction.name} has {problem}"
            raise HloError("limit", message, instruction.span)
