"""Forms: at how many indices a kernel's code names a value, whichever of them a run takes.

    z = concatenate(y[0:1], y[1:2] reversed), and y made so of x:     z 1, y 2, x 4

An element is computed once there, by the one path that leads to it, so what it costs says nothing
of the code: that doubles with each such step (gates of a quantum circuit, butterflies, rotations).
Does not know: which of the indices are equal.
"""

from __future__ import annotations

from hlo.analysis.fusibility import is_elementwise
from hlo.ir.instruction import Instruction
from hlo.passes.fusion.axes import Group, users_in

MOST_FORMS = 64


def forms_in(group: Group, value: Instruction) -> int:
    """Bounds the indices at which a group's members ask for a value: ops on elements ask at their
    own, all others at one for each of their own and each time that they have the operand.
    """
    shared, moved = int(value in group.roots), 0
    for user in users_in(group.members, value):
        own = group.forms.get(user, 1)
        if is_elementwise(user):
            shared = max(shared, own)
        else:
            moved += own * user.operands.count(value)
    return shared + moved
