"""cse: merge instructions that compute the same value from the same operands."""

from __future__ import annotations

from hlo.analysis.decisions import decisions_of
from hlo.ir.computation import Computation
from hlo.ir.graph import callees, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ops.effects import has_effect
from hlo.ops.table import OPS, Trait, opcodes
from hlo.passes.liveness import awaited
from hlo.passes.settling import is_settled, reach_states, settle

Key = tuple[object, ...]
_RANDOM = opcodes(Trait.RANDOM).holds


class Numbers:
    """A number for each computation that somebody asks about, equal for equal structure."""

    def __init__(self) -> None:
        self._known: dict[Key, int] = {}
        self._numbers: dict[Computation, int] = {}

    def __getitem__(self, computation: Computation) -> int:
        """What it calls is numbered first: calls may be as deep as the module."""
        stack = [computation]
        while stack:
            top = stack[-1]
            waiting = [c for c in callees(top) if c not in self._numbers]
            if waiting and top not in self._numbers:
                stack += waiting
                continue
            stack.pop()
            if top not in self._numbers:
                key = structure(top, self)
                self._numbers[top] = self._known.setdefault(key, len(self._known))
        return self._numbers[computation]


def cse(module: Module) -> bool:
    """Merge identical instructions of a computation.

    A value number per instruction: (opcode, shape, operands' numbers, attributes); called
    computations count by structure, so that JAX's many copies of one reducer are one. O(edges).
    """
    numbers = Numbers()
    reaches = reach_states(module)
    changed = False
    for computation in reaches:
        reach = reaches[computation]
        if is_settled(computation, cse, reach):
            continue
        if _merge(computation, numbers):
            changed = True
        else:
            settle(computation, cse, reach)
    return changed


def _merge(computation: Computation, numbers: Numbers) -> bool:
    seen: dict[Key, Instruction] = {}
    known: dict[Key, dict[Key, Instruction]] = {}
    kept = awaited(computation)
    changed = False
    for instruction in post_order(computation):
        if not _may_merge(instruction):
            continue
        short = (instruction.opcode, *map(id, instruction.operands))
        alike = seen.setdefault(short, instruction)
        if alike is instruction:
            continue  # nothing before has these operands
        group = known.get(short)
        if group is None:
            group = known[short] = {value_key(alike, numbers): alike}
        first = group.setdefault(value_key(instruction, numbers), instruction)
        if first is not instruction and instruction not in kept:
            computation.replace_uses(instruction, first)
            computation.remove(instruction)
            changed = True
    return changed


def _may_merge(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    if opcode in ("parameter", "opt-barrier") or "control-predecessors" in instruction.attributes:
        return False
    if _RANDOM[opcode] and opcode != "rng-bit-generator":
        return False
    if opcode == "custom-call" and decisions_of(instruction).is_overwritten:
        return False  # each loop that fills such memory needs some of its own
    return not has_effect(instruction)


def value_key(instruction: Instruction, numbers: Numbers) -> Key:
    """Opcode, shape and the attributes that decide the value, hashable."""
    own = OPS[instruction.opcode].attrs
    given = instruction.attributes
    names = [n for n in given if n in own or n in ("literal", "parameter_number")]
    if instruction.opcode == "custom-call" and "backend_config" in given:
        names.append("backend_config")  # what its target is told: a triangle's side, a transpose
    if not names:
        return (instruction.opcode, instruction.shape)
    attributes = tuple((n, _attribute_key(given[n], numbers)) for n in sorted(names))
    return (instruction.opcode, instruction.shape, attributes)


def _attribute_key(value: object, numbers: Numbers) -> object:
    if isinstance(value, Computation):
        return numbers[value]
    if isinstance(value, Literal):
        return _literal_key(value)
    if isinstance(value, tuple):
        return tuple(_attribute_key(v, numbers) for v in value)
    return value


def _literal_key(literal: Literal) -> Key:
    if literal.is_elided:
        return (literal.shape, id(literal))
    if isinstance(literal.value, tuple):
        return tuple(_literal_key(e) for e in literal.value)
    return (literal.shape, literal.array.tobytes())


def structure(computation: Computation, numbers: Numbers) -> Key:
    """Equal for computations that are equal up to names; unique for one with effects."""
    row_of: dict[Instruction, int] = {}
    rows: list[Key] = []
    for instruction in post_order(computation):
        if has_effect(instruction):
            return (id(computation),)
        row_of[instruction] = len(rows)
        operands = tuple(row_of[o] for o in instruction.operands)
        rows.append((value_key(instruction, numbers), operands))
    return (*rows, row_of[computation.root])
