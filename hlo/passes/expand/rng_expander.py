"""rng_expander: random numbers as arithmetic on counters that the program itself carries.

    rng(a, b)  =>  arithmetic on rng-bit-generator(state), state = (seed 0, blocks drawn before)

The stream is the run's own (hlo/ops/random.py), for seed 0, with which compiled programs run. In
the entry the counter is known; through loops that draw it is one more element of their state, and
branches that draw take and give it. Programs that draw in other callees are left alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from hlo.analysis.while_loops.loop_state import extend, is_extensible, of_any_shape
from hlo.attributes.padding import PaddingDim
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.graph import (
    callees,
    callees_first,
    callers,
    control_predecessors,
    is_topological,
    post_order,
)
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.ops.random import FIRST_STATE
from hlo.passes.expand.rng_numbers import constant, drawn
from hlo.passes.simplify.flatten_call_graph import flatten_call_graph

WORDS_PER_BLOCK = 4
MOST_WORDS = 2**40
COUNT = Shape.array(dt.U64, ())


def rng_expander(module: Module) -> bool:
    """Write random numbers as arithmetic on rng-bit-generator, for seed 0."""
    own = [c for c in module.computations if any(map(_draws, c.instructions))]
    if not own:
        return False
    if own != [module.entry]:
        flatten_call_graph(module)
    drawing = _drawing(module)
    if not _is_known(module, drawing):
        return False
    _Expansion(drawing).run(module.entry)
    return True


def _draws(instruction: Instruction) -> bool:
    """Whether it draws, but for what is one state for each execution of an instruction."""
    if instruction.opcode == "custom-call":
        return instruction.get("custom_call_target") == "GetRngSeed"
    return instruction.opcode in ("rng", "rng-get-and-update-state")


def _drawing(module: Module) -> set[Computation]:
    """The computations in which something draws, or in what they call."""
    found: set[Computation] = set()
    for computation in callees_first(module):
        inside = any(map(_draws, computation.instructions))
        if inside or not found.isdisjoint(callees(computation)):
            found.add(computation)
    return found


def _calls_drawing(instruction: Instruction, drawing: set[Computation]) -> bool:
    """Whether anything that it calls draws."""
    return any(c in drawing for c in instruction.called_computations())


# -- whether all counters can be known -----------------------------------------------------------


def _is_known(module: Module, drawing: set[Computation]) -> bool:
    """Whether each draw can be written as arithmetic, and is in the entry, a loop or a branch."""
    sites = callers(module)
    stack = [module.entry]
    while stack:
        current = stack.pop()
        for instruction in current.instructions:
            if _draws(instruction):
                if not _is_arithmetic(instruction) or _has_own_state(instruction, module):
                    return False
            elif _calls_drawing(instruction, drawing):
                if not _carries(instruction, sites, drawing):
                    return False
                stack += instruction.called_computations()
    return True


def _is_arithmetic(instruction: Instruction) -> bool:
    return not instruction.shape.is_dynamic and _words(instruction) <= MOST_WORDS


def _has_own_state(instruction: Instruction, module: Module) -> bool:
    """Whether its value differs from execution to execution by a state of its own."""
    is_repeated = instruction.computation is not module.entry
    return is_repeated and instruction.opcode == "rng-get-and-update-state"


def _carries(
    instruction: Instruction,
    sites: dict[Computation, list[Instruction]],
    drawing: set[Computation],
) -> bool:
    """Whether a counter can go through what it calls."""
    if "control-predecessors" in instruction.attributes:
        return False
    if instruction.opcode == "while":
        condition = instruction["condition"]
        assert isinstance(condition, Computation), "condition is a computation"
        return is_extensible(instruction, sites) and drawing.isdisjoint(callees(condition))
    branches = instruction.called_computations()
    return instruction.opcode == "conditional" and all(len(sites[b]) == 1 for b in branches)


def _words(instruction: Instruction) -> int:
    return 2 * instruction.shape.size if instruction.opcode == "rng" else 0


def _blocks(instruction: Instruction) -> int:
    return -(-_words(instruction) // WORDS_PER_BLOCK)


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


Finish = Callable[[_Counter], None]  # hands on how much a computation drew


class _Expansion:
    """Callers before what they call: how a counter comes out of a call is known without it."""

    def __init__(self, drawing: set[Computation]) -> None:
        self.drawing = drawing
        self.pending: list[tuple[Computation, _Counter, Finish]] = []

    def run(self, entry: Computation) -> None:
        """Rewrite what draws in the entry and in what it calls."""
        self.expand(entry, _Counter(None, 0))
        while self.pending:
            computation, counter, finish = self.pending.pop()
            finish(self.expand(computation, counter))

    def expand(self, computation: Computation, counter: _Counter) -> _Counter:
        """Rewrite what draws here; the counter afterwards."""
        replaced: dict[Instruction, Instruction] = {}
        order = _in_order(computation)
        _forget_order(computation)
        for instruction in order:
            if _draws(instruction):
                new = _value(instruction, counter)
                counter = counter.plus(_blocks(instruction))
                if new.shape != instruction.shape:
                    new = make(instruction, "copy", new, shape=instruction.shape)
                replaced[instruction] = new
            elif _calls_drawing(instruction, self.drawing):
                is_loop = instruction.opcode == "while"
                through = self._through_loop if is_loop else self._through_branches
                counter = through(instruction, counter)
        computation.replace_all_uses(replaced)
        for instruction in replaced:
            computation.remove(instruction)
        return counter

    def _through_loop(self, loop: Instruction, counter: _Counter) -> _Counter:
        """The counter is one more element of the state; a condition draws before each iteration."""
        body, condition = loop.called_computations()
        place = len(loop.shape.elements)
        wider, (element,) = extend(loop, (counter.value(loop),))
        (state,) = condition.parameters
        tested = make(state, "get-tuple-element", state, index=place)
        self.pending.append((condition, _Counter(tested, 0), lambda _: None))
        drawn_by_test = sum(_blocks(i) for i in condition.instructions if _draws(i))

        def finish(after: _Counter) -> None:
            body.set_operand(body.root, place, after.value(body.root))

        self.pending.append((body, _Counter(element, drawn_by_test), finish))
        return _Counter(make(wider, "get-tuple-element", wider, index=place), drawn_by_test)

    def _through_branches(self, conditional: Instruction, counter: _Counter) -> _Counter:
        """Each branch takes (operand, count) and gives (result, count)."""
        computation = conditional.computation
        assert computation is not None, "an instruction stands in a computation"
        selector, *operands = conditional.operands
        count = counter.value(conditional)
        packed = [make(conditional, "tuple", operand, count) for operand in operands]
        shape = Shape.tuple((conditional.shape, COUNT))
        for branch in conditional.called_computations():
            self.pending.append((branch, _counting(branch), _giver(branch)))
        new = computation.new(
            "conditional", shape, (selector, *packed), of_any_shape(conditional), like=conditional
        )
        result = make(new, "get-tuple-element", new, index=0)
        computation.replace_uses(conditional, result)
        computation.remove(conditional)
        return _Counter(make(new, "get-tuple-element", new, index=1), 0)


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


def _forget_order(computation: Computation) -> None:
    """Nothing waits for arithmetic."""
    for user in computation.instructions:
        before = control_predecessors(user)
        rest = tuple(i for i in before if not _draws(i))
        if len(rest) < len(before):
            kept = {k: v for k, v in user.attributes.items() if k != "control-predecessors"}
            more = {"control-predecessors": rest} if rest else {}
            computation.set_attributes(user, {**kept, **more})


def _counting(branch: Computation) -> _Counter:
    """operand -> (operand, count): the count."""
    (parameter,) = branch.parameters
    shape = Shape.tuple((parameter.shape, COUNT))
    number = {"parameter_number": 0}
    pair = branch.new("parameter", shape, (), number, like=parameter, name="counted")
    operand, count = (make(pair, "get-tuple-element", pair, index=k) for k in range(2))
    order = [i for i in branch.instructions if i not in (pair, operand, count)]
    branch.replace_uses(parameter, operand)
    branch.remove(parameter)
    branch.reorder([pair, operand, count, *(i for i in order if i is not parameter)])
    return _Counter(count, 0)


def _giver(branch: Computation) -> Finish:
    """What makes a branch's result (result, count)."""

    def finish(after: _Counter) -> None:
        root = branch.root
        branch.root = make(root, "tuple", root, after.value(root))

    return finish
