"""Block fusion: producers of large values and their consumers, to be run block by block.

    a computation's instructions --> fusion, kind=kCustom, calls=(the group as it stood)

The last of the fusions: its members are whole kernels, contractions among them. It changes where
values live, not what is computed. The block that was chosen stands in the fusion's text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.analysis.block import Block
from hlo.analysis.block_rules import can_be_cut, has_windows
from hlo.analysis.block_size import DEEPEST, longer_dims, summed_dims
from hlo.analysis.block_sums import is_summed
from hlo.analysis.large_values import LEAST_SAVED_BYTES, is_large, is_worth_a_look, padded_bytes
from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import OPS
from hlo.passes.block_alike import Known
from hlo.passes.block_call import fused_group, is_block_call, made_by
from hlo.passes.block_order import in_block_order, restored
from hlo.passes.block_recomputing import recomputed, trimmed
from hlo.passes.fusion import called_by_ops
from hlo.passes.liveness import awaited, wrapped_operations

MOST_MEMBERS = 32
Members = dict[Instruction, None]  # in the order in which they were found, the same in every run


def fuse_blocks(module: Module) -> bool:
    """Run chains over large values block by block, so that those values stay in the cache.

    From every large value with its consumers, a group grows over further large values. O(edges)
    for each of them.
    """
    changed = False
    left = called_by_ops(module) | wrapped_operations(module)
    known = Known()
    for computation in tuple(module.computations):
        if computation in left or not any(map(is_worth_a_look, computation.instructions)):
            continue
        ordered = in_block_order(module, computation)
        for found in _groups(computation, known):
            if not ordered.is_one_dot(found[0]):
                fused_group(module, computation, *recomputed(module, computation, *found))
                changed = True
        trimmed(module, computation)
        restored(module, computation, ordered)
    return changed


def _groups(computation: Computation, known: Known) -> Iterator[tuple[list[Instruction], Block]]:
    """Disjoint groups in program order, each found on what the ones before left."""
    taken = set(awaited(computation))  # they stay where others see them end
    order = _Order(computation)
    for seed in order.instructions:
        if seed in taken:
            continue
        grown = (_convex_part(m, order) for m in _grown(seed, computation, taken, known))
        for group in sorted(grown, key=len, reverse=True):
            if seed not in group:
                continue
            block = known.best(group, computation)
            if block is not None:
                group, block = _with_readers(group, block, computation, taken, known)
                taken |= set(group)
                yield group, block
                order = _Order(computation)
                break


def _with_readers(
    group: list[Instruction],
    block: Block,
    computation: Computation,
    taken: set[Instruction],
    known: Known,
) -> tuple[list[Instruction], Block]:
    """The group and what else reads large values of the block calls that it reads, where that can
    be cut as well: so nobody else may need them.
    """
    region, order = _Region(block, computation, taken, known), _Order(computation)
    made = dict.fromkeys(made_by(o) for member in group for o in member.operands)
    given = [v for call in made if is_block_call(call) for v in (call, *call.users) if is_large(v)]
    larger = list(group)
    for reader in dict.fromkeys(u for value in given for u in value.users):
        if reader not in larger and region.joins(reader):
            found = _convex_part(dict.fromkeys((*larger, reader)), order)
            larger = found if len(found) > len(larger) else larger
    if len(group) < len(larger) <= MOST_MEMBERS:
        other = known.best(larger, computation)
        if other is not None and other.lead == block.lead:
            return larger, other
    return group, block


def _grown(
    seed: Instruction, computation: Computation, taken: set[Instruction], known: Known
) -> Iterator[Members]:
    """The group around a value and all its consumers: as large as it gets; what of it can be cut,
    whatever others read; then as it was before, down to the smallest.

    A convolution that pads its images can be a group by itself.
    """
    smallest: Members = {seed: None}
    if _is_between(seed, computation):
        smallest |= seed.users
    elif padded_bytes(seed) < LEAST_SAVED_BYTES:
        return
    if not all(_may_join(i, taken, known) for i in smallest):
        if _is_between(seed, computation):
            yield from _regions(seed, computation, taken, known)
        return
    members = dict(smallest)
    stages: list[Members] = []
    free: dict[Instruction, list[Instruction]] = {}  # operands of members that may join, not yet in
    while len(members) <= MOST_MEMBERS and members not in stages[-1:]:
        stages.append(dict(members))
        for member in tuple(members):
            is_new = member not in free
            around = dict.fromkeys(member.operands) if is_new else free[member]
            free[member] = []
            for operand in around:
                if is_new and not (
                    _is_between(operand, computation) and _may_join(operand, taken, known)
                ):
                    continue
                if operand.users.keys() <= members.keys():
                    members[operand] = None
                else:
                    free[member].append(operand)
            is_read_here = is_new and _is_between(member, computation)
            if is_read_here and all(_may_join(u, taken, known) for u in member.users):
                members |= member.users
    yield from stages[-1:]
    yield from _regions(seed, computation, taken, known)
    yield from reversed(stages[:-1])


def _regions(
    seed: Instruction, computation: Computation, taken: set[Instruction], known: Known
) -> Iterator[Members]:
    """What can be cut in the leading dimensions of a value and hands on large values, as gradients
    do: some of them are read by others too. For as many dimensions as give one; then without what
    others of it read in another way.
    """
    dims = longer_dims(seed.shape)
    for depth in range(min(DEEPEST, max(len(dims) - 1, 1)), 0, -1):
        lead = dims[:depth]
        block = Block(lead, (1,) * depth)
        region = _Region(block, computation, taken, known).around(seed)
        if len(region) > 2:
            yield region
            alike = _cut_alike(region, block, known)
            if 2 < len(alike) < len(region):
                yield alike
            return


def _cut_alike(region: Members, block: Block, known: Known) -> Members:
    """A region without members of which a block of another needs more than its own part, and what
    is for these alone. Products of keys with all distances begin with as many rows as scores do,
    but any row of scores reads all of them.
    """
    cuts = (cut for member in region for cut in known.needs(member, block))
    waiting = [value for value, span in cuts if span != block.all and value in region]
    left = dict(region)
    while waiting:
        one = waiting.pop()
        if left.pop(one, one) is one:
            continue
        waiting += [o for o in one.operands if o in left and left.keys().isdisjoint(o.users)]
    return left


def _work_count(members: Members) -> int:
    """How many members compute something: results are named besides."""
    return sum(m.opcode != "get-tuple-element" for m in members)


class _Region:
    """Grows along large values through all that can be cut."""

    def __init__(
        self, block: Block, computation: Computation, taken: set[Instruction], known: Known
    ) -> None:
        self._block, self._computation, self._taken = block, computation, taken
        self._known = known

    def around(self, seed: Instruction) -> Members:
        """Empty where the seed itself cannot be cut, or there is too much."""
        members: Members = {}
        waiting = [seed]
        while waiting:
            one = waiting.pop()
            if one in members or not self.joins(one):
                continue
            members[one] = None
            if _work_count(members) > MOST_MEMBERS:
                return {}
            waiting += [o for o in one.operands if is_large(o) or o.shape.is_tuple]
            is_sum = is_summed(one, self._block)
            if (is_large(one) or one.shape.is_tuple) and not is_sum:
                waiting += one.users
        return members | self._between(members)

    def _between(self, members: Members) -> Members:
        """What is small and made of members for members, as row maxima that a sink raises: without
        it those would have to wait for all blocks of these.
        """
        found: Members = {}
        waiting = list(members)
        while waiting and len(found) < MOST_MEMBERS:
            for user in waiting.pop().users:
                is_new = user not in members and user not in found and not is_large(user)
                if is_new and self.joins(user) and not is_summed(user, self._block):
                    found[user] = None
                    waiting.append(user)
        needed: Members = {}
        waiting = list(members)
        while waiting:
            for operand in waiting.pop().operands:
                if operand in found and operand not in needed:
                    needed[operand] = None
                    waiting.append(operand)
        return needed

    def joins(self, instruction: Instruction) -> bool:
        """Whether the instruction, or what names one of several results of, can be cut by itself;
        of several results all are named.
        """
        is_named = instruction.opcode == "get-tuple-element"
        made = instruction.operands[0] if is_named else instruction
        if not all(_may_join(i, self._taken, self._known) for i in (instruction, made)):
            return False
        if made.shape.is_tuple and (
            made is self._computation.root
            or any(u.opcode != "get-tuple-element" for u in made.users)
        ):
            return False
        return self._known.is_cut(made, self._block)


def _is_between(instruction: Instruction, computation: Computation) -> bool:
    """Whether the value is large, computed here and of use here only; not a sum over blocks, which
    is there when all blocks are done.

    Asked again from every value that a group may grow from.
    """
    known: dict[Instruction, bool] = computation.facts.setdefault(_lies_between, {})  # type: ignore[assignment]  # what is kept there here
    found = known.get(instruction)
    if found is None:
        found = known[instruction] = _lies_between(instruction, computation)
    return found


def _lies_between(instruction: Instruction, computation: Computation) -> bool:
    return (
        is_large(instruction)
        and instruction is not computation.root
        and bool(instruction.users)
        and instruction.opcode not in ("parameter", "constant")
        and not summed_dims(instruction)
    )


def _may_join(instruction: Instruction, taken: set[Instruction], known: Known) -> bool:
    """Whether the instruction has a kernel that can run on blocks, and is in no group."""
    return instruction not in taken and known.says(_runs_on_blocks, instruction)


def _runs_on_blocks(instruction: Instruction) -> bool:
    """Whether the instruction has a kernel that can run on blocks."""
    if "control-predecessors" in instruction.attributes or is_block_call(instruction):
        return False
    if instruction.opcode == "fusion" and any(
        callee.fact(has_windows) for callee in instruction.called_computations()
    ):
        return False
    if instruction.opcode == "get-tuple-element":
        return instruction.operands[0].opcode == "fusion"
    is_moved = OPS[instruction.opcode].cost.operations == 0
    return not is_moved and can_be_cut(instruction)


class _Order:
    """A computation's instructions, operands first, and the place of each."""

    def __init__(self, computation: Computation) -> None:
        self.instructions = post_order(computation)
        self.places = {i: place for place, i in enumerate(self.instructions)}

    def around(self, members: Members) -> Sequence[Instruction]:
        """From the first member to the last: what needs one, and is needed by one, is there."""
        places = [self.places[m] for m in members]
        return self.instructions[min(places) : max(places) + 1]


def _convex_part(members: Members, order: _Order) -> list[Instruction]:
    """The members, in order, that need nothing from outside which needs a member: all of them where
    the group can run at once. O(edges) between the first and the last of them.
    """
    group: list[Instruction] = []
    inside, behind = set[Instruction](), set[Instruction]()
    for instruction in order.around(members):
        is_late = not behind.isdisjoint(instruction.operands)
        if instruction in members and not is_late:
            group.append(instruction)
            inside.add(instruction)
        elif is_late or not inside.isdisjoint(instruction.operands):
            behind.add(instruction)
    return group
