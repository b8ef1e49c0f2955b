"""conditional-to-select: branches of what is applied to elements are computed both, one is taken.

conditional(p, x, y)  =>  select(p, f(x), g(y))

in computations that a map, a reduction, a sort or a scatter applies, so that they are plain
arithmetic, of which kernels make vectors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from hlo.analysis.call_budget import budget
from hlo.analysis.fusibility import SCALAR_STRUCTURE
from hlo.ir.computation import Computation
from hlo.ir.graph import calls
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.effects import with_callees
from hlo.ops.making import make, make_constant
from hlo.ops.table import Trait, has_trait
from hlo.passes.liveness import awaited
from hlo.passes.simplify.call_inliner import inline_call

# Ops that may stand in a branch: cheap ones, without an effect or an end to wait for.
_PLAIN = Trait.ELEMENTWISE | Trait.REPEATS | Trait.REGROUPS
MOST_BRANCHES = 8


def conditional_to_select(module: Module) -> bool:
    """Compute all branches of conditionals in computations that are applied to elements.

    As long as copies of the branches are within the call budget.
    """
    if not any(i.opcode == "conditional" for c in module.computations for i in c.instructions):
        return False
    changed = False
    room = budget(module.computations)
    kept = {i for computation in module.computations for i in awaited(computation)}
    for computation in dict.fromkeys(_applied(module)):
        waiting = deque(calls(computation))
        while waiting:
            found = waiting.popleft()
            if found not in kept and _is_selectable(found):
                room -= sum(map(len, found.called_computations()))
                if room < 0:
                    break
                waiting += _select(found)
                changed = True
    return changed


def _applied(module: Module) -> Iterator[Computation]:
    for computation in tuple(module.computations):
        for instruction in calls(computation):
            if has_trait(instruction, Trait.APPLIES):
                yield from instruction.called_computations()


def is_plain(instruction: Instruction) -> bool:
    """Whether it is arithmetic on its operands' elements, or no operation at all."""
    if has_trait(instruction, _PLAIN) or instruction.opcode in SCALAR_STRUCTURE:
        return True
    return instruction.opcode in ("copy", "bitcast-convert")


def _is_selectable(conditional: Instruction) -> bool:
    if conditional.opcode != "conditional" or "control-predecessors" in conditional.attributes:
        return False
    leaves = conditional.shape.elements if conditional.shape.is_tuple else (conditional.shape,)
    if len(conditional.operands) > 1 + MOST_BRANCHES or not all(s.is_array for s in leaves):
        return False
    if not conditional.operands[0].shape.is_scalar:
        return False
    members = (i for i in with_callees(conditional) if i.opcode != "conditional")
    return all(is_plain(i) and "control-predecessors" not in i.attributes for i in members)


def _select(conditional: Instruction) -> list[Instruction]:
    """Write one conditional as its branches and a choice among their results; the branches'
    instructions.
    """
    computation = conditional.computation
    assert computation is not None, "an instruction of a computation"
    choice, *operands = conditional.operands
    branches = tuple(conditional.called_computations())
    made = [
        make(conditional, "call", operand, shape=branch.root.shape, to_apply=branch)
        for operand, branch in zip(operands, branches, strict=True)
    ]
    shape = conditional.shape
    if shape.is_tuple:
        parts = [
            _chosen(choice, [make(m, "get-tuple-element", m, index=k) for m in made])
            for k in range(len(shape.elements))
        ]
        result = make(conditional, "tuple", *parts, shape=shape)
    else:
        result = _chosen(choice, made)
    computation.replace_uses(conditional, result)
    computation.remove(conditional)
    copies: list[Instruction] = []
    for call in made:
        inline_call(call, copies)
    return copies


def _chosen(choice: Instruction, values: list[Instruction]) -> Instruction:
    """The value of the branch taken: the first for true; by number, the last for any other."""
    if choice.shape.dtype.is_pred:
        return _either(choice, *values)
    result = values[-1]
    for number, value in reversed(list(enumerate(values[:-1]))):
        literal = Literal.of(np.array(number, np.int32), choice.shape.without_layout())
        is_it = make(choice, "compare", choice, make_constant(choice, literal), direction="EQ")
        result = _either(is_it, value, result)
    return result


def _either(condition: Instruction, a: Instruction, b: Instruction) -> Instruction:
    if a.shape.rank:
        shape = Shape.array(condition.shape.dtype, a.shape.dims)
        condition = make(a, "broadcast", condition, shape=shape, dimensions=())
    return make(a, "select", condition, a, b)
