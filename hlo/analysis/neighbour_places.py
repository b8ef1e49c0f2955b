"""Neighbour places: lookups in one array at the same place but for a few elements.

    gather(x, [y, clamp(j)]), gather(x, [y, clamp(j + 1)])   --neighbours-->   distances 0 and 1

Interpolation, splines and warps look up what lies on both sides of a place. Each place is clamped
for itself, and counted from the end where it is negative, so that the distances hold for nearly all
places, not for all: who relies on one tests it in the run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.indexing import GatherAttributes
from hlo.ops.table import Trait, has_trait

_MOST_BEHIND = 24  # Instructions between a lookup and the place that it is moved from.
_KEPT = Trait.REPEATS | Trait.REGROUPS

# A number in the run, and how much is added to it.
Stem = tuple[Instruction, int]


def neighbours(gather: Instruction) -> dict[Instruction, int]:
    """By gather: how many elements further along the array's last dimension it looks up than this
    one does, where no number is clamped. Itself among them, at 0."""
    table = gather.operands[0]
    own = _stems(gather)
    if own is None:
        return {gather: 0}
    found = {}
    for other in table.users:
        if other.opcode != "gather" or other.operands[0] is not table or not _alike(gather, other):
            continue
        stems = own if other is gather else _stems(other)
        if stems is None or any(a[0] is not b[0] for a, b in zip(stems, own, strict=True)):
            continue
        steps = [a[1] - b[1] for a, b in zip(stems, own, strict=True)]
        if not any(steps[:-1]):
            found[other] = steps[-1]
    return found


def _alike(a: Instruction, b: Instruction) -> bool:
    """Whether two lookups differ in their places alone."""
    if a.shape is not b.shape and a.shape != b.shape:
        return False
    kinds = GatherAttributes.of(a.attributes), GatherAttributes.of(b.attributes)
    return kinds[0] == kinds[1] and a.operands[1].shape == b.operands[1].shape


def _stems(gather: Instruction) -> list[Stem] | None:
    """What the numbers of a lookup's place are moved from, that along the last dimension last; None
    where that is not among them."""
    attributes = GatherAttributes.of(gather.attributes)
    table, places = gather.operands
    dims, vector = attributes.start_index_map, attributes.index_vector_dim
    if not dims or table.shape.rank - 1 not in dims:
        return None
    parts = _parts(places, vector, len(dims))
    if parts is None:
        return None
    order = sorted(range(len(dims)), key=dims.__getitem__)
    return [_stem(parts[k]) for k in order]


def _parts(places: Instruction, vector: int, count: int) -> Sequence[Instruction] | None:
    """The arrays of a place's numbers."""
    if count == 1:
        return (places,)
    is_joined = places.opcode == "concatenate" and len(places.operands) == count
    if not is_joined or places["dimensions"] != (vector,):
        return None
    return places.operands


def _stem(place: Instruction) -> Stem:
    """A number, what it is moved from and by how much: clamps and wraps are looked through."""
    moved = 0
    for _ in range(_MOST_BEHIND):
        following = _behind(place)
        if following is None:
            break
        place, step = following
        moved += step
    return place, moved


def _behind(place: Instruction) -> Stem | None:
    """One step of that; None where nothing moves it."""
    operands = place.operands
    if has_trait(place, _KEPT):
        return operands[0], 0
    match place.opcode:
        case "convert" if operands[0].shape.dtype.is_integral:
            return operands[0], 0
        case "select":  # counted from the end where it is negative
            return operands[2], 0
        case "clamp":
            return operands[1], 0
        case "maximum" | "minimum" if _number(operands[1]) is not None:
            return operands[0], 0
        case "add" | "subtract" as opcode:
            number = _number(operands[1])
            if number is not None:
                return operands[0], number if opcode == "add" else -number
    return None


def _number(value: Instruction) -> int | None:
    """The number that an array of integers has everywhere."""
    while value.opcode == "broadcast":
        (value,) = value.operands
    literal = value.attributes.get("literal")
    if value.opcode != "constant" or not isinstance(literal, Literal) or literal.is_elided:
        return None
    if not literal.is_uniform or not literal.shape.dtype.is_integral or not literal.shape.size:
        return None
    return int(np.asarray(literal.array).reshape(-1)[0])
