"""Lengthening: what passes made of a few layers is made of the others.

    (Cuts, module with fewer layers) --lengthen--> module with all layers, or why it is not

The strands of the rewritten layers begin at what is each layer's own: its parameters. Where the
members on both sides of the cut read their neighbours alike, copies of the one before it go in
between; each reads its neighbours as that one does, and its own parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from hlo.analysis.repetition import (
    Keys,
    Strand,
    Strands,
    crosses,
    having,
    is_own,
    is_packing,
    reached,
    shift,
    strands,
)
from hlo.ir.computation import Computation
from hlo.ir.graph import calls, clone_computation, clone_instruction, post_order, redirect_calls
from hlo.ir.instruction import Instruction, may_call
from hlo.ir.module import Module
from hlo.passes.shortening import Cut, results
from hlo.passes.simplify.dce import dce

Parameters = Sequence[Instruction]


class Fit(Enum):
    """Whether layers that were cut out fit in again."""

    DONE = "they are back"
    UNLIKE = "the layers beside them are not alike, which further ones may be"
    TIED = "something else depends on how many layers there are"


def lengthen(module: Module, cuts: Sequence[Cut]) -> Fit:
    """Put back what was cut out, the last first, where the layers beside it are alike."""
    fits = (_put_back(module, cut) for cut in reversed(cuts))
    return next((fit for fit in fits if fit is not Fit.DONE), Fit.DONE)


def _put_back(module: Module, cut: Cut) -> Fit:
    """Put the layers of one network back."""
    entry = module.entry
    order = post_order(entry)
    numbers = Keys().all(order)
    own: dict[Instruction, tuple[Strand, int]] = {}
    seeds = []
    for strand in cut.layers.all:
        if is_own(strand.members[0]):
            members = _own_members(entry, cut, strand)
            own.update({member: (strand, layer) for layer, member in members.items()})
            seeds += [(m, members[n + 1]) for n, m in members.items() if n + 1 in members]
    found = strands(shift(seeds, numbers), lambda s: _first_layers(s, own))
    found = having(s for s in found.all if _reaches_across(s, cut.border, own))
    plan = _elements(entry.root, cut, found)
    if plan is None:
        return Fit.TIED
    fit = _fit(found, cut.border, order, own)
    if fit is Fit.DONE:
        _Lengthening(module, cut, found, own).run(plan)
    return fit


def _own_members(entry: Computation, cut: Cut, strand: Strand) -> dict[int, Instruction]:
    """What became of the kept members of a strand of parameters, by the layers that are left."""
    found: dict[int, Instruction] = {}
    for layer in range(strand.first, strand.last + 1 - cut.count):
        given = strand.at(cut.before(layer))
        now = None if given is None else own_value(entry.parameters, given)
        if now is not None:
            found[layer] = now
    return found


def own_value(parameters: Parameters, given: Instruction) -> Instruction | None:
    """The parameter, or the element of one, that another computation's is."""
    parameter = _parameter(parameters, given if given.opcode == "parameter" else given.operands[0])
    if given.opcode == "parameter":
        return parameter
    wanted = given.attributes["index"]
    users = [u for u in parameter.users if u.opcode == given.opcode]
    return next((u for u in users if u.attributes["index"] == wanted), None)


def _parameter(parameters: Parameters, given: Instruction) -> Instruction:
    """The parameter of the same number."""
    number = given.attributes["parameter_number"]
    assert isinstance(number, int), "a parameter has a number"
    return parameters[number]


def _first_layers(
    found: Strands, own: Mapping[Instruction, tuple[Strand, int]]
) -> dict[Strand, int]:
    """The first layers of strands of parameters."""
    return {s: own[s.members[0]][1] for s in found.all if s.members[0] in own}


def _reaches_across(
    strand: Strand, border: int, own: Mapping[Instruction, tuple[Strand, int]]
) -> bool:
    """Whether a strand has members on both sides of the border, once it is counted from another
    layer where that helps: which layer a value between two is in is nobody's choice but ours.
    """
    if strand.members[0] not in own and len(strand.members) > 1:
        if strand.first > border:
            strand.first = border
        elif strand.last <= border:
            strand.first += border + 1 - strand.last
    return strand.first <= border < strand.last


def _elements(root: Instruction, cut: Cut, found: Strands) -> dict[int, tuple[Strand, int]] | None:
    """Which members the result's elements are, with all layers counted; None where something else
    stands for one of a layer that was cut out.
    """
    border, count = cut.border, cut.count
    plan: dict[int, tuple[Strand, int]] = {}
    given = results(root)
    if len(given) != len(results(cut.entry.root)):
        return None
    for place, was in cut.elements.items():
        between = border < was <= border + count
        element = given[place]
        if element in found.of:
            # of a layer between it was what the layer before the border gives
            kept = border if between else was if was <= border else was - count
            plan[place] = found.of[element], found.layer[element] + was - kept
        elif between:
            return None
    return plan


def _fit(
    found: Strands,
    border: int,
    order: Sequence[Instruction],
    own: Mapping[Instruction, tuple[Strand, int]],
) -> Fit:
    """Whether the layers beside the border are alike, and nothing else depends on their number."""
    if not found.all or not _are_alike(found, border, order):
        return Fit.UNLIKE
    for member in found.of:
        layer = found.layer[member]
        if layer not in (border, border + 1):
            sides = [found.layer[o] <= border for o in member.operands if o in found.of]
            if (layer > border) in sides:
                return Fit.UNLIKE
    if crosses(order, found, border) or not _are_read_beyond(found, border, order, own):
        return Fit.TIED
    return Fit.DONE


def _are_read_beyond(
    found: Strands,
    border: int,
    order: Sequence[Instruction],
    own: Mapping[Instruction, tuple[Strand, int]],
) -> bool:
    """Whether it is known on which side of the border members are that others than layers read.

    Layers of one strand may begin where those of another are halfway. Of a value that is computed
    from parameters of layers up to its own it is known.
    """
    sides: dict[Instruction, int] = {}
    for value in order:
        side = 0
        if value in own:
            side = 1 if own[value][1] <= border else 2
        for operand in value.operands:
            side |= sides[operand]
        sides[value] = side
    for strand in found.all:
        before, behind = strand.member(border), strand.member(border + 1)
        if before in own:
            continue
        if all(u in found.of or is_packing(u) for v in (before, behind) for u in v.users):
            continue
        if not (
            (sides[before] == 1 and sides[behind] & 2) or (sides[behind] == 2 and sides[before] & 1)
        ):
            return False
    return True


def _are_alike(found: Strands, border: int, order: Sequence[Instruction]) -> bool:
    """Whether the members before the border read what those behind it read, a layer before.

    Where layers begin, what the first one reads stands beside them: it was fused with what is
    before the network. Then the other layer tells what is read, from the one before it.
    """
    computed = reached(found, order)
    for strand in found.all:
        before, behind = strand.member(border), strand.member(border + 1)
        for one, other in zip(before.operands, behind.operands, strict=True):
            place, like = found.layer.get(one), found.layer.get(other)
            if place is not None and like is not None:
                if found.of[one] is not found.of[other] or like != place + 1:
                    return False
            elif one is other:
                if one in computed:
                    return False
            elif not _is_begun(computed.get(one if place is None else other), place, like, border):
                return False
    return True


def _is_begun(
    computed: tuple[int, int] | None, place: int | None, like: int | None, border: int
) -> bool:
    """Whether what one layer reads is what the other reads of the layer before it, or behind it.

    computed: the layers from which what is no member of any is computed: on its own side alone.
    """
    if place is None:
        return like == border and (computed is None or computed[1] <= border)
    return place == border + 1 and (computed is None or computed[0] > border)


Reading = list[tuple[Strand | None, int, Instruction]]


class _Lengthening:
    """The edit: copies of the layer before the border, for each layer that was cut out."""

    def __init__(
        self,
        module: Module,
        cut: Cut,
        found: Strands,
        own: Mapping[Instruction, tuple[Strand, int]],
    ) -> None:
        self.module = module
        self.entry = module.entry
        self.parameters = module.entry.parameters  # known until the first edit
        self.cut = cut
        self.found = found
        self.own = own
        self.places = Places(cut)
        self.copies: dict[tuple[Strand, int], Instruction] = {}

    def run(self, elements: Mapping[int, tuple[Strand, int]]) -> None:
        """elements: which members the result's elements are, by their places."""
        border, behind = self.cut.border, self.cut.border + self.cut.count + 1
        templates = [(s, s.member(border)) for s in self.found.all]
        for layer in range(border + 1, behind):
            for strand, template in templates:
                self.copies[strand, layer] = self._copied(template, layer)
        beside = [(t, border) for _, t in templates]
        beside += [(s.member(border + 1), behind) for s in self.found.all]
        read = [(member, self._operands(member, layer)) for member, layer in beside]
        for strand, template in templates:
            if template not in self.own:
                reading = self._reading(strand)
                read += [
                    (self.copies[strand, layer], self._read(reading, layer))
                    for layer in range(border + 1, behind)
                ]
        for member, operands in read:
            if operands != member.operands:
                self.entry.set_operands(member, operands)
        root = self.entry.root
        if elements:
            given = dict(enumerate(results(root)))
            given |= {place: self._member(*which) for place, which in elements.items()}
            if is_packing(root):
                self.entry.set_operands(root, given.values())
            else:
                self.entry.root = given[0]
            dce(self.module)  # what gives a result in a layer that is left, and in this one none

    def _member(self, strand: Strand, layer: int) -> Instruction:
        """The member of a layer, as all layers are counted."""
        border, count = self.cut.border, self.cut.count
        found = self.copies.get((strand, layer))
        return found or strand.member(layer if layer <= border else layer - count)

    def _operands(self, member: Instruction, layer: int) -> tuple[Instruction, ...]:
        """What a member beside the border reads, which is in a layer as all are counted."""
        of, place = self.found.of, self.found.layer
        at = place[member]
        return tuple(
            [self._member(of[o], layer + place[o] - at) if o in of else o for o in member.operands]
        )

    def _reading(self, strand: Strand) -> Reading:
        """What a strand's members read: of which strand, so many layers on, or else which value."""
        border, of, place = self.cut.border, self.found.of, self.found.layer
        before, behind = strand.member(border), strand.member(border + 1)
        return [
            (of[other], place[other] - border - 1, other)
            if other in of
            else (of.get(one), place.get(one, border) - border, one)
            for one, other in zip(before.operands, behind.operands, strict=True)
        ]

    def _read(self, reading: Reading, layer: int) -> tuple[Instruction, ...]:
        """What the member of a layer reads."""
        return tuple(
            [value if of is None else self._member(of, layer + on) for of, on, value in reading]
        )

    def _copied(self, template: Instruction, layer: int) -> Instruction:
        """The like of a member in a layer that was cut out, which reads nothing yet."""
        if template in self.own:
            return self._own(template, layer)
        copy = self.places.copied(template, layer)
        if may_call(copy):
            twins = {c: self._callee(c, layer) for c in _held(copy)}
            copy.attributes = redirect_calls(copy.attributes, twins)
        return self.entry.adopt(copy)

    def _callee(self, computation: Computation, layer: int) -> Computation:
        """A copy of what an instruction holds, and of what that holds."""
        twins: dict[Computation, Computation] = {}
        stack = [computation]
        while stack:
            waiting = [c for i in calls(stack[-1]) for c in _held(i) if c not in twins]
            if waiting:
                stack += waiting
                continue
            original = stack.pop()
            if original not in twins:
                copy = clone_computation(original, callees=twins)
                for instruction in copy.instructions:
                    self.places.move(instruction, layer)
                copy.contents = original.contents
                twins[original] = self.module.adopt(copy, before=self.entry)
        return twins[computation]

    def _own(self, template: Instruction, layer: int) -> Instruction:
        """The parameter of a layer, or the element of one."""
        given = self.own[template][0].member(layer)
        found = own_value(self.parameters, given)
        if found is None:
            parameter = _parameter(self.parameters, given.operands[0])
            found = self.entry.adopt(clone_instruction(given, (parameter,)))
        return found


def _held(instruction: Instruction) -> list[Computation]:
    """What an instruction calls but for reducers, which several may share."""
    if "to_apply" in instruction.attributes:
        return []
    return instruction.called_computations()


class Places:
    """Where instructions of the layers that were cut out stand in the text, and how they are named.

    What passes made of an instruction has its place, so that it tells which one of its own layer it
    was made of.
    """

    def __init__(self, cut: Cut) -> None:
        self._border = cut.border
        self._of: dict[int, tuple[Strand, int]] = {}
        for layer in (cut.border, cut.border + 1):
            before = cut.before(layer)
            for strand in cut.layers.all:
                member = strand.at(before)
                if member is not None and member.start >= 0:
                    self._of.setdefault(member.start, (strand, before))

    def copied(self, template: Instruction, layer: int) -> Instruction:
        """A copy of a member beside the border, as one of another layer, which reads nothing."""
        copy = clone_instruction(template, ())
        self.move(copy, layer)
        return copy

    def move(self, copy: Instruction, layer: int) -> None:
        """Give the copy of an instruction beside the border the place of its like in a layer."""
        strand, before = self._of.get(copy.start, (None, 0))
        if strand is None:
            return
        given, like = strand.at(before), strand.at(before + layer - self._border)
        if given is None or like is None:
            return
        copy.start, copy.end, copy.source = like.start, like.end, like.source
        if copy.name == given.name:
            copy.name = like.name
        metadata = like.get("metadata")
        if metadata is not None and copy.get("metadata") == given.get("metadata"):
            copy.attributes = {**copy.attributes, "metadata": metadata}
