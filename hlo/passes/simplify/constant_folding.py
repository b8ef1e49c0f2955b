"""constant_folding: evaluate instructions whose operands are all constants."""

from __future__ import annotations

import numpy as np

from hlo.errors import HloError, Violation
from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ops.table import OPS, Trait, evaluation_keywords, has_trait
from hlo.passes.liveness import awaited, fused_computations
from hlo.passes.settling import is_settled, settle

_EXPANDING = Trait.REPEATS | Trait.PADS  # Ops that make more bytes than they read.
_BARRED = Trait.SIDE_EFFECT | Trait.RANDOM | Trait.CALLS | Trait.COLLECTIVE | Trait.FREE


def constant_folding(module: Module, *, max_elements: int = 65536) -> bool:
    """Evaluate ops on constants.

    By the reference's own `evaluate`, so that a folded value is the reference's value; results of
    more than `max_elements` elements are left to run time. O(elements folded).
    """
    changed = False
    fused = fused_computations(module)
    for computation in module.computations:
        key = (constant_folding, max_elements)
        if computation not in fused and not is_settled(computation, key):
            if _folded(computation, max_elements):
                changed = True
            else:
                settle(computation, key)
    return changed


def _folded(computation: Computation, max_elements: int) -> bool:
    changed = False
    kept = awaited(computation)
    for instruction in post_order(computation):
        if instruction not in kept and _may_fold(instruction, max_elements):
            changed |= _fold(computation, instruction)
    return changed


def _may_fold(instruction: Instruction, max_elements: int) -> bool:
    operands = instruction.operands
    if not operands or operands[0].opcode != "constant" or has_trait(instruction, _EXPANDING):
        return False
    if not all(map(_is_value, operands)):
        return False
    if not instruction.shape.is_array or instruction.shape.size > max_elements:
        return False
    if instruction.shape.is_dynamic or "control-predecessors" in instruction.attributes:
        return False
    row = OPS[instruction.opcode]
    if has_trait(instruction, _BARRED) or row.takes_context or not hasattr(row, "evaluate"):
        return False
    if instruction.called_computations():
        return False
    return sum(o.shape.size for o in operands) <= 4 * max_elements


def _is_value(operand: Instruction) -> bool:
    if operand.opcode != "constant" or not operand.shape.is_array:
        return False
    literal = operand["literal"]
    return isinstance(literal, Literal) and not literal.is_elided


def _fold(computation: Computation, instruction: Instruction) -> bool:
    row = OPS[instruction.opcode]
    keywords = evaluation_keywords(instruction)
    arrays = [o["literal"].array for o in instruction.operands]  # type: ignore[attr-defined]  # checked by _is_value
    try:
        with np.errstate(all="ignore"):
            value = row.evaluate(*arrays, **keywords)
    except (HloError, Violation, MemoryError):  # the run's to say
        return False
    literal = Literal.of(np.array(value), instruction.shape)
    new = computation.new("constant", instruction.shape, (), {"literal": literal}, like=instruction)
    computation.replace_uses(instruction, new)
    computation.remove(instruction)
    return True
