"""Refusals: what the reference refuses whatever the values are, said when a program is compiled.

    host steps, or all that the reference runs --check_runs--> HloError "unsupported"

A host step is evaluated when it is its turn; what can be known of it before is said before.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo.backend.planning.constants import no_value
from hlo.errors import HloError, Violation
from hlo.ir.graph import reachable_computations
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ops.custom_targets import own_target
from hlo.ops.effects import has_effect, with_callees


def check_runs(instructions: Iterable[Instruction]) -> None:
    """Raise what evaluating one of them, or of what they call, would raise for any values."""
    for instruction in instructions:
        for step in with_callees(instruction):
            try:
                _check(step)
            except Violation as violation:
                from hlo.ops.placing import located  # for faults alone

                raise located(violation, step) from None


def check_values(module: Module) -> None:
    """Raise where the result, or an effect, needs a constant whose value the text leaves out: it
    is said before the work on a large program, not after it.
    """
    computations = reachable_computations(module)
    if not any(_is_elided(i) for c in computations for i in c.instructions):
        return
    waiting = [i for c in computations for i in c.instructions if has_effect(i)]
    waiting.append(module.entry.root)
    seen = set(waiting)
    while waiting:
        instruction = waiting.pop()
        if _is_elided(instruction):
            raise no_value(instruction)
        needed = (*instruction.operands, *(c.root for c in instruction.called_computations()))
        waiting += (i for i in needed if i not in seen)
        seen.update(needed)


def _is_elided(instruction: Instruction) -> bool:
    """Whether it is a constant whose value the text leaves out."""
    literal = instruction.attributes.get("literal")
    return isinstance(literal, Literal) and literal.shape.is_array and literal.is_elided


def check_static(module: Module) -> None:
    """Raise where a size changes at run time, of a program that code is made for."""
    for computation in reachable_computations(module):
        for instruction in computation.instructions:
            if instruction.shape.is_dynamic:
                raise HloError(
                    "unsupported",
                    f"{instruction.opcode}: {instruction.shape} has a size that changes at run "
                    "time, expected sizes that are fixed inside of a compiled program",
                    instruction.span,
                    help="the pass dynamic_padder, of the default pipeline, makes them so; what it "
                    "leaves as it is, the reference runs",
                )


def _check(step: Instruction) -> None:
    if step.opcode in ("constant", "parameter"):
        return
    from hlo.interpreter.run import evaluator  # for what the reference runs alone

    evaluator(step)
    if step.opcode in ("send", "recv"):
        from hlo.ops.host import check_transfer  # as the next, for few programs

        check_transfer(step)
    if step.opcode == "custom-call":
        from hlo.ops.custom_call import check_target

        target = str(step["custom_call_target"])
        check_target(target, tuple(o.shape for o in step.operands), step.shape)
        from hlo.ops.lapack import MATRIX_TARGETS, check_library

        if own_target(step) in MATRIX_TARGETS:
            check_library()
