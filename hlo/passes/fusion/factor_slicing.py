"""factor-slicing: a product reads a slice of an array where it lies.

    dot(x, reshape(dynamic-slice(w, i, 0, 0)))  =>  fusion(x, w, i), kind=kOutput

A loop over layers, as JAX's scan makes it, takes each layer's weights out of those of all layers.
Where the slice is one run of memory, the product begins at another address instead, and nobody
copies it: a matrix that meets few rows is read once, not read, written and read. The same where a
constant says which slice.
"""

from __future__ import annotations

from collections.abc import Collection

from hlo.analysis.factors import SLICES, sliced_from
from hlo.analysis.fusibility import CONTRACTIONS, contraction_of, is_output_fusion
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.fusion.copying import Joint
from hlo.passes.liveness import is_removable, outside_fusions
from hlo.passes.simplify.dce import dce

MOST_OPERANDS = 24


def factor_slicing(module: Module) -> bool:
    """Let products read slices of arrays where these lie. O(edges)."""
    changed = False
    for computation, maker, kept in outside_fusions(module):
        values = {} if maker in kept else _slices(maker)
        if all(is_for_products(value, kept) for value in values):
            for value, leaf in values.items():
                changed |= taken_apart(module, computation, value, maker, leaf=leaf)
    if changed:
        dce(module)  # computations of the fusions that were there
    return changed


def _slices(maker: Instruction) -> dict[Instruction, int | None]:
    """What an instruction makes, if that are slices that are runs of memory, and nothing else; of a
    fusion with several results by the element of its tuple.
    """
    if "control-predecessors" in maker.attributes:
        return {}
    if maker.opcode in SLICES:
        return {maker: None} if sliced_from(maker) is not None else {}
    if maker.opcode != "fusion" or maker.attributes.get("kind") != "kLoop":
        return {}
    (callee,) = maker.called_computations()
    if maker.shape.is_array:
        return {maker: None} if _is_of_parameters(callee.root) else {}
    is_plain = all(u.opcode == "get-tuple-element" for u in maker.users)
    if maker.is_root or not is_plain or not all(map(_is_of_parameters, callee.root.operands)):
        return {}
    from hlo.analysis.while_loops.loop_state import element_index  # most makers have one result

    return {element: element_index(element) for element in maker.users}


def _is_of_parameters(value: Instruction) -> bool:
    cut = sliced_from(value)
    return cut is not None and all(o.opcode in ("parameter", "constant") for o in cut.operands)


def is_for_products(value: Instruction, kept: Collection[Instruction]) -> bool:
    """Whether products read a value, and nothing else does."""
    users = value.users
    return (
        bool(users)
        and not value.is_root
        and all(user not in kept and _is_factor(value, user) for user in users)
    )


def _is_factor(value: Instruction, user: Instruction) -> bool:
    """Whether the user is a product, in a fusion or not, of the value and does nothing else with
    it.
    """
    if user.opcode == "dot":
        return True
    product = contraction_of(user)
    if product is None or product.opcode != "dot":
        return False
    (callee,) = user.called_computations()
    own = [p for p, o in zip(callee.parameters, user.operands, strict=True) if o is value]
    return all(set(p.users) == {product} for p in own)


def taken_apart(
    module: Module,
    computation: Computation,
    value: Instruction,
    maker: Instruction,
    *,
    leaf: int | None = None,
    suffix: str = "of_slice",
) -> bool:
    """Let the value's users have it in them, if all of them can."""
    joints: dict[Instruction, Joint] = {}
    for product in value.users:
        joint = joints[product] = Joint(computation)
        joint.made.root = joint.put(product, {value: joint.put(maker, leaf=leaf)})
        (own,) = [m for m in joint.made.instructions if m.opcode in CONTRACTIONS]
        is_held = len(joint.operands) <= MOST_OPERANDS and is_output_fusion(joint.made, own)
        if not is_held or "control-predecessors" in product.attributes:
            return False
    fusions: dict[Instruction, Instruction] = {}  # of products, which others of them may read
    for product, joint in joints.items():
        module.adopt(joint.made, before=computation)
        operands = [fusions.get(o, o) for o in joint.operands]
        fusion = fusions[product] = computation.new(
            "fusion", product.shape, operands, {"kind": "kOutput", "calls": joint.made},
            like=product, name=f"{product.name}_{suffix}",
        )  # fmt: skip
        computation.replace_uses(product, fusion)
        computation.remove(product)
    for made in (value, maker):
        if made.computation is computation and is_removable(made):
            computation.remove(made)
    return True
