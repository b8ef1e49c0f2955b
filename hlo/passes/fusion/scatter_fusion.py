"""scatter-fusion: a scatter computes its updates where it combines them.

    scatter(x, i, multiply(w, gather(h, j)))  =>  fusion(x, i, w, h, j), kind=kInput

Messages along a graph's edges, sparse matrices by dense ones, gradients of lookups: rows of updates
that are written once and read once, and which no cache holds where there are many. Scatters of
single elements keep theirs: those are computed a vector at a time by all threads, and combined one
after the other. One number for all of them, as counts add up ones, needs no memory.
"""

from __future__ import annotations

from hlo.analysis.fusibility import is_scalar_constant, is_spread_constant
from hlo.analysis.scatters import has_rows, is_computing
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.fusion.copying import Joint
from hlo.passes.fusion.factor_slicing import MOST_OPERANDS
from hlo.passes.liveness import outside_fusions
from hlo.passes.simplify.dce import dce


def scatter_fusion(module: Module) -> bool:
    """Let scatters of rows compute them, and those of one number hold it. O(instructions)."""
    changed = False
    for _, scatter, kept in outside_fusions(module):
        if scatter.opcode == "scatter" and scatter not in kept and _computes(scatter):
            changed |= _fused(module, scatter, kept)
    if changed:
        dce(module)  # computations of the fusions that were there
    return changed


def _fused(module: Module, scatter: Instruction, kept: frozenset[Instruction]) -> bool:
    """The scatter with what makes its updates, if nobody else reads them."""
    computation, updates = scatter.computation, scatter.operands[2]
    assert computation is not None, "an instruction in a computation"
    is_free = updates not in kept and "control-predecessors" not in updates.attributes
    is_own = set(updates.users) == {scatter} or _adds_one_number(scatter)
    if not is_free or updates.is_root or not is_own or not _is_loop(updates):
        return False
    if "control-predecessors" in scatter.attributes:
        return False
    joint = Joint(computation)
    numbers = {o: joint.put(o) for o in updates.operands if is_scalar_constant(o)}
    joint.made.root = joint.put(scatter, {updates: joint.put(updates, numbers)})
    if len(joint.operands) > MOST_OPERANDS or not is_computing(joint.made.root):
        return False
    module.adopt(joint.made, before=computation)
    fusion = computation.new(
        "fusion", scatter.shape, joint.operands, {"kind": "kInput", "calls": joint.made},
        like=scatter, name=f"{scatter.name}_of_computed",
    )  # fmt: skip
    computation.replace_uses(scatter, fusion)
    computation.remove(scatter)
    return True


def _computes(scatter: Instruction) -> bool:
    """Whether updates are worth to be computed where they are combined."""
    return has_rows(scatter) or _adds_one_number(scatter)


def _adds_one_number(scatter: Instruction) -> bool:
    """Whether the updates are one array that is a constant number everywhere."""
    updates = scatter.operands[-1]
    return (
        len(scatter.operands) == 3 and updates.opcode == "broadcast" and is_spread_constant(updates)
    )


def _is_loop(maker: Instruction) -> bool:
    """Whether it is a fusion of one result, or one op."""
    if maker.opcode == "fusion":
        return maker.attributes.get("kind") == "kLoop" and maker.shape.is_array
    return bool(maker.operands) and not maker.called_computations()
