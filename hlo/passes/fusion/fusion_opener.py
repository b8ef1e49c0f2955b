"""fusion-opener: fusions that hold what is a kernel of its own, or several ops, are written out."""

from __future__ import annotations

from hlo.analysis.call_budget import called_otherwise, of_calls, shared_computations
from hlo.analysis.fusibility import is_fusible_computation
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, calls, control_predecessors
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import Trait, opcodes
from hlo.passes.fusion.fusion import has_kernels
from hlo.passes.liveness import awaited, wrapped_operations
from hlo.passes.simplify.call_inliner import inline_call, inline_from_callers

# Ops that passes expand, none of which looks into fusions; and convolutions, not all of which
# have a kernel that finishes them with what a fusion holds beside.
EXPANDED = opcodes(Trait.EXPANDED) | {"convolution"}

# A fusion's attributes that a call may carry.
SILENT = frozenset({"metadata", "frontend_attributes", "sharding", "control-predecessors"})


def fusion_opener(module: Module) -> bool:
    """Write out fusions that hold ops which other passes expand.

    fusion(x), calls={ scan(x) }  =>  scan(x). O(instructions). What has a kernel as it stands, as
    the fusions of convolutions that `fusion` and `block-fusion` make, stays. What no kernel runs,
    as a lone dot, `fusion` would write out behind all passes that look for such ops.
    Fusions of fusions that are too many for the call budget become calls of fusions first.
    """
    changed = _call_large_trees(module)
    wrapped = wrapped_operations(module)
    expanding = _expanding(module)
    sizes: dict[Computation, int] = {}
    kept = {i for computation in module.computations for i in awaited(computation)}

    def is_opened(fusion: Instruction, computation: Computation) -> bool:
        if fusion.opcode != "fusion" or computation in wrapped or fusion in kept:
            return False
        (callee,) = fusion.called_computations()
        is_free = "control-predecessors" not in fusion.attributes
        has_own = callee in expanding or not is_fusible_computation(callee, sizes)
        return is_free and has_own and not has_kernels(fusion)

    def inline(fusion: Instruction, _: Computation) -> list[Instruction]:
        made: list[Instruction] = []
        inline_call(fusion, made)
        kept.update(before for i in made for before in control_predecessors(i))
        return made

    return inline_from_callers(module, is_opened, inline) or changed


def _call_large_trees(module: Module) -> bool:
    """Let calls stand for fusions whose kernel would hold too many copies of others."""
    order = callees_first(module)
    callees = of_calls(_is_fusion)
    shared = shared_computations(order, callees, called_otherwise(order, _is_fusion))
    opened: set[Computation] = set()  # they call what is shared, so that no kernel can be of them
    for computation in order if shared else ():
        if any(c in shared or c in opened for c in callees(computation)):
            opened.add(computation)
    for computation in order if opened else ():
        for fusion in calls(computation):
            (callee, *_) = fusion.called_computations()
            if fusion.opcode == "fusion" and callee in opened:
                fusion.opcode = "call"
                said = {k: v for k, v in fusion.attributes.items() if k in SILENT}
                computation.set_attributes(fusion, {**said, "to_apply": callee})
    return bool(opened)


def _is_fusion(call: Instruction, _: Computation) -> bool:
    return call.opcode == "fusion"


def _expanding(module: Module) -> set[Computation]:
    """The computations that hold an op that a pass expands, by themselves or in a fusion."""
    found: set[Computation] = set()
    for computation in callees_first(module):
        if any(i.opcode in EXPANDED for i in computation.instructions) or any(
            i.opcode == "fusion" and not found.isdisjoint(i.called_computations())
            for i in calls(computation)
        ):
            found.add(computation)
    return found
