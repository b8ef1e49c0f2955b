"""sharding-remover: make a partitioned module run on one device."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.liveness import awaited

# Custom calls that only annotate, and are the identity on one device.
ANNOTATIONS = frozenset({"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"})
HEADER = frozenset({
    "num_partitions",
    "replica_count",
    "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output",
})  # fmt: skip


def sharding_remover(module: Module) -> bool:
    """Drop sharding annotations and the partition count.

    custom-call(x), custom_call_target="Sharding"  =>  x. O(instructions).
    """
    dropped = [v for k, v in module.attributes.items() if k in HEADER]
    changed = any(v != () for v in dropped)  # an empty list says nothing
    module.attributes = {k: v for k, v in module.attributes.items() if k not in HEADER}
    for computation in module.computations:
        tied = awaited(computation)
        for instruction in computation.instructions:
            if instruction not in tied:
                changed |= _strip(computation, instruction)
    return changed


def _strip(computation: Computation, instruction: Instruction) -> bool:
    if (
        instruction.get("custom_call_target") in ANNOTATIONS
        and len(instruction.operands) == 1
        and instruction.operands[0].shape == instruction.shape
    ):
        computation.replace_uses(instruction, instruction.operands[0])
        computation.remove(instruction)
        return True
    if "sharding" not in instruction.attributes:
        return False
    rest = {k: v for k, v in instruction.attributes.items() if k != "sharding"}
    computation.set_attributes(instruction, rest)
    return True
