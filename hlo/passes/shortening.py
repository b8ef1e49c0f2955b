"""Shortening: passes see a few of the equal layers of a network.

What they made of these is made of the others too (lengthening.py).

    module --shortened--> Cuts, module with fewer layers --passes--> --lengthen--> all layers

Passes rewrite what they see of an instruction's neighbours, which is the same in every layer but
the first and the last few. The layers between are taken out, so that the last ones read what the
first ones give, and come back as copies of a rewritten layer. Where what passes made is not the
same in neighbouring layers, the module is as it was before, and passes see it all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from hlo.analysis.left_out import LeftOut
from hlo.analysis.legality import family_of
from hlo.analysis.repetition import (
    Keys,
    Strand,
    Strands,
    crosses,
    has_side_effects,
    having,
    is_own,
    is_regular,
    repeated,
    shift,
    strands,
)
from hlo.ir.computation import Computation
from hlo.ir.graph import (
    callees,
    calls,
    clone_computation,
    clone_instruction,
    computed_from,
    post_order,
    redirect_calls,
)
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import KernelFamily

MOST_ASKED = 8  # strands of which one tells in which order values go through the layers
FEWEST_LEFT = 3  # layers that passes see at least, parts of more beside them
FEWEST_LEFT_OUT = 3  # layers for which to take them out pays
MOST_BEHIND = 1  # layers that stay behind the others because others read the first of them


_LAYERED = frozenset({KernelFamily.CONTRACTION, KernelFamily.BLOCKED, KernelFamily.CONTROL})


class Cut(Struct, eq=False):
    """What was taken out of a computation: `count` layers behind the layer `border`.

    layers: the strands that were cut, of the computation as it was; elements: the layers of
    results that were given by layers, by their places.
    """

    computations: list[Computation]
    entry: Computation
    layers: Strands
    border: int
    count: int
    elements: dict[int, int]

    def before(self, layer: int) -> int:
        """Which layer a layer of the shorter computation was."""
        return layer if layer <= self.border else layer + self.count

    @property
    def left_out(self) -> LeftOut:
        """What passes have to know of it: which of three layers in turn an instruction is of."""
        places = {
            member.start: layer
            for layer in range(self.border - 1, self.border + 2)
            for strand in self.layers.all
            if (member := strand.at(self.before(layer))) is not None and member.start >= 0
        }
        return LeftOut(self.count, places)

    def undo(self, module: Module) -> None:
        """Make the module what it was."""
        module.remove_all([c for c in module.computations if c is not module.entry])
        module.entry.module = None
        module.computations, module.entry = list(self.computations), self.entry
        for computation in module.computations:
            computation.module = module


def shortened(module: Module, behind: int = 0) -> list[Cut]:
    """Take the layers between the first and the last few out of the entry, those of one network
    after the other, as encoders and decoders are. behind: how many more of the last ones stay.
    """
    cuts: list[Cut] = []
    numbers = Keys().all(post_order(module.entry))
    while (cut := _shorten(module, numbers, behind)) is not None:
        cuts.append(cut)
    return cuts


def _shorten(module: Module, numbers: dict[Instruction, int], behind: int) -> Cut | None:
    """One network's layers; None if there is none. numbers: the keys of the entry's instructions,
    then also of those of the one that takes its place.
    """
    entry = module.entry
    order = post_order(entry)
    for seeds in repeated(order, numbers, FEWEST_LEFT_OUT + FEWEST_LEFT):
        if not any(family_of(one) in _LAYERED for one, _ in seeds):
            continue  # a chain, of which passes may make one kernel
        found = strands(shift(seeds, numbers), _longest)
        first, last = _common_layers(found)
        if last - first <= FEWEST_LEFT_OUT:
            continue
        found, before = _aligned(found, order)
        last = _common_layers(found)[1]
        stays = range(behind + MOST_BEHIND + 1)
        ranges = [range(before + 1, last - kept) for kept in stays]
        cuts = (_cut(module, found, r, order) for r in ranges if len(r) >= FEWEST_LEFT_OUT)
        cut = next(islice(filter(None, cuts), behind, None), None)
        if cut is not None:
            _put_in_place(module, _without(cut, order, numbers))
            return cut
    return None


def _cut(
    module: Module, found: Strands, removed: range, order: Sequence[Instruction]
) -> Cut | None:
    """What is to be taken out, if it may be."""
    root, before = module.entry.root, removed.start - 1
    cut = having(s for s in found.all if s.first <= before and s.last >= removed.stop)
    if not _may_be_cut(cut, removed, order, root):
        return None
    elements = _elements(root, cut)
    return Cut(module.computations, module.entry, cut, before, len(removed), elements)


def _longest(found: Strands) -> dict[Strand, int]:
    return {max(found.all, key=lambda s: len(s.members)): 0}


def _common_layers(found: Strands) -> tuple[int, int]:
    """The first and the last layer that nearly all strands have."""
    most = max(len(s.members) for s in found.all)
    full = [s for s in found.all if len(s.members) >= most - 2]
    return max(s.first for s in full), min(s.last for s in full)


def _aligned(found: Strands, order: Sequence[Instruction]) -> tuple[Strands, int]:
    """The strands in the order in which values go through the layers, and the layer behind which
    they are to be cut, all of them at one place.

    Which layer a value between two is in is not known. Where the cut will be, those that come
    before it are computed from parameters of which one that stands there is computed, too.
    """
    for strand in sorted(found.all, key=lambda s: -len(s.members))[:MOST_ASKED]:
        middle = len(strand.members) // 2
        one, other = (_own_before(m) for m in strand.members[middle - 1 : middle + 1])
        if one < other or other < one:
            break
    else:
        return found, _common_layers(found)[0] + 1
    if other < one:
        for each in found.all:
            each.members.reverse()
            each.first = -each.first - len(each.members) + 1
    before = _common_layers(found)[0] + 1
    early = _own_before(strand.member(before))
    late: set[Instruction] = set()
    for value in order:
        is_late = is_own(value) and value in found.of and value not in early
        if is_late or any(o in late for o in value.operands):
            late.add(value)
    for each in found.all:
        count = next((n for n, m in enumerate(each.members) if m in late), 0)
        if count:
            each.first = before + 1 - count
    return having(found.all), before


def _own_before(value: Instruction) -> set[Instruction]:
    """The parameters, and elements of them, that a value is computed from."""
    return {v for v in computed_from(value) if is_own(v)}


def _may_be_cut(
    found: Strands, removed: range, order: Sequence[Instruction], root: Instruction
) -> bool:
    """Whether layers read their neighbours alike, and others nothing of those to be removed."""
    if any("control-predecessors" in i.attributes for i in order) or has_side_effects(found):
        return False
    return (
        found.layer.get(root) not in removed
        and is_regular(found, removed, order)
        and _are_read_by_neighbours(found, removed, root)
        and _hand_on_floats(found, removed, order)
        and not crosses(order, found, removed.start - 1)
    )


def _are_read_by_neighbours(found: Strands, removed: range, root: Instruction) -> bool:
    """Whether what is removed is read by layers beside it as by each other, or is a result."""
    of, layer = found.of, found.layer
    for strand in found.all:
        for at in removed:
            member = strand.member(at)
            for user in member.users:
                place = layer.get(user)
                if place is None:
                    if user is not root or root.opcode != "tuple":
                        return False
                elif place not in removed:
                    like = of[user].at(place + 1)
                    if place not in (removed.start - 1, removed.stop) or like is None:
                        return False
                    if place < at and not _reads_alike(user, like, member, strand.at(at + 1)):
                        return False
    return True


def _reads_alike(
    user: Instruction, like: Instruction, value: Instruction, other: Instruction | None
) -> bool:
    """Whether a user reads a value where its like in the next layer reads the other one."""
    pairs = zip(user.operands, like.operands, strict=True)
    return all(theirs is other for ours, theirs in pairs if ours is value)


def _hand_on_floats(found: Strands, removed: range, order: Sequence[Instruction]) -> bool:
    """Whether what layers hand on is numbers that only a run knows.

    Counters, and what is computed from constants, passes would compute for each layer anew.
    """
    known: set[Instruction] = set()
    for value in order:
        if value.opcode in ("constant", "iota") or (
            value.operands and all(o in known for o in value.operands)
        ):
            known.add(value)

    def is_told(value: Instruction) -> bool:
        dtype = value.shape.dtype
        return value in known or not (dtype.is_float or dtype.is_complex)

    at = removed.start
    members = [strand.member(at) for strand in found.all]
    return not any(
        found.layer.get(operand, at) != at and is_told(operand)
        for member in members
        if is_told(member)
        for operand in member.operands
    )


def results(root: Instruction) -> tuple[Instruction, ...]:
    """What a root gives: the elements of a tuple, or itself."""
    return root.operands if root.opcode == "tuple" else (root,)


def _elements(root: Instruction, found: Strands) -> dict[int, int]:
    """The layers of results that layers give, by their places."""
    layers = {place: found.layer.get(result) for place, result in enumerate(results(root))}
    return {place: layer for place, layer in layers.items() if layer is not None}


def _without(
    cut: Cut, order: Sequence[Instruction], numbers: dict[Instruction, int]
) -> Computation:
    """A copy of the entry without some layers: what read them reads the layer that is as far away
    as it was, results of theirs are those of the layer before. What is copied has its key.
    """
    removed = range(cut.border + 1, cut.border + cut.count + 1)
    stand_ins = _stand_ins(cut, removed)
    copy = Computation(cut.entry.name, execution_thread=cut.entry.execution_thread)
    twins: dict[Instruction, Instruction] = {}
    early: list[tuple[Instruction, tuple[Instruction, ...]]] = []
    for old in order:
        place = cut.layers.layer.get(old)
        if place in removed and old.opcode != "parameter":
            continue
        operands = old.operands
        if not stand_ins.keys().isdisjoint(operands):
            side = place is not None and place < removed.start
            operands = tuple([stand_ins[o][side] if o in stand_ins else o for o in operands])
        try:
            twins[old] = copy.add(clone_instruction(old, tuple([twins[o] for o in operands])))
        except KeyError:  # an operand in a later layer, on which no earlier one depends
            twins[old] = copy.add(clone_instruction(old, ()))
            early.append((old, operands))
    for old, operands in early:
        copy.set_operands(twins[old], [twins[o] for o in operands])
    copy.root = twins[cut.entry.root]
    numbers.update({twin: numbers[old] for old, twin in twins.items()})
    return copy


def _stand_ins(cut: Cut, removed: range) -> dict[Instruction, tuple[Instruction, Instruction]]:
    """What stands for each member of a removed layer, to those behind it and to those before."""
    found: dict[Instruction, tuple[Instruction, Instruction]] = {}
    for strand in cut.layers.all:
        beside = strand.member(removed.start - 1), strand.member(removed.stop)
        found.update({strand.member(layer): beside for layer in removed})
    return found


def _put_in_place(module: Module, entry: Computation) -> None:
    """Make a computation the module's entry, with copies of all that it calls."""
    given, module.computations = module.computations, []
    needed: dict[Computation, None] = {}
    stack = [entry]
    while stack:
        for callee in callees(stack.pop()):
            if callee not in needed:
                needed[callee] = None
                stack.append(callee)
    twins: dict[Computation, Computation] = {}
    for computation in given:
        if computation in needed:
            twins[computation] = clone_computation(computation, callees=twins)
            module.add(twins[computation])
    for instruction in calls(entry):
        entry.set_attributes(instruction, redirect_calls(instruction.attributes, twins))
    module.add(entry, entry=True)
