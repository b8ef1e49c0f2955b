"""gate-fusion: a step's product, and what is done with equal parts of its columns, as one kernel.

    g = h @ u;  f(g[:, 0:w], g[:, w:2w], ..)   =>   fusion(h, u, ..), kind=kOutput

In a loop that hands u on: a recurrent network's gates are parts of one product, and are finished
where its sums are, each thread with columns of all gates, so that neither the product passes
through memory nor threads meet between it and the gates. The product's kernel needs u in panels of
columns of all parts, which is worth packing before a loop alone.
"""

from __future__ import annotations

from hlo.analysis.fusibility import contraction_of, gates_of
from hlo.analysis.while_loops.loop_state import unchanged_elements
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.fusion.copying import Joint
from hlo.passes.liveness import awaited

MOST_MEMBERS = 100
MOST_OPERANDS = 24


def gate_fusion(module: Module) -> bool:
    """Finish the gates of recurrent steps in their product's kernel. O(edges)."""
    changed = False
    for computation in tuple(module.computations):
        bodies = [i.attributes["body"] for i in computation.instructions if i.opcode == "while"]
        for body in dict.fromkeys(b for b in bodies if isinstance(b, Computation)):
            kept = awaited(body)
            unchanged = unchanged_elements(body) if len(body.parameters) == 1 else set()
            for gates in tuple(body.instructions):
                product = None if gates in kept else _product_of(gates)
                if product is not None and product not in kept and _factor(product) in unchanged:
                    changed |= _join(module, body, product, gates)
    return changed


def _product_of(gates: Instruction) -> Instruction | None:
    """The product whose only user a kernel of loops is."""
    if gates.opcode != "fusion" or gates.attributes.get("kind") != "kLoop":
        return None
    found = [o for o in gates.operands if (o.opcode == "dot" or contraction_of(o) is not None)]
    if len(found) != 1 or set(found[0].users) != {gates} or gates.operands.count(found[0]) != 1:
        return None
    return None if "control-predecessors" in found[0].attributes else found[0]


def _factor(product: Instruction) -> Instruction | None:
    """The right factor of a dot, or of the one in a fusion, as the body has it."""
    inner = contraction_of(product)
    if inner is None:
        return product.operands[1]
    number = inner.operands[1].attributes.get("parameter_number")
    if number is None:  # a slice of one
        return None
    assert isinstance(number, int), "parameters are numbered"
    return product.operands[number]


def _join(module: Module, body: Computation, product: Instruction, gates: Instruction) -> bool:
    """Make both one fusion, if the product's kernel can finish the gates."""
    joint = Joint(body)
    made, operands = joint.made, joint.operands
    made.root = joint.put(gates, {product: joint.put(product)})
    dots = [i for i in made.instructions if i.opcode == "dot"]
    is_small = len(made.instructions) <= MOST_MEMBERS and len(operands) <= MOST_OPERANDS
    if not is_small or len(dots) != 1 or gates_of(made, dots[0]) < 2:
        return False
    module.adopt(made)
    attributes = {"kind": "kOutput", "calls": made}
    joined = body.new(
        "fusion", gates.shape, operands, attributes, like=gates, name=f"{gates.name}_gates"
    )
    body.replace_uses(gates, joined)
    body.remove(gates)
    body.remove(product)
    return True
