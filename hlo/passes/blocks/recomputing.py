"""Block recomputing: large values of one block call that another reads are computed again there.

    call1 = (o, p) blocks{..}, call2 = blocks{.. p ..}
        --recomputed--> call2 = blocks{p' = what made p, .. p' ..} --trimmed--> call1 = o blocks{..}

So the probabilities of an attention, which its gradients read, never leave the cache, where memory
would hold a number for each pair of tokens: the gradients' blocks pay one more product for them
(rematerialisation: Chen et al. 2016, arXiv 1604.06174; Rabe and Staats 2021, arXiv 2112.05682).
What convolutions make is kept: their layers follow each other, each block reads what the one before
made, and all of a network would be computed again for each.
"""

from __future__ import annotations

from hlo.analysis.blocks.block import Block
from hlo.analysis.blocks.size import best_block
from hlo.analysis.fusibility import contraction_of
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.machine import COMMON
from hlo.passes.blocks.call import (
    call_roots,
    fused_group,
    is_block_call,
    made_by,
    opened_group,
    roots_of,
)

# Values from this size on are not kept for another group: no cache would hold them until then.
LEAST_RECOMPUTED_BYTES = COMMON.last_cache.bytes
MOST_MEMBERS = 64  # Of a group, copies with them.


def recomputed(
    module: Module, computation: Computation, group: list[Instruction], block: Block
) -> tuple[list[Instruction], Block]:
    """The group with copies of what makes the large values that it alone reads of earlier block
    calls, and its block, if it has one still; else what was given.
    """
    members, copies = list(group), list[Instruction]()
    before = {member: member.operands for member in group}
    while reads := _read_alone(members):
        twins: dict[Instruction, Instruction] = {}
        for call in dict.fromkeys(map(made_by, reads)):
            roots = {o: _root_of(o) for o in reads if made_by(o) is call}
            made = opened_group(module, computation, call, tuple(roots.values()))
            found = list(made.values())
            for value, root in roots.items():
                twins[value] = made[root]
                if root.shape.is_tuple:  # a kernel with several results is the only root
                    part = computation.new(
                        "get-tuple-element", value.shape, [made[root]], value.attributes, like=value
                    )
                    twins[value] = part
                    found.append(part)
            copies += found
            members = [*(c for c in found if c.opcode != "constant"), *members]
        for member in members:
            if any(o in twins for o in member.operands):
                computation.set_operands(member, [twins.get(o, o) for o in member.operands])
    if not copies:
        return group, block
    other = best_block(roots_of(members, computation), members)
    if other is not None and len(members) <= MOST_MEMBERS:
        return members, other
    for member, operands in before.items():
        computation.set_operands(member, operands)
    for copy in reversed(copies):
        computation.remove(copy)
    return group, block


def trimmed(module: Module, computation: Computation) -> None:
    """Results of block calls that nothing reads are none of them any more, nor are such calls."""
    for call in filter(is_block_call, computation.instructions):
        roots = call_roots(call)
        if call is computation.root:
            continue
        if not call.users and "control-predecessors" not in call.attributes:
            computation.remove(call)
            continue
        if len(roots) == 1:
            continue
        if any(part.opcode != "get-tuple-element" for part in call.users):
            continue
        parts = {_number(part): part for part in call.users}
        live = {n: part for n, part in parts.items() if part.users or part is computation.root}
        if len(live) == len(roots):
            continue
        made = opened_group(module, computation, call, [roots[n] for n in live])
        for n, part in live.items():
            computation.replace_uses(part, made[roots[n]])
        for part in parts.values():
            computation.remove(part)
        computation.remove(call)
        members = [m for m in made.values() if m.opcode != "constant"]
        block = best_block(roots_of(members, computation), members)
        if block is not None:
            fused_group(module, computation, members, block)


def _read_alone(members: list[Instruction]) -> list[Instruction]:
    """Large values of block calls that nothing but the members reads."""
    inside = set(members)
    return [
        operand
        for operand in dict.fromkeys(o for m in members for o in m.operands if o not in inside)
        if operand.shape.is_array
        and operand.shape.size_bytes >= LEAST_RECOMPUTED_BYTES
        and is_block_call(made_by(operand))
        and not _convolves(made_by(operand))
        and inside.issuperset(operand.users)
    ]


def _convolves(call: Instruction) -> bool:
    """Whether there is a convolution among a block call's members."""
    (body,) = call.called_computations()
    found = ((contraction_of(i) or i).opcode for i in body.instructions)
    return "convolution" in found


def _root_of(value: Instruction) -> Instruction:
    """What a block call's body gives for a value of the call."""
    roots = call_roots(made_by(value))
    return roots[0] if len(roots) == 1 else roots[_number(value)]


def _number(part: Instruction) -> int:
    number = part["index"]
    assert isinstance(number, int), "results are numbered"
    return number
