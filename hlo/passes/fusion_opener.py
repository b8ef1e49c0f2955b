"""fusion-opener: fusions that hold what is a kernel of its own, or several ops, are written out."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, calls
from hlo.ir.module import Module
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


def fusion_opener(module: Module) -> bool:
    """Write out fusions that hold ops which other passes expand.

    fusion(x), calls={ scan(x) }  =>  scan(x). O(instructions). What has a kernel as it stands, as
    the fusions of convolutions that `fusion` and `block-fusion` make, stays.
    """
    changed = False
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


def holds_expanded(computation: Computation) -> bool:
    """Whether it, or a fusion in it, holds an op that a pass expands."""
    return any(
        i.opcode in EXPANDED
        or (i.opcode == "fusion" and any(c.fact(holds_expanded) for c in i.called_computations()))
        for i in computation.instructions
    )
