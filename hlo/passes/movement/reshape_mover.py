"""reshape-mover: sink equal reshapes or transposes of all operands below an elementwise op."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.ops.table import Trait, has_trait
from hlo.passes.liveness import awaited, fused_computations
from hlo.passes.patterns.matching import is_plain, splat, splat_literal


def reshape_mover(module: Module) -> bool:
    """Sink equal reshapes or transposes of all operands below elementwise ops.

    op(R(x), R(y), splat)  =>  R(op(x, y, splat'))  where no R has another user: no work is added.
    O(edges).
    """
    changed = False
    fused = fused_computations(module)
    for computation in module.computations:
        if computation in fused:
            continue
        kept = awaited(computation)
        for instruction in post_order(computation):
            if len(instruction.operands) > 1 and instruction not in kept:
                changed |= _sink(computation, instruction)
    return changed


def _sink(computation: Computation, instruction: Instruction) -> bool:
    if not has_trait(instruction, Trait.ELEMENTWISE) or not is_plain(instruction.shape):
        return False
    if instruction.shape.is_scalar or len(instruction.operands) < 2:
        return False
    if "control-predecessors" in instruction.attributes:
        return False
    moves = [o for o in instruction.operands if _is_move(o) and o.shape.rank]
    if not moves or any(not _alike(m, moves[0]) or len(m.users) != 1 for m in moves):
        return False
    others = [o for o in instruction.operands if o not in moves]
    if any(o.shape.is_array and not o.shape.is_scalar and not _is_splat(o) for o in others):
        return False
    source = moves[0].operands[0].shape
    operands = [o.operands[0] if o in moves else _spread(o, source) for o in instruction.operands]
    attributes = {k: v for k, v in instruction.attributes.items() if k != "metadata"}
    shape = source.with_dtype(instruction.shape.dtype)
    inner = make(instruction, instruction.opcode, *operands, shape=shape, **attributes)
    keywords = {k: v for k, v in moves[0].attributes.items() if k == "dimensions"}
    outer = make(instruction, moves[0].opcode, inner, shape=instruction.shape, **keywords)
    computation.replace_uses(instruction, outer)
    computation.remove(instruction)
    return True


def _is_move(operand: Instruction) -> bool:
    return operand.opcode in ("reshape", "transpose")


def _alike(a: Instruction, b: Instruction) -> bool:
    return (
        a.opcode == b.opcode
        and a.get("dimensions") == b.get("dimensions")
        and a.operands[0].shape.dims == b.operands[0].shape.dims
        and is_plain(a.operands[0].shape)
        and is_plain(a.shape)
    )


def _is_splat(operand: Instruction) -> bool:
    return operand.opcode == "broadcast" and splat_literal(operand) is not None


def _spread(operand: Instruction, source: Shape) -> Instruction:
    """The same splat in another shape; scalars stay."""
    if operand.shape.is_scalar:
        return operand
    return splat(operand, splat_literal(operand), source.with_dtype(operand.shape.dtype))
