"""cse: merge instructions that compute the same value from the same operands."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ops.effects import has_effect
from hlo.ops.table import OPS, Trait, has_trait
from hlo.passes.liveness import awaited

Key = tuple[object, ...]
Numbers = dict[Computation, int]  # equal for computations of equal structure


def cse(module: Module) -> bool:
    """Merge identical instructions of a computation.

    A value number per instruction: (opcode, shape, operands' numbers, attributes); called
    computations count by structure, so that JAX's many copies of one reducer are one. O(edges).
    """
    numbers: Numbers = {}
    known: dict[Key, int] = {}
    changed = False
    for computation in callees_first(module):
        changed |= _merge(computation, numbers)
        if computation is not module.entry:  # nobody asks for the entry's
            numbers[computation] = known.setdefault(structure(computation, numbers), len(known))
    return changed


def _merge(computation: Computation, numbers: Numbers) -> bool:
    known: dict[Key, Instruction] = {}
    kept = awaited(computation)
    changed = False
    for instruction in post_order(computation):
        if not _may_merge(instruction):
            continue
        key = (value_key(instruction, numbers), tuple(map(id, instruction.operands)))
        first = known.setdefault(key, instruction)
        if first is not instruction and instruction not in kept:
            computation.replace_uses(instruction, first)
            computation.remove(instruction)
            changed = True
    return changed


def _may_merge(instruction: Instruction) -> bool:
    if instruction.opcode == "parameter" or "control-predecessors" in instruction.attributes:
        return False
    if has_trait(instruction, Trait.RANDOM) and instruction.opcode != "rng-bit-generator":
        return False
    return instruction.opcode != "opt-barrier" and not has_effect(instruction)


def value_key(instruction: Instruction, numbers: Numbers) -> Key:
    """Opcode, shape and the attributes that decide the value, hashable."""
    own = OPS[instruction.opcode].attrs
    given = instruction.attributes
    names = [n for n in given if n in own or n in ("literal", "parameter_number")]
    if not names:
        return (instruction.opcode, instruction.shape)
    attributes = tuple((n, _attribute_key(given[n], numbers)) for n in sorted(names))
    return (instruction.opcode, instruction.shape, attributes)


def _attribute_key(value: object, numbers: Numbers) -> object:
    if isinstance(value, Computation):
        return numbers.get(value, value)
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
    places: dict[Instruction, int] = {}
    rows: list[Key] = []
    for instruction in post_order(computation):
        if has_effect(instruction):
            return (id(computation),)
        places[instruction] = len(rows)
        operands = tuple(places[o] for o in instruction.operands)
        rows.append((value_key(instruction, numbers), operands))
    return (*rows, places[computation.root])
