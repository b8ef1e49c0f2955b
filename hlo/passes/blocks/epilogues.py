"""Block epilogues: sums over blocks are products of their own.

    fusion(large, y), calls={ f(dot(parameter(0), parameter(1))) }
        --own_product--> dot(large, y), fusion(dot), calls={ f(parameter(0)) }

A product that blocks add up is there when the last of them is done, so what a fusion makes of it
cannot be part of a block. It is as little as the product is, beside the scores that blocks keep.
"""

from __future__ import annotations

from hlo.analysis.blocks.blocking import number
from hlo.ir.computation import Computation
from hlo.ir.graph import clone_computation, clone_instruction, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module


def own_product(module: Module, fusion: Instruction, dot: Instruction) -> Instruction | None:
    """The product inside of a fusion as an instruction before it; None where its factors are made
    in the fusion, or others there read them. The fusion reads it, or is what moves it alone.
    """
    (body,) = fusion.called_computations()
    computation = fusion.computation
    if computation is None or dot is body.root:
        return None
    if any(o.opcode != "parameter" or len(o.users) > 1 for o in dot.operands):
        return None
    factors = [fusion.operands[number(o)] for o in dot.operands]
    product = computation.adopt(clone_instruction(dot, tuple(factors)))
    if body.root.opcode == "reshape" and body.root.operands[0] is dot:
        moved = computation.new("reshape", fusion.shape, [product], like=fusion)
        computation.replace_uses(fusion, moved)
        computation.remove(fusion)
        return product
    copy, given = _without(body, dot, fusion.operands)
    module.adopt(copy)
    module.computations.remove(copy)  # callees stand before their callers
    module.computations.insert(module.computations.index(body), copy)
    said = {**fusion.attributes, "kind": "kLoop", "calls": copy}
    rest = computation.new(
        "fusion", fusion.shape, [product, *given], said, like=fusion, name=fusion.name
    )
    computation.replace_uses(fusion, rest)
    computation.remove(fusion)
    return product


def _without(
    body: Computation, dot: Instruction, operands: tuple[Instruction, ...]
) -> tuple[Computation, list[Instruction]]:
    """A copy whose first parameter is the product, and what its other parameters are given."""
    copy = clone_computation(body)
    twins = dict(zip(body.instructions, copy.instructions, strict=True))
    parameter = copy.new("parameter", dot.shape, (), {"parameter_number": 0}, like=dot)
    copy.replace_uses(twins[dot], parameter)
    copy.remove(twins[dot])
    given: list[Instruction] = []
    for old in sorted(body.parameters, key=number):
        if not twins[old].users:
            copy.remove(twins[old])
            continue
        given.append(operands[number(old)])
        twins[old].attributes = {**old.attributes, "parameter_number": len(given)}
    copy.reorder(post_order(copy))
    return copy, given
