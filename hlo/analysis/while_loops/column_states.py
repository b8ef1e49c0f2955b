"""Column states: arrays of which a loop's trips read and write columns of the last dimension.

    while(x[m, n]), body: x[:, i] = f(x[:, i - 1], ..)

Such a column is one element of each row, in a line of memory of its own, of which the trip uses
nothing else: where the loop goes along the rows, every line comes as often as it has elements.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from hlo.analysis.while_loops.loop_state import ASSUMED_TRIPS, element_index, trip_count
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import COMMON, COMMON_LANES
from hlo.ops.indexing import ScatterAttributes
from hlo.ops.table import Trait, opcodes

READS = opcodes(Trait.CUTS) | opcodes(Trait.CUTS_AT)
LEAST_BYTES = 4 * COMMON.first_cache.bytes  # Of smaller arrays every line is near.
# To turn an array and turn it back reads and writes all of it twice, a half of it against the
# order of memory: columns of so many times its lines are worth that.
WORTH = 8


class ColumnState(Struct, frozen=True):
    """An element of the state. reads: its slices, at known places and at computed ones; writes:
    scatters and dynamic-update-slices, each of what the one before made.
    """

    element: int
    reads: tuple[Instruction, ...]
    writes: tuple[Instruction, ...]


def column_states(loop: Instruction) -> list[ColumnState]:
    """The arrays that best lie with the last dimension first while a loop runs. O(edges)."""
    trips = trip_count(loop)
    trips = ASSUMED_TRIPS if trips is None else trips
    shapes = enumerate(loop.shape.elements)
    found = (_column_state(loop, n) for n, shape in shapes if _is_large(shape))
    return [s for s in found if s is not None and _is_worth(s, loop.shape.elements, trips)]


def _is_large(shape: Shape) -> bool:
    is_plain = shape.is_array and not shape.is_dynamic and shape.without_layout() == shape
    return is_plain and shape.rank > 1 and shape.dims[-1] > 1 and shape.size_bytes >= LEAST_BYTES


def _is_worth(state: ColumnState, shapes: tuple[Shape, ...], trips: int) -> bool:
    shape = shapes[state.element]
    elements_of_line = max(1, COMMON.line_bytes // shape.dtype.item_bytes)
    columns = trips * (len(state.reads) + len(state.writes))
    return columns * elements_of_line >= WORTH * shape.dims[-1]


def _column_state(loop: Instruction, element: int) -> ColumnState | None:
    """The element, if nothing but columns of it is read and written."""
    body, condition = loop.called_computations()
    if any(element_index(u) == element for u in condition.parameters[0].users if _takes(u)):
        return None
    if not all(_takes(u) for c in (body, condition) for u in c.parameters[0].users):
        return None
    waiting = [u for u in body.parameters[0].users if element_index(u) == element]
    values, reads, writes = set(waiting), [], []
    while waiting:
        value = waiting.pop()
        for user in value.users:
            if user is body.root:
                continue
            if user.operands.count(value) != 1 or user.operands[0] is not value:
                return None
            if _reads_column(user, value):
                reads.append(user)
            elif _writes_column(user, value):
                writes.append(user)
                values.add(user)
                waiting.append(user)
            else:
                return None
    ends = [n for n, operand in enumerate(body.root.operands) if operand in values]
    if ends != [element]:
        return None
    return ColumnState(element, tuple(reads), tuple(writes)) if reads or writes else None


def _takes(user: Instruction) -> bool:
    """Whether it takes an element of a tuple."""
    return user.opcode == "get-tuple-element"


def _is_column(array: Instruction, sizes: tuple[int, ...]) -> bool:
    """Whether a window of an array is one of the last dimension's places, and long in others."""
    return len(sizes) == array.shape.rank and sizes[-1] == 1 and prod(sizes) >= COMMON_LANES


def _reads_column(user: Instruction, value: Instruction) -> bool:
    """Whether a slice, or one at places of which each is a number, takes a column."""
    counts = (1, 1 + value.shape.rank)
    is_cut = user.opcode in READS and len(user.operands) in counts
    return is_cut and _is_column(value, user.shape.dims)


def _writes_column(user: Instruction, value: Instruction) -> bool:
    """Whether an update or a scatter of one window writes a column."""
    if user.shape != value.shape:
        return False
    if user.opcode == "dynamic-update-slice":
        plain = len(user.operands) == 2 + value.shape.rank
        return plain and _is_column(value, user.operands[1].shape.dims)
    if user.opcode != "scatter" or len(user.operands) != 3:
        return False
    attributes: ScatterAttributes[Computation] = ScatterAttributes.of(user.attributes)
    updates, last = user.operands[2].shape, value.shape.rank - 1
    return (
        last in attributes.inserted_window_dims
        and len(attributes.update_window_dims) == updates.rank
        and not attributes.input_batching_dims
        and updates.size >= COMMON_LANES
    )
