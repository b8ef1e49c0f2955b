"""Constants: the bytes of constant cells, owned by the executable and not by the IR."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.backend.planning.cells import Cell, Region
from hlo.errors import HloError
from hlo.ir.literal import Literal

SHARED_BYTES = 4096  # constants up to this size are compared


class Constants(Struct, frozen=True, eq=False):
    """numbers: which array each constant cell is; equal small ones are one array."""

    numbers: dict[int, int]
    arrays: tuple[np.ndarray, ...]

    @property
    def total_bytes(self) -> int:
        return sum(a.nbytes for a in self.arrays)


def constants(cells: tuple[Cell, ...]) -> Constants:
    """The arrays of all constant cells; raises HloError for one that was left out of the text."""
    numbers: dict[int, int] = {}
    arrays: list[np.ndarray] = []
    known: dict[object, int] = {}
    for number, cell in enumerate(cells):
        if cell.region is not Region.CONSTANT or not cell.size:
            continue
        array = constant_array(cell)
        small = array.nbytes <= SHARED_BYTES
        key: object = array.tobytes() if small else array.__array_interface__["data"]
        if key not in known:
            known[key] = len(arrays)
            arrays.append(array)
        numbers[number] = known[key]
    return Constants(numbers, tuple(arrays))


def constant_array(cell: Cell) -> np.ndarray:
    """The array of a constant leaf; zeros for replica-id and partition-id on one device."""
    instruction = cell.instruction
    assert instruction is not None, "a constant cell has its instruction"
    if instruction.opcode != "constant":
        return np.zeros(max(1, cell.size), np.uint8)
    literal = instruction.attributes["literal"]
    assert isinstance(literal, Literal), "a constant holds a literal"
    leaf = list(_literal_leaves(literal))[cell.index]
    if leaf.value is None:
        raise HloError(
            "elided-constant",
            f"constant: the value of {instruction.name} is {{...}}, expected a value",
            instruction.span,
            help="hlo.fill_elided(module) or --fill-elided[=SEED] makes one up",
        )
    return np.ascontiguousarray(leaf.array)


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
