"""tuple-simplifier: take apart tuples that are put together only to be taken apart."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.liveness import awaited, fused_computations
from hlo.passes.settling import is_settled, settle

_TUPLES = frozenset({"tuple", "get-tuple-element"})


def tuple_simplifier(module: Module) -> bool:
    """get-tuple-element(tuple(..)) and tuple(get-tuple-element(..)) pairs.

    get-tuple-element(tuple(x0, .., xn), i)  =>  xi
    tuple(get-tuple-element(t, 0), .., get-tuple-element(t, n))  =>  t
    """
    changed = False
    fused = fused_computations(module)
    for computation in module.computations:
        if computation not in fused and not is_settled(computation, tuple_simplifier):
            changed |= _simplified(computation)
    return changed


def _simplified(computation: Computation) -> bool:
    changed = False
    kept = awaited(computation)
    if not any(_simpler(i) for i in computation.instructions if i.opcode in _TUPLES):
        settle(computation, tuple_simplifier)
        return False  # an order of all instructions would be made for nothing
    for instruction in post_order(computation):
        if instruction.opcode not in _TUPLES:
            continue
        if "control-predecessors" in instruction.attributes or instruction in kept:
            continue
        new = _simpler(instruction)
        if new is not None:
            computation.replace_uses(instruction, new)
            if not instruction.users and not instruction.is_root:
                computation.remove(instruction)
            changed = True
    if not changed:
        settle(computation, tuple_simplifier)
    return changed


def _simpler(instruction: Instruction) -> Instruction | None:
    if instruction.opcode == "get-tuple-element":
        (operand,) = instruction.operands
        index = instruction["index"]
        assert isinstance(index, int), "get-tuple-element has an integer index"
        return operand.operands[index] if operand.opcode == "tuple" else None
    if instruction.opcode == "tuple":
        return _whole_tuple(instruction)
    return None


def _whole_tuple(instruction: Instruction) -> Instruction | None:
    if not instruction.operands:
        return None
    for i, element in enumerate(instruction.operands):
        if element.opcode != "get-tuple-element" or element["index"] != i:
            return None
        if element.operands[0] is not instruction.operands[0].operands[0]:
            return None
    whole = instruction.operands[0].operands[0]
    return whole if whole.shape == instruction.shape else None
