"""Run: one execution of a module on one device, and Called, a computation that ops can call.

    computation --sequence--> steps --run--> value of the root

A value with dynamic dimensions `<=n` is an array cut to its run-time sizes. A sequence keeps each
value in a numbered slot and frees it after its last use.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from hlo.errors import HloError, Violation
from hlo.interpreter.device import Device, Progress
from hlo.interpreter.frames import DEEPEST_CALL
from hlo.ir.computation import Computation
from hlo.ir.graph import is_topological, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import ProgramShape, Shape
from hlo.ops.effects import has_effect, with_callees
from hlo.ops.placing import located
from hlo.ops.table import OPS, Trait, evaluation_keywords
from hlo.process.memory import LARGE, available_bytes, memory_error, numpy_problem


class Step(Struct):
    """One instruction to evaluate: its function, and the slots that it reads, fills and frees."""

    instruction: Instruction
    evaluate: Callable[..., object]
    operands: tuple[int, ...]
    keywords: dict[str, object]
    slot: int
    dead: tuple[int, ...]


class StepSequence(Struct):
    """The steps of a computation: `inputs` are the slots of its parameters by number.

    `closed` steps need no parameter: they run at the first call, which leaves `start`, the slots
    that every call begins with, and are kept (a loop's body makes its iotas and masks once).
    """

    closed: list[Step]
    steps: list[Step]
    inputs: tuple[int | None, ...]
    root: int
    start: list[object]
    parameters: tuple[tuple[Instruction, int], ...]


class Called:
    """A computation as ops call it (the protocol hlo.ops.callee.Callee)."""

    __slots__ = ("_elementwise", "_run", "computation")

    def __init__(self, computation: Computation, run: Run) -> None:
        self.computation = computation
        self._run = run
        self._elementwise: bool | None = None

    @property
    def name(self) -> str:
        return self.computation.name

    @property
    def program_shape(self) -> ProgramShape:
        return self.computation.program_shape

    @property
    def is_elementwise(self) -> bool:
        if self._elementwise is None:
            self._elementwise = is_elementwise(self.computation)
        return self._elementwise

    def __call__(self, *values: object) -> object:
        return self._run.call(self.computation, values)


class Run:
    """Sequences of steps and the state of one execution."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._sequences: dict[Computation, StepSequence] = {}
        self._depth = 0

    def call(self, computation: Computation, values: tuple[object, ...]) -> object:
        """The computation's result for the given arguments."""
        sequence = self._sequences.get(computation)
        if sequence is None:
            sequence = self._sequences[computation] = self._planned(computation)
        if self._depth >= DEEPEST_CALL:
            message = f"{computation.name} is called {self._depth} calls deep"
            raise HloError("limit", f"{message}, expected at most {DEEPEST_CALL}")
        self._depth += 1
        try:
            return self._evaluated(sequence, values)
        finally:
            self._depth -= 1

    def _evaluated(self, sequence: StepSequence, values: tuple[object, ...]) -> object:
        """The root's value for one call."""
        if sequence.closed:
            self._perform(sequence.closed, sequence.start)
            sequence.closed = []
        slots = sequence.start.copy()
        for slot, value in zip(sequence.inputs, values, strict=True):
            if slot is not None:
                slots[slot] = value
        progress = self.device.surroundings.progress if self._depth == 1 else None
        watch = self.device.surroundings.watch
        if watch is not None:
            for parameter, slot in sequence.parameters:
                slots[slot] = watch(parameter, slots[slot])
        self._perform(sequence.steps, slots, progress)
        return slots[sequence.root]

    def _perform(
        self, steps: list[Step], slots: list[object], progress: Progress | None = None
    ) -> None:
        """Runs steps on slots. Hot: about 1 us a step beside the op itself."""
        device = self.device
        deadline = device.surroundings.deadline
        watch = device.surroundings.watch
        for done, step in enumerate(steps):
            if deadline is not None:
                deadline.check()
            if progress is not None:
                progress(done, len(steps))
            device.instruction = step.instruction
            try:
                value = step.evaluate(*[slots[i] for i in step.operands], **step.keywords)
            except Violation as violation:
                raise located(violation, step.instruction) from None
            except MemoryError:
                raise out_of_memory(step.instruction) from None
            if isinstance(value, np.generic):
                value = np.asarray(value)
            if watch is not None:
                value = watch(step.instruction, value)
            slots[step.slot] = value
            for slot in step.dead:
                slots[slot] = None

    def _planned(self, computation: Computation) -> StepSequence:
        order = needed(computation)
        kept = closed_instructions(computation, order)
        slot_of = {instruction: i for i, instruction in enumerate(order)}
        last_use = {o: user for user in order for o in user.operands if o is not computation.root}
        closed: list[Step] = []
        steps: list[Step] = []
        for instruction in order:
            if instruction.opcode == "parameter":
                continue
            unique = dict.fromkeys(instruction.operands)
            dead = [o for o in unique if last_use.get(o) is instruction and o not in kept]
            step = Step(
                instruction,
                evaluator(instruction),
                tuple(slot_of[o] for o in instruction.operands),
                self._keywords(instruction),
                slot_of[instruction],
                tuple(slot_of[o] for o in dead),
            )
            (closed if instruction in kept else steps).append(step)
        inputs = tuple(slot_of.get(p) for p in computation.parameters)
        start: list[object] = [None] * len(order)
        parameters = tuple((p, slot_of[p]) for p in computation.parameters if p in slot_of)
        return StepSequence(closed, steps, inputs, slot_of[computation.root], start, parameters)

    def _keywords(self, instruction: Instruction) -> dict[str, object]:
        """The attributes for `evaluate`, computations as callables, and what the row asks for."""
        if instruction.opcode == "constant":
            return {}
        keywords = evaluation_keywords(instruction, lambda callee: Called(callee, self))
        if OPS[instruction.opcode].takes_context:
            keywords["context"] = self.device
        return keywords


def needed(computation: Computation) -> list[Instruction]:
    """What the root or an effect needs, operands first, in the text's order where that is one."""
    order = computation.instructions
    if not is_topological(order) or any("control-predecessors" in i.attributes for i in order):
        order = post_order(computation)
    wanted = {computation.root}
    for instruction in reversed(order):
        if instruction in wanted or has_effect(instruction):
            wanted.add(instruction)
            wanted.update(instruction.operands)
    return [i for i in order if i in wanted]


def closed_instructions(computation: Computation, order: list[Instruction]) -> set[Instruction]:
    """Those whose value is the same in every call: constants, and what is made from them alone.

    In the entry, which is called once, only constants: keeping more would only hold memory.
    """
    closed: set[Instruction] = set()
    is_entry = computation.module is not None and computation.module.entry is computation
    for instruction in order:
        if instruction.opcode == "constant":
            closed.add(instruction)
        elif is_entry or instruction.opcode == "parameter":
            continue
        elif all(o in closed for o in instruction.operands) and is_pure(instruction):
            closed.add(instruction)
    return closed


STATEFUL = Trait.SIDE_EFFECT | Trait.RANDOM | Trait.COLLECTIVE


def is_pure(instruction: Instruction) -> bool:
    """Whether the value follows from the operands alone, without the run's state."""
    return not any(
        OPS[i.opcode].traits & STATEFUL or OPS[i.opcode].takes_context
        for i in with_callees(instruction)
    )


def evaluator(instruction: Instruction) -> Callable[..., object]:
    """The function of a step; a constant's gives its literal's value."""
    if instruction.opcode == "constant":
        return constant_function(instruction)
    row = OPS[instruction.opcode]
    if not hasattr(row, "evaluate"):
        message = f"{instruction.opcode}: the reference has no evaluation for it"
        raise HloError("unsupported", message, instruction.span)
    return row.evaluate


def constant_function(instruction: Instruction) -> Callable[[], object]:
    """Gives the constant's value; running an elided one is an error."""
    literal = instruction["literal"]
    assert isinstance(literal, Literal), "a constant holds a literal"
    if not literal.is_elided:
        value = literal_value(literal)
        return lambda: value

    def refuse() -> object:
        raise HloError(
            "elided-constant",
            f"constant: the value of {instruction.name} is {{...}}, expected a value",
            instruction.span,
            help="hlo.fill_elided(module) or --fill-elided[=SEED] makes one up",
        )

    return refuse


def literal_value(literal: Literal) -> object:
    """A literal as a value: an array or nested tuples."""
    if isinstance(literal.value, tuple):
        return tuple(literal_value(e) for e in literal.value)
    return literal.value


SCALAR_STRUCTURE = frozenset({"parameter", "constant", "tuple", "get-tuple-element"})
SCALAR_CALLS = frozenset({"call", "fusion"})


def is_elementwise(computation: Computation) -> bool:
    """Whether a computation on scalars acts on arrays element by element when given arrays."""
    pending = [computation]
    while pending:
        for instruction in needed(pending.pop()):
            if any(not leaf.is_scalar for leaf in instruction.shape.leaves()):
                return False
            if instruction.opcode in SCALAR_CALLS:
                pending += instruction.called_computations()
                continue
            row = OPS[instruction.opcode]
            if not (instruction.opcode in SCALAR_STRUCTURE or row.traits & Trait.ELEMENTWISE):
                return False
    return True


def check_sizes(module: Module) -> None:
    """Raises HloError where a value that some run may need is more than NumPy, or the memory that
    there is, can hold: before any work. Parameters are the caller's.
    """
    room = -1
    for computation in module.computations:
        large = [i for i in computation.instructions if _is_large(i.shape)]
        if not large:
            continue
        wanted = set(needed(computation))
        for instruction in large:
            if instruction not in wanted:
                continue
            for leaf in instruction.shape.leaves():
                if problem := _problem(leaf):
                    message = f"{instruction.opcode}: {instruction.name} has {problem}"
                    raise HloError("limit", message, instruction.span)
            room = available_bytes() if room < 0 else room
            if _makes(instruction) and instruction.shape.size_bytes > room:
                raise out_of_memory(instruction)


def _is_large(shape: Shape) -> bool:
    if shape.is_tuple:
        return any(map(_is_large, shape.elements))
    return shape.is_array and (shape.size_bytes > LARGE or bool(_problem(shape)))


def _problem(leaf: Shape) -> str:
    """Why NumPy has no such array, "" if it has."""
    return numpy_problem(leaf.dims, leaf.dtype.item_bytes) if leaf.is_array else ""


def _makes(instruction: Instruction) -> bool:
    """Whether the value is made here, and not handed on."""
    return instruction.opcode not in SCALAR_STRUCTURE


def out_of_memory(instruction: Instruction) -> HloError:
    """The error for a value that this machine cannot hold."""
    what = f"{instruction.opcode}: {instruction.name} is {instruction.shape}"
    return memory_error(instruction.shape.size_bytes, what, instruction.span)
