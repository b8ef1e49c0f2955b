"""rng_expander: random numbers as arithmetic on counters that the program itself carries.

    rng(a, b)  =>  arithmetic on rng-bit-generator(state), state = (seed 0, blocks drawn before)

The stream is the run's own (hlo/ops/random.py), for seed 0, with which compiled programs run. In
the entry the counter is known; through loops that draw it is one more element of their state, and
branches that draw take and give it. Programs that draw in other callees are left alone.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.attributes.padding import PaddingDim
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.graph import callers, calls, control_predecessors, is_topological, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.effects import with_callees
from hlo.ops.making import make
from hlo.ops.random import FIRST_STATE
from hlo.passes.flatten_call_graph import flatten_call_graph
from hlo.passes.loop_state import extend, is_extensible, of_any_shape
from hlo.passes.rng_numbers import constant, drawn

WORDS_PER_BLOCK = 4
MOST_WORDS = 2**40
COUNT = Shape.array(dt.U64, ())


def rng_expander(module: Module) -> bool:
    """Write random numbers as arithmetic on rng-bit-generator, for seed 0."""
    drawing = [c for c in module.computations if any(map(_draws, c.instructions))]
    if not drawing:
        return False
    if drawing != [module.entry]:
        flatten_call_graph(module)
    if not _is_known(module.entry, module):
        return False
    _expanded(module.entry, _Counter(None, 0))
    return True


def _draws(instruction: Instruction) -> bool:
    """Whether it draws, but for what is one state for each execution of an instruction."""
    if instruction.opcode == "custom-call":
        return instruction.get("custom_call_target") == "GetRngSeed"
    return instruction.opcode in ("rng", "rng-get-and-update-state")


def _calls_drawing(instruction: Instruction) -> bool:
    """Whether anything that it calls draws."""
    if not any(True for _ in instruction.called_computations()):
        return False
    return any(_draws(i) for i in with_callees(instruction) if i is not instruction)


# -- whether all counters can be known -----------------------------------------------------------


def _is_known(computation: Computation, module: Module) -> bool:
    """Whether each draw can be written as arithmetic, and is in the entry, a loop or a branch."""
    sites = callers(module)
    stack = [computation]
    while stack:
        current = stack.pop()
        for instruction in current.instructions:
            if _draws(instruction):
                if not _is_arithmetic(instruction) or _has_own_state(instruction, module):
                    return False
            elif _calls_drawing(instruction):
                if not _carries(instruction, sites):
                    return False
                stack += instruction.called_computations()
    return True


def _is_arithmetic(instruction: Instruction) -> bool:
    return not instruction.shape.is_dynamic and _words(instruction) <= MOST_WORDS


def _has_own_state(instruction: Instruction, module: Module) -> bool:
    """Whether its value differs from execution to execution by a state of its own."""
    is_repeated = instruction.computation is not module.entry
    return is_repeated and instruction.opcode == "rng-get-and-update-state"


def _carries(instruction: Instruction, sites: dict[Computation, list[Instruction]]) -> bool:
    """Whether a counter can go through what it calls."""
    if "control-predecessors" in instruction.attributes:
        return False
    if instruction.opcode == "while":
        condition = instruction["condition"]
        assert isinstance(condition, Computation), "condition is a computation"
        return is_extensible(instruction, sites) and not any(map(_calls_drawing, calls(condition)))
    branches = list(instruction.called_computations())
    return instruction.opcode == "conditional" and all(len(sites[b]) == 1 for b in branches)


def _words(instruction: Instruction) -> int:
    return 2 * instruction.shape.size if instruction.opcode == "rng" else 0


# -- rewriting -----------------------------------------------------------------------------------


class _Counter(Struct, frozen=True):
    """Blocks drawn so far: a u64[] of the program's, and a number known here."""

    base: Instruction | None
    blocks: int

    def plus(self, blocks: int) -> _Counter:
        return _Counter(self.base, self.blocks + blocks)

    def value(self, like: Instruction) -> Instruction:
        """The count in `like`'s computation."""
        known = constant(like, np.array(self.blocks, np.uint64), dt.U64)
        if self.base is None:
            return known
        return make(like, "add", self.base, known) if self.blocks else self.base

    def state(self, like: Instruction) -> Instruction:
        """[0, count, 0]."""
        if self.base is None:
            return constant(like, np.array([0, self.blocks, 0], np.uint64), dt.U64)
        row = make(like, "reshape", self.value(like), shape=Shape.array(dt.U64, (1,)))
        zero = constant(like, np.array(0, np.uint64), dt.U64)
        return make(like, "pad", row, zero, padding=(PaddingDim(1, 1),))


def _expanded(computation: Computation, counter: _Counter) -> _Counter:
    """Rewrite what draws here and in what is called; the counter afterwards."""
    for instruction in _in_order(computation):
        if _draws(instruction):
            new = _value(instruction, counter)
            counter = counter.plus(-(-_words(instruction) // WORDS_PER_BLOCK))
            if new.shape != instruction.shape:
                new = make(instruction, "copy", new, shape=instruction.shape)
            _forget_order(computation, instruction)
            computation.replace_uses(instruction, new)
            computation.remove(instruction)
        elif _calls_drawing(instruction):
            through = _through_loop if instruction.opcode == "while" else _through_branches
            counter = through(instruction, counter)
    return counter


def _in_order(computation: Computation) -> tuple[Instruction, ...]:
    """The order of evaluation."""
    order = computation.instructions
    if is_topological(order) and not any("control-predecessors" in i.attributes for i in order):
        return tuple(order)
    return tuple(post_order(computation))


def _value(instruction: Instruction, counter: _Counter) -> Instruction:
    if instruction.opcode == "rng-get-and-update-state":
        return constant(instruction, np.array([FIRST_STATE, 0], np.uint64), dt.U64)
    if instruction.opcode == "custom-call":
        return constant(instruction, np.array(0, np.uint64), dt.U64)
    return drawn(instruction, counter.state(instruction))


def _forget_order(computation: Computation, before: Instruction) -> None:
    """Nothing waits for arithmetic."""
    for user in computation.instructions:
        if before in control_predecessors(user):
            rest = tuple(i for i in control_predecessors(user) if i is not before)
            kept = {k: v for k, v in user.attributes.items() if k != "control-predecessors"}
            more = {"control-predecessors": rest} if rest else {}
            computation.set_attributes(user, {**kept, **more})


def _through_loop(loop: Instruction, counter: _Counter) -> _Counter:
    """The counter is one more element of the state; a condition draws before each iteration."""
    computation, (body, condition) = loop.computation, loop.called_computations()
    assert computation is not None, "a loop stands in a computation"
    place = len(loop.shape.elements)
    (element,) = extend(loop, (counter.value(loop),))
    (state,) = condition.parameters
    tested = make(state, "get-tuple-element", state, index=place)
    drawn_by_test = _expanded(condition, _Counter(tested, 0)).blocks
    after = _expanded(body, _Counter(element, drawn_by_test))
    body.set_operand(body.root, place, after.value(body.root))
    (wider,) = (i for i in calls(computation) if body in i.called_computations())
    return _Counter(make(wider, "get-tuple-element", wider, index=place), drawn_by_test)


def _through_branches(conditional: Instruction, counter: _Counter) -> _Counter:
    """Each branch takes (operand, count) and gives (result, count)."""
    computation = conditional.computation
    assert computation is not None, "an instruction stands in a computation"
    selector, *operands = conditional.operands
    branches = list(conditional.called_computations())
    count = counter.value(conditional)
    packed = [make(conditional, "tuple", operand, count) for operand in operands]
    for branch in branches:
        _counting(branch)
    new = computation.new(
        "conditional", branches[0].root.shape, (selector, *packed),
        of_any_shape(conditional), like=conditional,
    )  # fmt: skip
    result = make(new, "get-tuple-element", new, index=0)
    computation.replace_uses(conditional, result)
    computation.remove(conditional)
    return _Counter(make(new, "get-tuple-element", new, index=1), 0)


def _counting(branch: Computation) -> None:
    """(operand, count) -> (result, count)."""
    (parameter,) = branch.parameters
    shape = Shape.tuple((parameter.shape, COUNT))
    number = {"parameter_number": 0}
    pair = branch.new("parameter", shape, (), number, like=parameter, name="counted")
    operand, count = (make(pair, "get-tuple-element", pair, index=k) for k in range(2))
    order = [i for i in branch.instructions if i not in (pair, operand, count)]
    branch.replace_uses(parameter, operand)
    branch.remove(parameter)
    branch.reorder([pair, operand, count, *(i for i in order if i is not parameter)])
    after = _expanded(branch, _Counter(count, 0))
    root = branch.root
    branch.root = make(root, "tuple", root, after.value(root))
