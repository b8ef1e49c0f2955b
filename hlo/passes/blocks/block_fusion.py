"""Block fusion: producers of large values and their consumers, to be run block by block.

    a computation's instructions --> fusion, kind=kCustom, calls=(the group as it stood)

The last of the fusions: its members are whole kernels, contractions among them. It changes where
values live, not what is computed. The block that was chosen stands in the fusion's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hlo.analysis.blocks.block import Block
from hlo.analysis.blocks.rules import can_be_cut, has_windows
from hlo.analysis.blocks.size import DEEPEST, longer_dims, summed_dims
from hlo.analysis.large_values import LEAST_SAVED_BYTES, is_large, is_worth_a_look, padded_bytes
from hlo.ir.computation import Computation
from hlo.ir.graph import control_predecessors, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Ints
from hlo.ops.table import OPS
from hlo.passes.blocks.alike import Known
from hlo.passes.blocks.call import fused_group, is_block_call, made_by
from hlo.passes.blocks.order import in_block_order, restored
from hlo.passes.blocks.recomputing import recomputed, trimmed
from hlo.passes.fusion.fusion import called_by_ops
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
        if computation not in left and any(map(is_worth_a_look, computation.instructions)):
            changed |= _fuse_in(module, computation, known)
    return changed


def _fuse_in(module: Module, computation: Computation, known: Known) -> bool:
    """Disjoint groups in program order, each found on what the ones before left."""
    changed = False
    ordered = in_block_order(module, computation)
    groups = _Groups(computation, known)
    for seed in groups.seeds:
        found = groups.around(seed)
        if found is not None and not ordered.is_one_dot(found[0]):
            call = fused_group(module, computation, *recomputed(module, computation, *found))
            groups.replace(found[0], call)
            changed = True
    trimmed(module, computation)
    if changed:
        computation.reorder(post_order(computation))
    restored(module, computation, ordered)
    return changed


class _Groups:
    """Finds groups of a computation, which become calls meanwhile; no member is in two of them."""

    def __init__(self, computation: Computation, known: Known) -> None:
        self._computation, self._known = computation, known
        self._taken = set(awaited(computation))  # they stay where others see them end
        self._order = _Order(computation)
        self._boundless: dict[Ints, set[Instruction]] = {}  # values in too large regions, by lead

    @property
    def seeds(self) -> Sequence[Instruction]:
        """What groups may grow from."""
        return self._order.instructions

    def around(self, seed: Instruction) -> tuple[list[Instruction], Block] | None:
        """The largest group with a value that pays, and its block; None: none does."""
        if seed in self._taken:
            return None
        grown = (_convex_part(members, self._order) for members in self._grown(seed))
        for group in sorted(grown, key=len, reverse=True):
            if seed in group and (block := self._known.best(group, self._computation)) is not None:
                group, block = self._with_readers(group, block)
                self._taken |= set(group)
                self._boundless.clear()
                return group, block
        return None

    def replace(self, group: Sequence[Instruction], call: Instruction) -> None:
        """A call has taken a group's place."""
        self._order.replace(group, call)

    def _with_readers(
        self, group: list[Instruction], block: Block
    ) -> tuple[list[Instruction], Block]:
        """The group and what else reads large values of the block calls that it reads, where that
        can be cut as well: so nobody else may need them.
        """
        made = dict.fromkeys(made_by(o) for member in group for o in member.operands)
        calls = (call for call in made if is_block_call(call))
        given = [v for call in calls for v in (call, *call.users) if is_large(v)]
        larger = list(group)
        for reader in dict.fromkeys(u for value in given for u in value.users):
            if reader not in larger and self._joins(reader, block):
                found = _convex_part(dict.fromkeys((*larger, reader)), self._order)
                larger = found if len(found) > len(larger) else larger
        if len(group) < len(larger) <= MOST_MEMBERS:
            other = self._known.best(larger, self._computation)
            if other is not None and other.lead == block.lead:
                return larger, other
        return group, block

    def _grown(self, seed: Instruction) -> Iterator[Members]:
        """The group around a value and all its consumers: as large as it gets; what of it can be
        cut, whatever others read; then as it was before, down to the smallest.

        A convolution that pads its images can be a group by itself.
        """
        smallest: Members = {seed: None}
        is_between = self._is_between(seed)
        if is_between:
            smallest |= seed.users
        elif padded_bytes(seed) < LEAST_SAVED_BYTES:
            return
        if not all(map(self._may_join, smallest)):
            if is_between:
                yield from self._regions(seed)
            return
        members = dict(smallest)
        stages: list[Members] = []
        free: dict[Instruction, list[Instruction]] = {}  # operands that may join, not yet in
        while len(members) <= MOST_MEMBERS and members not in stages[-1:]:
            stages.append(dict(members))
            for member in tuple(members):
                is_new = member not in free
                around = dict.fromkeys(member.operands) if is_new else free[member]
                free[member] = []
                for operand in around:
                    if is_new and not (self._is_between(operand) and self._may_join(operand)):
                        continue
                    if operand.users.keys() <= members.keys():
                        members[operand] = None
                    else:
                        free[member].append(operand)
                is_read_here = is_new and self._is_between(member)
                if is_read_here and all(map(self._may_join, member.users)):
                    members |= member.users
        yield from stages[-1:]
        yield from self._regions(seed)
        yield from reversed(stages[:-1])

    def _regions(self, seed: Instruction) -> Iterator[Members]:
        """What can be cut in the leading dimensions of a value and hands on large values, as
        gradients do: some of them are read by others too. For as many dimensions as give one; then
        without what others of it read in another way.
        """
        dims = longer_dims(seed.shape)
        for depth in range(min(DEEPEST, max(len(dims) - 1, 1)), 0, -1):
            block = Block(dims[:depth], (1,) * depth)
            region = self._region(seed, block)
            if len(region) > 2:
                yield region
                alike = _cut_alike(region, block, self._known)
                if 2 < len(alike) < len(region):
                    yield alike
                return

    def _region(self, seed: Instruction, block: Block) -> Members:
        """Grown along large values through all that can be cut; empty where the seed itself cannot
        be, or there is too much.

        Whoever is met from a value meets that value too, but through a sum over blocks: the users
        of one are not met. So what is too much for one value is for all that it met.
        """
        boundless = self._boundless.setdefault(block.lead, set())
        if seed in boundless:
            return {}
        members: Members = {}
        waiting, work, has_sums = [seed], 0, False
        while waiting:
            one = waiting.pop()
            if one in members or not self._joins(one, block):
                continue
            members[one] = None
            work += one.opcode != "get-tuple-element"  # results are named besides
            if work > MOST_MEMBERS:
                boundless |= {seed} if has_sums else set(filter(is_large, members))
                return {}
            waiting += [o for o in one.operands if is_large(o) or o.shape.is_tuple]
            if is_large(one) or one.shape.is_tuple:
                is_sum = self._known.is_summed(one, block)
                has_sums |= is_sum
                waiting += () if is_sum else one.users
        return members | self._between(members, block)

    def _between(self, members: Members, block: Block) -> Members:
        """What is small and made of members for members, as row maxima that a sink raises: without
        it those would have to wait for all blocks of these.
        """
        found: Members = {}
        waiting = list(members)
        while waiting and len(found) < MOST_MEMBERS:
            for user in waiting.pop().users:
                is_new = user not in members and user not in found and not is_large(user)
                if is_new and self._joins(user, block) and not self._known.is_summed(user, block):
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

    def _joins(self, instruction: Instruction, block: Block) -> bool:
        """Whether the instruction, or what names one of several results of, can be cut by itself;
        of several results all are named.
        """
        is_named = instruction.opcode == "get-tuple-element"
        made = instruction.operands[0] if is_named else instruction
        if not self._may_join(instruction) or (is_named and not self._may_join(made)):
            return False
        if made.shape.is_tuple and (
            made is self._computation.root
            or any(u.opcode != "get-tuple-element" for u in made.users)
        ):
            return False
        return self._known.is_cut(made, block)

    def _may_join(self, instruction: Instruction) -> bool:
        """Whether the instruction has a kernel that can run on blocks, and is in no group."""
        return instruction not in self._taken and self._known.says(_runs_on_blocks, instruction)

    def _is_between(self, instruction: Instruction) -> bool:
        """Whether the value is large, computed here and of use here only; not a sum over blocks,
        which is there when all blocks are done.
        """
        if instruction is self._computation.root or not instruction.users:
            return False
        return self._known.says(_may_lie_between, instruction)


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


def _may_lie_between(instruction: Instruction) -> bool:
    """Whether a value that is used here only may stay in a block."""
    return (
        is_large(instruction)
        and instruction.opcode not in ("parameter", "constant")
        and not summed_dims(instruction)
    )


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
    """A computation's instructions, operands first, and the place of each; kept while groups become
    calls, for it takes as long to find as a group does.
    """

    def __init__(self, computation: Computation) -> None:
        self._set(post_order(computation))

    def _set(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = instructions
        self._places = {i: place for place, i in enumerate(instructions)}

    def replace(self, group: Sequence[Instruction], call: Instruction) -> None:
        """A call that took a group's place, and its results, behind what stood between members and
        does not need them.
        """
        made = [call, *(u for u in call.users if u.opcode == "get-tuple-element")]
        inside, behind = set(group), set(made)
        late: list[Instruction] = []
        early: list[Instruction] = []
        for one in self.around(group):
            if one in inside:
                continue
            is_late = not behind.isdisjoint((*one.operands, *control_predecessors(one)))
            (late if is_late else early).append(one)
            if is_late:
                behind.add(one)
        first = min(self._places[member] for member in group)
        after = self.instructions[first + len(inside) + len(early) + len(late) :]
        self._set((*self.instructions[:first], *early, *made, *late, *after))

    def around(self, members: Iterable[Instruction]) -> Sequence[Instruction]:
        """From the first member to the last: what needs one, and is needed by one, is there."""
        places = [self._places[m] for m in members]
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
