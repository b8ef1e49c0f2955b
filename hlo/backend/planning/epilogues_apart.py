"""Epilogues apart: what is made of products with zeros for subnormal numbers, as own kernels.

    fusion(x, y), calls={e(dot(x, y))}  =>  d = dot(x, y), fusion(x, y, d), calls={e(d)}

Whether zeros may stand for subnormal factors is seen at a product's results
(kernels/contraction/flushed_products.py), which an epilogue would not leave in memory; and in the
mode in which such a product runs an epilogue would make zeros of what it has to keep.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo.analysis.fusibility import contraction_of
from hlo.backend.isa.target import Target
from hlo.ir.computation import Computation
from hlo.ir.graph import calls, clone_instruction, clone_module, computed_from
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module


def with_epilogues_apart(module: Module, target: Target) -> Module:
    """The module itself where no such product has an epilogue; else a copy. O(instructions)."""
    found = {c.name: {f.name for f in _found(c, target)} for c in module.computations}
    if not any(found.values()):
        return module
    changed = clone_module(module)
    for computation in list(changed.computations):
        for fusion in calls(computation):
            if fusion.name in found[computation.name]:
                _set_apart(computation, fusion)
    return changed


def set_epilogues_apart(computation: Computation, target: Target) -> None:
    """The same of one computation, which is edited."""
    for fusion in _found(computation, target):
        _set_apart(computation, fusion)


def _found(computation: Computation, target: Target) -> list[Instruction]:
    """The fusions that hold such a product and more."""
    found = []
    for fusion in calls(computation):
        dot = contraction_of(fusion)
        if dot is None or dot.opcode != "dot" or "control-predecessors" in fusion.attributes:
            continue
        (callee,) = fusion.called_computations()
        if callee.root is dot:
            continue
        # Kernels of products are for programs that have some.
        from hlo.backend.kernels.contraction.flushed_products import flushes

        if flushes(dot, computation, target):
            found.append(fusion)
    return found


def _set_apart(computation: Computation, fusion: Instruction) -> None:
    dot = contraction_of(fusion)
    assert dot is not None, "as was found"
    (callee,) = fusion.called_computations()
    product = _part(computation, fusion, dot, {})
    rest = _part(computation, fusion, callee.root, {dot: product})
    computation.replace_uses(fusion, rest)
    computation.remove(fusion)


def _part(
    computation: Computation,
    fusion: Instruction,
    root: Instruction,
    given: Mapping[Instruction, Instruction],
) -> Instruction:
    """What computes a value of a fusion: that op alone where it is one of the fusion's operands,
    else a fusion. given: of values that are known, what they are outside.
    """
    (callee,) = fusion.called_computations()
    outside = {**dict(zip(callee.parameters, fusion.operands, strict=True)), **given}
    if all(o in outside for o in root.operands):
        alone = clone_instruction(root, tuple(outside[o] for o in root.operands))
        return computation.adopt(alone)
    body = Computation("fused_computation", execution_thread=callee.execution_thread)
    operands: list[Instruction] = []
    twins: dict[Instruction, Instruction] = {}
    members = list(computed_from(root, given))
    for value in (*(m for m in members if m.opcode == "parameter"), *given):
        number = {"parameter_number": len(operands)}
        name = f"param_{len(operands)}"
        twins[value] = body.new("parameter", value.shape, (), number, name=name)
        operands.append(outside[value])
    for member in members:
        if member not in twins:
            twins[member] = body.adopt(
                clone_instruction(member, tuple(twins[o] for o in member.operands))
            )
    body.root = twins[root]
    if computation.module is not None:
        computation.module.adopt(body, before=computation)
    kind = "kLoop" if given else "kOutput"
    attributes = {**fusion.attributes, "kind": kind, "calls": body}
    return computation.new("fusion", root.shape, operands, attributes, like=fusion)
