"""Values of a loop's trips, for all trips at once.

    convert(x[i]) * w     =>     convert(x) * broadcast(w), of which a trip takes row i

A trip that counts takes rows of arrays that the loop never changes. What it computes of such rows,
of what no trip changes and of constants, element by element or by lookups in a table, is a row
itself: the same ops on the whole arrays give it for all trips.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from msgspec import Struct

from hlo.analysis.fusibility import is_elementwise
from hlo.analysis.while_loops.loop_state import Counter, element_index, start_of, unchanged_elements
from hlo.analysis.while_loops.row_updates import is_counter, row_order
from hlo.ir.graph import clone_instruction, computed_from, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints, Shape
from hlo.ops.making import make
from hlo.ops.table import Trait, has_trait
from hlo.passes.liveness import awaited
from hlo.passes.loop_making import home
from hlo.passes.patterns.matching import ints

MOST_MEMBERS = 32  # Ops behind a row, which are computed before the loop as well as in it.


class Taken(Struct, frozen=True):
    """Which row of how many a trip takes."""

    rows: int
    at: Instruction


class TripRows:
    """What values of a loop's body are rows of arrays that there are before the loop."""

    def __init__(
        self, loop: Instruction, known: Counter, given: Mapping[Instruction, Taken] | None = None
    ) -> None:
        """given: values of which somebody else has the rows of all trips."""
        self.loop, self.known = loop, known
        self._given = given or {}
        self.body = loop.called_computations()[0]
        self.unchanged = unchanged_elements(self.body)
        self._kept = awaited(self.body)
        self._found: dict[Instruction, Taken | None] = {}  # None: the same in each trip
        for value in post_order(self.body):
            self._see(value)

    def taken(self, value: Instruction) -> Taken | None:
        """What row a value is, if it is one; None otherwise."""
        return self._found.get(value) if self._is_short(value) else None

    def computed_bytes(self, value: Instruction) -> int:
        """How many bytes the rows of all trips have that no array holds already."""
        taken = self._found[value]
        assert taken is not None, "a row"
        is_held = all(m in self.unchanged or _is_held(m) for m in self._members(value))
        return 0 if is_held else taken.rows * value.shape.size_bytes

    def before(
        self, value: Instruction, given: Mapping[Instruction, Instruction] | None = None
    ) -> Instruction:
        """The rows of all trips, computed outside of the loop: their number is the first dimension.
        given: those of the given values."""
        made = dict(given or {})
        for member in self._members(value):
            if member not in made:
                made[member] = self._made(member, made)
        return made[value]

    def _members(self, value: Instruction) -> Iterator[Instruction]:
        """A row and what it is computed from before the loop, operands before users."""
        return computed_from(value, read=self._operands)

    def _operands(self, member: Instruction) -> tuple[Instruction, ...]:
        """What is asked of the operands before the loop: not which row a trip takes."""
        if member in self.unchanged or member in self._given:
            return ()
        return member.operands[:1] if member.opcode == "dynamic-slice" else member.operands

    def _is_short(self, value: Instruction) -> bool:
        if self._found.get(value) is None:
            return False
        return len(list(islice(self._members(value), MOST_MEMBERS + 1))) <= MOST_MEMBERS

    def _see(self, value: Instruction) -> None:
        if value in self._kept or "control-predecessors" in value.attributes:
            return
        if value in self._given:
            self._found[value] = self._given[value]
            return
        if value in self.unchanged or value.opcode == "constant":
            self._found[value] = None
            return
        if value.opcode == "dynamic-slice":
            taken = self._row(value)
            if taken is not None:
                self._found[value] = taken
            return
        if not value.operands or not all(o in self._found for o in value.operands):
            return
        of_rows = [o for o in value.operands if self._found[o] is not None]
        rows = {self._found[o] for o in of_rows}
        is_static = value.shape.is_array and not value.shape.is_dynamic
        if len(rows) < 2 and is_static and _is_by_row(value, of_rows):
            self._found[value] = next(iter(rows), None)

    def _row(self, cut: Instruction) -> Taken | None:
        """A whole row of an array along its first dimension; every row is taken by a trip, or the
        counter says which.
        """
        source, *starts = cut.operands
        if source not in self.unchanged or len(starts) != source.shape.rank:
            return None
        rows = source.shape.dims[0]
        if cut["dynamic_slice_sizes"] != (1, *source.shape.dims[1:]):
            return None  # windows of full width are clamped to 0 whatever their start
        known = self.known
        is_inside = known.first >= 0 and known.limit <= rows
        is_taken = is_counter(starts[0], self.body, known) and is_inside
        if not is_taken and row_order(starts[0], self.body, known, rows) is None:
            return None
        return Taken(rows, starts[0])

    def _made(self, member: Instruction, made: dict[Instruction, Instruction]) -> Instruction:
        """A member before the loop, for all trips where it is a row."""
        computation = home(self.loop)
        if member in self.unchanged:
            return start_of(self.loop, element_index(member))
        taken = self._found[member]
        if taken is None:
            operands = tuple(made[o] for o in member.operands)
            return computation.adopt(clone_instruction(member, operands))
        shape = Shape.array(member.shape.dtype, (taken.rows, *member.shape.dims))
        if _is_held(member):
            return _reshaped(self.loop, made[member.operands[0]], shape)
        operands = tuple(self._whole(member, o, taken, made) for o in member.operands)
        attributes = _of_all_rows(member)
        return computation.new(member.opcode, shape, operands, attributes, like=member)

    def _whole(
        self,
        user: Instruction,
        operand: Instruction,
        taken: Taken,
        made: dict[Instruction, Instruction],
    ) -> Instruction:
        """An operand of all rows: what all have alike stands in each, but for a table, and for one
        number that all elements are chosen by or held between.
        """
        is_one = operand.shape.rank < user.shape.rank and is_elementwise(user)
        if self._found[operand] is not None or is_one or has_trait(user, Trait.PICKS):
            return made[operand]
        dims, whole = tuple(range(1, operand.shape.rank + 1)), made[operand]
        if whole.opcode == "broadcast":
            dims, whole = _behind(ints(whole, "dimensions")), whole.operands[0]
        shape = Shape.array(operand.shape.dtype, (taken.rows, *operand.shape.dims))
        return make(self.loop, "broadcast", whole, shape=shape, dimensions=dims)


def _is_held(row: Instruction) -> bool:
    """Whether an array holds the row: it is cut out there, or has another shape."""
    return row.opcode in ("dynamic-slice", "reshape")


def _reshaped(like: Instruction, whole: Instruction, shape: Shape) -> Instruction:
    """Elements of an array in their order, in another shape."""
    while whole.opcode == "reshape":
        (whole,) = whole.operands
    return whole if whole.shape == shape else make(like, "reshape", whole, shape=shape)


def _is_by_row(value: Instruction, of_rows: list[Instruction]) -> bool:
    """Whether a value's rows are computed from rows of those operands that have some."""
    if value.opcode == "gather":
        return value.operands[0] not in of_rows and not value.get("operand_batching_dims")
    if value.opcode in ("reshape", "broadcast"):
        return True
    # A row's one number is no number of all rows.
    return is_elementwise(value) and all(o.shape.rank == value.shape.rank for o in of_rows)


def _of_all_rows(member: Instruction) -> dict[str, object]:
    """The attributes of a member with a dimension before its own."""
    attributes = dict(member.attributes)
    if member.opcode == "broadcast":
        attributes["dimensions"] = (0, *_behind(ints(member, "dimensions")))
    if member.opcode == "gather":
        vector = member["index_vector_dim"]
        assert isinstance(vector, int), "a dimension"
        attributes["offset_dims"] = _behind(ints(member, "offset_dims"))
        attributes["index_vector_dim"] = vector + 1
        attributes.pop("indices_are_sorted", None)  # those of each row may be
    return attributes


def _behind(dims: Ints) -> Ints:
    return tuple(d + 1 for d in dims)
