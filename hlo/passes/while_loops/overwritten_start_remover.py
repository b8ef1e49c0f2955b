"""overwritten-start-remover: what a loop writes whole is not filled before it.

    while(.., broadcast(0), ..), row i written in trip i, for all rows  =>  while(.., memory, ..)

As JAX's scan makes its results: zeros, of which each trip replaces a row. The state begins as
uninitialised memory instead (the custom call AllocateBuffer), where nobody can see its numbers: the
body's only reader updates it in place at a row that the counter says, the next state is that update
and nothing else, the condition does not look, and the counter goes through every row.
"""

from __future__ import annotations

from hlo.analysis.decisions import Decisions, config_of
from hlo.analysis.while_loops.loop_state import Counter, counter
from hlo.analysis.while_loops.row_updates import row_update
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.custom_targets import UNINITIALISED
from hlo.ops.making import make
from hlo.passes.liveness import fused_computations
from hlo.passes.patterns.matching import is_plain


def overwritten_start_remover(module: Module) -> bool:
    """Leave memory that a loop writes row by row unfilled before it. O(edges)."""
    changed, fused = False, fused_computations(module)
    for computation in tuple(module.computations):
        for loop in [i for i in computation.instructions if i.opcode == "while"]:
            if computation in fused:  # its loops have no memory of their own
                continue
            known = counter(loop)
            if known is not None and known.iterations > 0:
                changed |= _without_starts(computation, loop, known)
    return changed


def _without_starts(computation: Computation, loop: Instruction, known: Counter) -> bool:
    """Take the loop's starts that nobody sees away."""
    changed = False
    (state,) = loop.operands
    is_own = set(state.users) == {loop}
    for number, start in enumerate(state.operands if is_own else ()):
        if _is_filled(start) and row_update(loop, number, known) is not None:
            memory = make(
                start, "custom-call", shape=start.shape, custom_call_target=UNINITIALISED,
                backend_config=config_of(Decisions(is_overwritten=True)),
            )  # fmt: skip
            computation.set_operand(state, number, memory)
            changed = True
    return changed


def _is_filled(start: Instruction) -> bool:
    """Whether a start is one number everywhere, written for the loop."""
    is_scalar = start.opcode == "broadcast" and not start.operands[0].shape.dims
    return is_scalar and is_plain(start.shape)
