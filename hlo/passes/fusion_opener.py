"""fusion-opener: fusions that hold what is a kernel of its own, or several ops, are written out."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, calls
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.call_budget import called_otherwise, of_calls, shared_computations
from hlo.passes.call_inliner import inline_call
from hlo.passes.fusion import has_kernels
from hlo.passes.liveness import awaited, wrapped_operations

# Ops that passes expand, none of which looks into fusions; and convolutions, not all of which
# have a kernel that finishes them with what a fusion holds beside.
EXPANDED = frozenset(
    {
        "batch-norm-grad", "batch-norm-inference", "batch-norm-training", "convolution",
        "custom-call", "ragged-dot", "rng", "rng-get-and-update-state", "scaled-dot", "scan",
    }
)  # fmt: skip

# What a call may carry of what a fusion says.
SILENT = frozenset({"metadata", "frontend_attributes", "sharding", "control-predecessors"})


def fusion_opener(module: Module) -> bool:
    """Write out fusions that hold ops which other passes expand.

    fusion(x), calls={ scan(x) }  =>  scan(x). O(instructions). What has a kernel as it stands, as
    the fusions of convolutions that `fusion` and `block-fusion` make, stays.
    Fusions of fusions that are too many for the call budget become calls of fusions first.
    """
    changed = _call_large_trees(module)
    wrapped = wrapped_operations(module)
    for computation in callees_first(module):
        fusions = [i for i in calls(computation) if i.opcode == "fusion"]
        if not fusions or computation in wrapped:
            continue
        kept = awaited(computation)
        for fusion in fusions:
            (callee,) = fusion.called_computations()
            is_free = fusion not in kept and "control-predecessors" not in fusion.attributes
            if is_free and callee.fact(holds_expanded) and not has_kernels(fusion):
                inline_call(fusion)
                changed = True
    return changed


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


def holds_expanded(computation: Computation) -> bool:
    """Whether it, or a fusion in it, holds an op that a pass expands."""
    return any(
        i.opcode in EXPANDED
        or (i.opcode == "fusion" and any(c.fact(holds_expanded) for c in i.called_computations()))
        for i in computation.instructions
    )
