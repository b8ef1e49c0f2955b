"""Block sharing: what every block would make of an operand that all of them read whole.

    KnownLeaves of a block's instructions --> early calls (hoisting.py) --shared_calls--> calls that
    run once, before the loop over blocks; what they write are further arguments of every block

A block of rows multiplies by a matrix that is the same for all blocks: it is packed once.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.blocks.block import WHOLE
from hlo.analysis.blocks.blocking import number
from hlo.analysis.blocks.cutting import CutBody, Parameter
from hlo.backend.ir.kernel import KernelCall, KernelSequence, KnownLeaves
from hlo.backend.planning.allocations import BufferPlan
from hlo.backend.planning.implementations import operand_origins
from hlo.backend.planning.schedule import Schedule
from hlo.ir.instruction import Instruction


def whole_parameters(body: CutBody) -> frozenset[int]:
    """The parameters of a block's computation that are the same for all blocks."""
    return frozenset(n for n, p in enumerate(body.parameters) if _is_whole(p))


def _is_whole(parameter: Parameter) -> bool:
    return isinstance(parameter, tuple) and parameter[1] == WHOLE


def kept_leaves(order: Schedule, instruction: Instruction, whole: frozenset[int]) -> KnownLeaves:
    """The operands of a block's instruction that are such parameters."""
    sources = enumerate(operand_origins(order, instruction))
    found = (
        (n, source[0])
        for n, source in sources
        if source is not None and source[0].opcode == "parameter"
    )
    return KnownLeaves(kept=frozenset(n for n, parameter in found if number(parameter) in whole))


def shared_calls(
    plan: BufferPlan, body: CutBody, first: int, kept: frozenset[int]
) -> tuple[list[KernelCall], list[int]]:
    """The calls before all blocks, on a blocked fusion's buffers, and the sizes of what they write.

    first: the place of the first temporary. kept: operands that a loop around the fusion keeps.
    """
    calls: list[KernelCall] = []
    places: dict[int, int] = {}
    sizes: list[int] = []
    for run in plan.early:
        for allocation in run.temporaries:
            places[allocation] = first + len(sizes)
            sizes.append(plan.allocations[allocation].size)
        for allocation in run.operands:
            places[allocation] = _operand(body.parameters, plan.allocations[allocation].index)
        buffers = [places[a] for a in (*run.operands, *run.temporaries)]
        is_early = kept.issuperset(b for b in buffers if b < first)
        assert isinstance(run.implementation, KernelSequence), "host calls have no parts"
        for call in run.implementation.calls:
            own = tuple(buffers[b] for b in call.buffers)
            when = None if call.when is None else buffers[call.when]
            calls.append(KernelCall(call.kernel, own, when, is_early))
    return calls, sizes


def _operand(parameters: Sequence[Parameter], index: int) -> int:
    """The fusion's operand that a parameter of a block is."""
    parameter = parameters[index]
    assert isinstance(parameter, tuple), "it is the same for all blocks"
    return number(parameter[0])
