"""matrix-sharing: a matrix by a vector and a vector by the same matrix read it once.

    d = dot(A, x);  y = dot(z, A)   =>   (d, y) = fusion(A, x, z), kind=kOutput     z: d, or another

Gradients of least squares, biconjugate gradients, normal equations, power iterations for singular
values: both products take as long as the matrix comes from memory. Their kernel takes some rows
through both while these are in a core's cache (contraction/gemv_pair.py).
"""

from __future__ import annotations

from hlo.analysis.matrix_pairs import is_over, is_worth_one_pass, matrix_of, vector_of
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.passes.fusion.copying import Joint
from hlo.passes.liveness import replaceable


def matrix_sharing(module: Module) -> bool:
    """Join products of one matrix by vectors on both its sides. O(products * edges)."""
    by_matrix: dict[Instruction, list[Instruction]] = {}
    for dot in replaceable(module, "dot"):
        if is_over(dot, 0) or is_over(dot, 1):
            by_matrix.setdefault(matrix_of(dot), []).append(dot)
    changed = False
    for matrix, dots in by_matrix.items():
        if len(dots) > 1 and is_worth_one_pass(matrix.shape):
            changed |= _join_pairs(module, dots)
    return changed


def _join_pairs(module: Module, dots: list[Instruction]) -> bool:
    """Each product along rows with the first product down columns that may stand beside it."""
    changed = False
    down = [dot for dot in dots if is_over(dot, 0)]
    for along in (dot for dot in dots if is_over(dot, 1)):
        other = next((d for d in down if _may_join(along, d)), None)
        if other is not None:
            down.remove(other)
            _join(module, along, other)
            changed = True
    return changed


def _may_join(along: Instruction, down: Instruction) -> bool:
    """Whether neither waits for the other, but for a vector that the first one hands on."""
    if along.computation is not down.computation or _waits_for(vector_of(along), down):
        return False
    vector = vector_of(down)
    return vector is along or not _waits_for(vector, along)


def _waits_for(value: Instruction, other: Instruction) -> bool:
    """Whether a value is made from another one, directly or not. O(edges)."""
    seen, waiting = {value}, [value]
    while waiting:
        one = waiting.pop()
        if one is other:
            return True
        new = [o for o in one.operands if o not in seen]
        seen.update(new)
        waiting += new
    return False


def _join(module: Module, along: Instruction, down: Instruction) -> None:
    """One fusion of both, whose elements stand for them."""
    computation = along.computation
    assert computation is not None, "an instruction in a computation"
    joint = Joint(computation)
    joint.parameter(matrix_of(along))
    first = joint.put(along)
    second = joint.put(down, {along: first})
    shape = Shape.tuple((along.shape, down.shape))
    joint.made.root = joint.made.new("tuple", shape, (first, second))
    module.adopt(joint.made)
    attributes = {"kind": "kOutput", "calls": joint.made}
    name = f"{along.name}_{down.name}"
    fused = computation.new("fusion", shape, joint.operands, attributes, like=down, name=name)
    for number, dot in ((1, down), (0, along)):
        _stand_for(computation, dot, fused, number)
        computation.remove(dot)


def _stand_for(computation: Computation, dot: Instruction, fused: Instruction, number: int) -> None:
    """An element of the fusion's result in a product's place, if anybody reads it."""
    if not dot.users and not dot.is_root:
        return
    element = computation.new(
        "get-tuple-element", dot.shape, (fused,), {"index": number}, like=dot, name=dot.name
    )
    computation.replace_uses(dot, element)
