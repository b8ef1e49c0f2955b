"""Axes: which dimension of a fusion group's root each dimension of a member is.

    user's axes --operand_axes--> its operands' axes     ("d", k): root dimension k, as it is

A group's loops are its root's dimensions: what depends on leading ones only is computed once per
row. Does not know: what is worth fusing (groups.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from msgspec import Struct, field

from hlo.analysis.fusibility import is_elementwise
from hlo.analysis.loop_order import LoopOrder
from hlo.indexing.queries import own_steps, result_dims, steps
from hlo.ir.instruction import Instruction
from hlo.ops.table import attribute

# Per dimension of a value: the root dimension it is (a part of), a reduced one's number, or
# unknown.
Axis = tuple[str, int]
Axes = tuple[Axis, ...]
# Indices at which a value is needed, less the index of the kernel's element.
Places = frozenset[tuple[int, ...]]
# How often each element of a value is computed, for each operand of a concatenate that it is part
# of; None: for what is part of none.
Counts = dict[Instruction | None, float]
UNKNOWN: Axis = ("?", 0)
PICKED = "g"  # The axis of a gather that takes so many elements of the value, wherever they are.
STAGES: Axis = ("s", 0)  # A reduced or inner dimension, which several stages of a kernel run over.

_MOST_CUT = 40  # The most members of a kernel whose loops are cut at the seams of a concatenate.


class Group(Struct, eq=False):
    """Instructions that become one kernel.

    roots: the kernel's results, root the first. members: all, roots too, with their axes.

    order: of loops over the root's dimensions; None where that is as they are.
    While the group grows, outside: the operands of members that are none; length: the instructions
    that count against its bound, in thirds.
    """

    root: Instruction
    roots: list[Instruction]
    members: dict[Instruction, Axes] = field(default_factory=dict)
    reductions: int = 0
    contraction: Instruction | None = None  # The other members finish its elements.
    repeated: int = 0  # Ops per element that are computed more often than need be.
    order: LoopOrder | None = None
    # How often each member is computed.
    counts: dict[Instruction, Counts] = field(default_factory=dict)
    outside: dict[Instruction, None] = field(default_factory=dict)
    length: int = 0
    # What is computed at several places, as the decision for what it belongs to says.
    settled: set[Instruction] = field(default_factory=set)
    places: dict[Instruction, Places | None] = field(default_factory=dict)
    forms: dict[Instruction, int] = field(default_factory=dict)  # What `forms_of` says.

    @property
    def dims(self) -> tuple[int, ...]:
        return result_dims(self.root)

    @property
    def loop_dims(self) -> tuple[int, ...]:
        return tuple(self.dims[d] for d in self.order.dims) if self.order else self.dims

    def forms_of(self, value: Instruction) -> int:
        """Bounds the indices at which the kernel's code names a value, whichever a run takes: ops
        on elements ask at their own, all others at one for each of their own and each time that
        they have the operand. Does not know which of the indices are equal.

            z = concatenate(y[0:1], y[1:2] reversed), and y made so of x:     z 1, y 2, x 4

        An element is computed once there, by the one path that leads to it, so what it costs says
        nothing of the code: that doubles with each such step (gates of a quantum circuit,
        butterflies, rotations).
        """
        shared, moved = int(value in self.roots), 0
        for user in users_in(self.members, value):
            own = self.forms.get(user, 1)
            if is_elementwise(user):
                shared = max(shared, own)
            else:
                moved += own * user.operands.count(value)
        return shared + moved

    def level(self, d: int) -> int:
        """How many loops fix root dimension d."""
        return 1 + (self.order.dims.index(d) if self.order else d)

    @property
    def has_reduce(self) -> bool:
        return self.reductions > 0


def users_in(members: Mapping[Instruction, object], producer: Instruction) -> list[Instruction]:
    """The users of a producer that are members: whichever are fewer are asked."""
    if len(producer.users) <= 4 * len(members):
        return [user for user in producer.users if user in members]
    return [member for member in members if producer in member.operands]


def joint_axes(group: Group, producer: Instruction) -> Axes | None:
    """The producer's axes by all its users in the group; UNKNOWN where they disagree."""
    found: Axes | None = None
    for user in users_in(group.members, producer):
        for number, operand in enumerate(user.operands):
            if operand is producer:
                axes = operand_axes(group, user, number)
                if found is None:
                    found = axes
                elif found != axes:
                    found = tuple(_joint(a, b) for a, b in zip(found, axes, strict=True))
    return found


def _joint(a: Axis, b: Axis) -> Axis:
    if a == b:
        return a
    inner = ("d", "r", "s")
    if a[0] in inner and b[0] in inner and (a[0], b[0]) != ("d", "d"):
        return STAGES
    return UNKNOWN


def operand_axes(group: Group, user: Instruction, number: int) -> Axes:
    """Which axes an operand's dimensions are, from those of the user."""
    own = group.members[user]
    operand = user.operands[number].shape
    if not operand.dims:
        return ()
    found = steps(user, number)
    if found is own_steps(operand.rank):  # one value for all ops on elements
        return own
    if found is None or (user.opcode == "gather" and number == 0 and takes_elements(user)):
        is_picked = found is not None
        return ((PICKED, user.shape.size) if is_picked else UNKNOWN,) * operand.rank
    is_cut = len(group.members) <= _MOST_CUT
    result: list[Axis] = []
    for d, (step, n) in enumerate(zip(found, operand.dims, strict=True)):
        if step.is_whole:
            result.append(own[step.dims[0]])
        elif n == 1 and not (step.dims or step.is_reduced):
            result.append(("1", 0))
        elif step.is_reduced and not step.dims:
            result.append(("r", 100 * list(group.members).index(user) + d))
        elif step.is_partial and step.is_placed:
            result.append(("u", d))
        elif step.is_partial and is_cut and own[step.dims[0]][0] == "d":
            # A numbered part of a root dimension, as loops cut it at a concatenate's seams.
            result.append(("p", 100 * number + own[step.dims[0]][1]))
        else:
            result.append(UNKNOWN)
    return tuple(result)


def takes_elements(gather: Instruction) -> bool:
    """Whether each of its slices is one element."""
    sizes: Sequence[int] = attribute(gather, "slice_sizes")  # type: ignore[assignment]  # INTS
    return prod(sizes) == 1


def fixed_dims(group: Group, axes: Axes) -> int | None:
    """k where the axes are (some of) the first k loops' dimensions, nothing else; else None."""
    most = 0
    for kind, number in axes:
        if kind == "1":
            continue
        if kind != "d":
            return None
        most = max(most, group.level(number))
    return most
