"""prologue-fusion: a product computes its factor where it reads it.

    dot(x, multiply(convert(w), broadcast(scale)))  =>  fusion(x, w, scale), kind=kOutput

Weights of few bits with scales beside them, and other factors that cost less to compute than to
write and to read. As a kernel of its own the arithmetic stores all of the factor, in the product's
type, so that few rows, for which the product takes as long as its factor comes from memory, would
wait for several times the bytes. What is computed are the same numbers, each once or a few times.
"""

from __future__ import annotations

from hlo.analysis.decisions import decisions_of
from hlo.analysis.factors import prologue_of
from hlo.analysis.fusibility import contraction_of
from hlo.ir.graph import computed_from
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.fusion.copying import Joint
from hlo.passes.fusion.factor_slicing import is_for_products, taken_apart
from hlo.passes.liveness import outside_fusions
from hlo.passes.simplify.dce import dce


def prologue_fusion(module: Module) -> bool:
    """Let products compute their factors. O(edges)."""
    changed = False
    for computation, maker, kept in outside_fusions(module):
        if maker not in kept and is_for_products(maker, kept) and _is_cheaper(maker):
            changed |= taken_apart(module, computation, maker, maker, suffix="of_computed")
    if changed:
        dce(module)  # computations of the fusions that were there
    return changed


def _is_cheaper(maker: Instruction) -> bool:
    """Whether to compute a factor in all its products takes less than to keep it in memory."""
    if not maker.shape.is_array or "control-predecessors" in maker.attributes:
        return False
    if maker.opcode == "fusion" and maker.attributes.get("kind") != "kLoop":
        return False
    products = [_product(maker, user) for user in maker.users]
    if any(decisions_of(dot).zeros for dot, _ in products):
        return False  # zeros that are left out are more than a factor's way through memory
    factor = _written_out(maker)
    arrays = prologue_of(factor)
    if arrays is None:
        return False
    from hlo.analysis.prologue_costs import Prologue, is_cheaper  # few factors are computed so

    members = [m for m in computed_from(factor) if m not in arrays]
    return is_cheaper(Prologue(factor, members, arrays), products)


def _written_out(maker: Instruction) -> Instruction:
    """What the maker computes, of parameters."""
    assert maker.computation is not None, "an instruction in a computation"
    return Joint(maker.computation).put(maker)


def _product(factor: Instruction, user: Instruction) -> tuple[Instruction, Instruction]:
    """The dot that is the user or in it, and what the factor is there."""
    inner = contraction_of(user)
    if inner is None:
        return user, factor
    (callee,) = user.called_computations()
    return inner, callee.parameters[user.operands.index(factor)]
