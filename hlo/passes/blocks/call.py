"""Block call: a group of instructions becomes a fusion that runs block by block; and back.

group, Block --fused_group--> fusion, kind=kCustom    fusion --opened_group--> its instructions
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hlo.analysis.blocks.block import Block
from hlo.analysis.blocks.blocked import KIND
from hlo.analysis.blocks.blocking import inner_members, number
from hlo.analysis.decisions import Decisions, config_of
from hlo.analysis.fusibility import is_scalar_constant
from hlo.ir.computation import Computation
from hlo.ir.graph import clone_computation, clone_instruction, computed_from, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.passes.liveness import awaited


def is_block_call(instruction: Instruction) -> bool:
    """Whether an instruction is a fusion that says that it runs block by block."""
    return instruction.opcode == "fusion" and instruction.attributes.get("kind") == KIND


def roots_of(group: Iterable[Instruction], computation: Computation) -> list[Instruction]:
    """The members that something outside wants."""
    group = list(group)
    inside = set(group)
    return [i for i in group if i is computation.root or not inside.issuperset(i.users)]


def fused_group(
    module: Module, computation: Computation, group: list[Instruction], block: Block
) -> Instruction:
    """Make the group a called computation, to be run by such blocks. The call stands behind all
    others: who makes it sets the order.
    """
    roots = roots_of(group, computation)
    body = Computation("blocked_computation", execution_thread=computation.execution_thread)
    twins: dict[Instruction, Instruction] = {}
    operands: list[Instruction] = []
    copied: list[Instruction] = []
    for member in group:
        for operand in member.operands:
            if operand in twins:
                continue
            if is_scalar_constant(operand):
                copied.append(operand)
                twins[operand] = body.adopt(clone_instruction(operand, ()))
                continue
            if member.opcode == "scatter" and _is_spread(operand):  # what a sum begins with
                copied += (*operand.operands, operand)
                number_twin = body.adopt(clone_instruction(operand.operands[0], ()))
                twins[operand] = body.adopt(clone_instruction(operand, (number_twin,)))
                continue
            number = len(operands)
            operands.append(operand)
            twins[operand] = body.new(
                "parameter", operand.shape, (), {"parameter_number": number}, name=f"param_{number}"
            )
        inner = tuple(twins[o] for o in member.operands)
        twins[member] = body.adopt(clone_instruction(member, inner))
    results = [twins[root] for root in roots]
    whole = Shape.tuple(r.shape for r in results)
    body.root = results[0] if len(results) == 1 else body.new("tuple", whole, results)
    module.adopt(body)
    module.computations.remove(body)  # callees stand before their callers
    module.computations.insert(module.computations.index(computation), body)
    has_loop = any(member.opcode == "while" for member in group)
    said = config_of(Decisions(block=block.sizes, lead=block.lead if has_loop else ()))
    call = computation.new(
        "fusion", body.root.shape, operands,
        {"kind": KIND, "calls": body, "backend_config": said}, like=roots[-1],
        name="blocked_fusion",
    )  # fmt: skip
    for k, root in enumerate(roots):
        part = call
        if len(roots) > 1:
            part = computation.new(
                "get-tuple-element", root.shape, (call,), {"index": k}, like=root
            )
        computation.replace_uses(root, part)
    for member in reversed(group):
        computation.remove(member)
    if any(not one.users for one in copied):
        stays = {computation.root, *awaited(computation)}
        for one in reversed(dict.fromkeys(copied)):  # what spreads a number before the number
            if not one.users and one not in stays:
                computation.remove(one)
    return call


def _is_spread(value: Instruction) -> bool:
    """Whether a value is one number everywhere."""
    return value.opcode == "broadcast" and is_scalar_constant(value.operands[0])


def made_by(value: Instruction) -> Instruction:
    """What makes a value that may be one of several results."""
    return value.operands[0] if value.opcode == "get-tuple-element" else value


def call_roots(call: Instruction) -> tuple[Instruction, ...]:
    """What the body of a block call gives, by the number of the result."""
    (body,) = call.called_computations()
    return body.root.operands if body.root.opcode == "tuple" else (body.root,)


def opened_group(
    module: Module, computation: Computation, call: Instruction, roots: Collection[Instruction]
) -> dict[Instruction, Instruction]:
    """Copies, before a block call, of what some roots of its body are made from, and of them: by
    what they are copies of.
    """
    (body,) = call.called_computations()
    wanted = set(roots)
    for root in roots:
        wanted |= set(computed_from(root))
    twins: dict[Instruction, Instruction] = {}
    for one in post_order(body):
        if one not in wanted:
            continue
        if one.opcode == "parameter":
            twins[one] = call.operands[number(one)]
            continue
        called = one.called_computations() if one.opcode == "fusion" else ()
        callees = {callee: _adopted(module, computation, callee) for callee in called}
        operands = tuple(twins[o] for o in one.operands)
        twins[one] = computation.adopt(clone_instruction(one, operands, callees))
    return {one: twin for one, twin in twins.items() if one in inner_members(body)}


def _adopted(module: Module, computation: Computation, callee: Computation) -> Computation:
    """A copy of a called computation, before the one that calls it."""
    copy = clone_computation(callee)
    module.adopt(copy)
    module.computations.remove(copy)
    module.computations.insert(module.computations.index(computation), copy)
    return copy
