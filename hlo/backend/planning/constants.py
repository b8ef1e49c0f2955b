"""Constants: the bytes of constant allocations, owned by the executable and not by the IR."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.backend.planning.allocations import Allocation, AllocationKind
from hlo.backend.planning.program import Program
from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.machine import ALIGNMENT

SHARED_BYTES = 4096  # Constants up to this size are compared, and equal ones are one array.


class Constants(Struct, frozen=True, eq=False):
    """The arrays of a plan's constant allocations.

    numbers: which array each constant allocation is; equal small ones are one array.
    """

    numbers: dict[int, int]
    arrays: tuple[np.ndarray, ...]

    @property
    def total_bytes(self) -> int:
        return sum(a.nbytes for a in self.arrays)


def constants(program: Program) -> Constants:
    """The arrays of the constant allocations that steps use; HloError "elided-constant" for one
    whose value the text leaves out.
    """
    used = set(program.table)
    numbers: dict[int, int] = {}
    arrays: list[np.ndarray] = []
    known: dict[object, int] = {}
    for number, allocation in enumerate(program.plan.allocations):
        if allocation.kind is not AllocationKind.CONSTANT or not allocation.size:
            continue
        if number not in used:
            continue
        array = constant_array(allocation)
        small = array.nbytes <= SHARED_BYTES
        key: object = array.tobytes() if small else array.__array_interface__["data"]
        if key not in known:
            known[key] = len(arrays)
            arrays.append(array)
        numbers[number] = known[key]
    return Constants(numbers, tuple(arrays))


def constant_array(allocation: Allocation) -> np.ndarray:
    """The array of a constant leaf, or the bytes that are prepared of it; zeros for replica-id and
    partition-id on one device.
    """
    array = _leaf_array(allocation)
    if allocation.prepared:
        array = array.reshape(-1).view(np.uint8)
        for step in allocation.prepared:
            array = step(array)
        assert array.nbytes == allocation.size, "a preparation fills its allocation"
        array = _at_boundary(array)
    return array


def _at_boundary(content: np.ndarray) -> np.ndarray:
    """The bytes where a boundary of the arena's allocations is, as temporaries lie."""
    room = np.empty(content.nbytes + ALIGNMENT, np.uint8)
    first = -room.__array_interface__["data"][0] % ALIGNMENT
    placed = room[first : first + content.nbytes]
    placed[:] = content
    return placed


def _leaf_array(allocation: Allocation) -> np.ndarray:
    instruction = allocation.instruction
    assert instruction is not None, "a constant allocation has its instruction"
    if instruction.opcode != "constant":
        return np.zeros(max(1, allocation.size), np.uint8)
    literal = instruction.attributes["literal"]
    assert isinstance(literal, Literal), "a constant holds a literal"
    leaf = list(_literal_leaves(literal))[allocation.index]
    if leaf.value is None:
        raise no_value(instruction)
    return np.ascontiguousarray(leaf.array)


def no_value(constant: Instruction) -> HloError:
    """What is wrong with a constant whose value the text leaves out."""
    return HloError(
        "elided-constant",
        f"constant: the value of {constant.name} is {{...}}, expected a value",
        constant.span,
        help="hlo.fill_elided(module) or --fill-elided[=SEED] makes one up",
    )


def _literal_leaves(literal: Literal) -> list[Literal]:
    found: list[Literal] = []
    stack = [literal]
    while stack:
        top = stack.pop()
        if top.shape.is_tuple and isinstance(top.value, tuple):
            stack += reversed(top.value)
        elif top.shape.is_tuple:
            stack += [Literal.elided(s) for s in reversed(top.shape.elements)]
        else:
            found.append(top)
    return found
