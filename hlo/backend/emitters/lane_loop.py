"""while: elements that go through a loop by themselves, the state of so many lanes in registers.

Lanes that are evaluated together (several vectors, for their chains are long) run until the last
one is done. Those that are done stay what they are (analysis/while_loops/lane_loops.py). What a
trip reads of tables and rows is loaded there, and the rows that it writes are stored there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from math import prod

from hlo.analysis.while_loops.lane_loops import LaneLoop, body_and_condition, lane_loop
from hlo.analysis.while_loops.loop_state import element_index
from hlo.analysis.while_loops.row_loops import RowWrite
from hlo.backend.emitters import constants
from hlo.backend.emitters.applied import apply
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value
from hlo.backend.lanes import access, types
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import repeat_while
from hlo.backend.lanes.row_stores import store_all
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.expression import Path, unsupported
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.indexing.maps import cases
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Ints

State = dict[int, Lanes]  # elements of the loop's tuple


def while_(
    elemental: Elemental, loop: Instruction, indices: Sequence[Index], path: Path
) -> list[Lanes]:
    """An element of the state when the loop is over; all are made at once."""
    level = elemental.nest.path[-1]
    key = ("while", loop, tuple(indices), elemental.guards)
    if key not in level.memo:
        found = lane_loop(loop)
        if found is None:
            raise unsupported(loop)
        level.memo[key] = _LaneLoop(elemental, loop, found, indices).run()
    states: list[State] = level.memo[key]  # type: ignore[assignment]  # under this key
    return [state[path[0]] for state in states]


def run_rows(
    elemental: Elemental,
    loop: Instruction,
    found: LaneLoop,
    indices: Sequence[Index],
    rows: Mapping[int, Memory],
) -> list[State]:
    """The states at the end of a loop that writes rows; rows: where those that somebody reads lie,
    by element of the state.
    """
    return _LaneLoop(elemental, loop, found, indices, rows).run()


class _LaneLoop:
    """One loop being written, for the lanes at several indices."""

    def __init__(
        self,
        elemental: Elemental,
        loop: Instruction,
        found: LaneLoop,
        indices: Sequence[Index],
        rows: Mapping[int, Memory] | None = None,
    ) -> None:
        self.rows = rows or {}
        self.elemental, self.loop, self.found = elemental, loop, found
        self.nest: Nest = elemental.nest
        self.widths = [max((e.lanes for e in index), default=1) for index in indices]
        self.indices = indices
        body, condition = body_and_condition(loop)
        self.body, self.members = body, post_order(body)
        self.asked = post_order(condition)
        self.changed = sorted(found.changed)
        self.fixed: list[dict[Instruction, Lanes]] = []

    def run(self) -> list[State]:
        """The states at the end."""
        starts = [self._start(index, n) for index, n in zip(self.indices, self.widths, strict=True)]
        same = [{k: v for k, v in s.items() if k not in self.found.changed} for s in starts]
        all = [*self.members, *self.asked]
        self.fixed = [{} for _ in starts]
        self.fixed = [self._computed(all, state, n) for n, state in enumerate(same)]

        def test(values: list[Value]) -> Value:
            return self._goes_on(self._states(starts, values))

        def body(values: list[Value]) -> list[Value]:
            return self._values(map(self._trip, count(), self._states(starts, values)))

        values = repeat_while(self.nest, self._values(starts), test, body)
        return self._states(starts, values)

    def _start(self, index: Index, width: int) -> State:
        """The state of the lanes at an index before the loop."""
        found: State = {}
        (operand,) = self.loop.operands
        for k, shape in enumerate(self.loop.shape.elements):
            if k in self.found.tables or k in self.found.written:
                continue
            (lanes,) = self.elemental.lanes_at(operand, [index if shape.dims else ()], (k,))
            found[k] = self.elemental.splat(lanes, width) if shape.dims else lanes
        return found

    # -- what the loop carries -------------------------------------------------------------------

    def _carried(self) -> list[tuple[int, int]]:
        """(index, element) of all that changes; scalars are the same at all indices."""
        dims = [bool(shape.dims) for shape in self.loop.shape.elements]
        all = range(len(self.indices))
        return [(n, k) for k in self.changed for n in (all if dims[k] else all[:1])]

    def _values(self, states: Iterable[State]) -> list[Value]:
        all = list(states)
        return [v for n, k in self._carried() for v in types.parts(all[n][k])]

    def _states(self, starts: Sequence[State], values: Sequence[Value]) -> list[State]:
        """The states that are carried as these values."""
        states, rest = [dict(start) for start in starts], list(values)
        for n, k in self._carried():
            count = len(types.parts(starts[n][k]))
            lanes, rest = types.joined(rest[:count]), rest[count:]
            for state in states if not self.loop.shape.elements[k].dims else [states[n]]:
                state[k] = lanes
        return states

    # -- a trip ----------------------------------------------------------------------------------

    def _trip(self, number: int, state: State) -> State:
        """The state after a trip, at one of the indices."""
        values = self._computed(self.members, state, number)
        for k, memory in self.rows.items():
            self._write(self.found.written[k], memory, values, number)
        found: State = {}
        for k in self.changed:
            lanes = values[self.body.root.operands[k]]
            is_array = self.loop.shape.elements[k].dims
            found[k] = self.elemental.splat(lanes, self.widths[number]) if is_array else lanes
        return found

    def _goes_on(self, states: list[State]) -> Value:
        """Whether all terms of the condition hold."""
        w, predicate = self.nest.w, self.found.predicate
        values = list(map(partial(self._computed, self.asked), states, count()))
        terms = [_mask(values[0][term]) for term in self.found.terms]
        if predicate is not None:
            going = [
                self._live(_mask(self.elemental.splat(v[predicate], width)), index)
                for v, width, index in zip(values, self.widths, self.indices, strict=True)
            ]
            terms.append(w.any_lane(*going))
        first, *others = terms or [Value("true", "i1")]
        for term in others:
            first = w.binary("and", first, term)
        return first

    def _live(self, going: Value, index: Index) -> Value:
        """Without lanes that are no elements: these need not end."""
        w, elemental = self.nest.w, self.elemental
        masks = {m for e in index for a in e.terms if (m := getattr(a, "mask", None)) is not None}
        tests = [*masks, *([elemental.test(elemental.guards)] if elemental.guards else [])]
        for mask in tests:
            going = w.binary("and", going, w.splat(mask, going.lanes))
        return going

    def _computed(
        self, members: Sequence[Instruction], state: State, number: int
    ) -> dict[Instruction, Lanes]:
        """The values of body or condition on elements of the state at one of the indices; not what
        rests on others, or on reductions. What the loop does not change is known.
        """
        values = dict(self.fixed[number])
        for member in [m for m in members if m not in values]:
            match member.opcode:
                case "get-tuple-element":
                    if element_index(member) in state:
                        values[member] = state[element_index(member)]
                case "constant":
                    literal = member["literal"]
                    assert isinstance(literal, Literal), "a constant holds a literal"
                    values[member] = constants.scalar(self.nest.w, literal)
                case "parameter" | "tuple" | "reduce" | "dynamic-update-slice" | "concatenate":
                    pass
                case "dynamic-slice":
                    if all(o in values for o in member.operands[1:]):
                        values[member] = self._read(member, values, number)
                case "gather":
                    if member.operands[1] in values:
                        values[member] = self._looked_up(member, values, number)
                case _ if any(o not in values for o in member.operands):
                    pass
                case "copy" | "reshape" | "broadcast":
                    values[member] = values[member.operands[0]]
                case _:
                    operands = [values[o] for o in member.operands]
                    values[member] = self._applied(member, operands)
        return values

    def _applied(self, member: Instruction, operands: Sequence[Lanes]) -> Lanes:
        expression = self.elemental.expression
        if expression.underflows_in is not None:
            from hlo.backend.emitters import subnormal_products  # few programs underflow

            lists = ([lanes] for lanes in operands)
            found = subnormal_products.computed(self.nest, expression, member, *lists)
            if found is not None:
                return found[0]
        kinds = [o.shape.dtype for o in member.operands]
        return apply(self.nest, member, operands, kinds)

    def _looked_up(
        self, gather: Instruction, values: dict[Instruction, Lanes], number: int
    ) -> Lanes:
        """Elements of a table, at places that are clamped."""
        table, places = gather.operands
        own, lanes = self.indices[number], values[places]

        def start(_: int, __: Index, low: int, high: int) -> Expr:
            """The place, whatever the operand's index is: lanes hold their own alone."""
            if low == high:
                return affine.number(low)
            return self.elemental.place(lanes, places.shape.dtype, own, low, high)

        index = affine.reshaped(own, self.found.dims, gather.shape.dims)
        (case,) = cases(gather, index, start)
        (operand,) = self.loop.operands
        path = (element_index(table),)
        (found,) = self.elemental.lanes_at(operand, [case.index], path)
        return found

    # -- rows ------------------------------------------------------------------------------------

    def _read(self, slice: Instruction, values: dict[Instruction, Lanes], number: int) -> Lanes:
        """The lanes' elements of the row that a trip takes, or its only one."""
        table, *starts = slice.operands
        index = self._in_row(starts, slice.shape.dims, table.shape.dims, values, number)
        (operand,) = self.loop.operands
        (found,) = self.elemental.lanes_at(operand, [index], (element_index(table),))
        return found

    def _write(
        self, write: RowWrite, memory: Memory, values: dict[Instruction, Lanes], number: int
    ) -> None:
        """Store the lanes' elements of the row that a trip makes, piece by piece."""
        array, _, *starts = write.update.operands
        dims, places, lanes = array.shape.dims, [], []
        for k, piece in enumerate(write.pieces):
            index = list(self._in_row(starts, piece.shape.dims, dims, values, number))
            if len(write.pieces) > 1:
                index[write.dim] = affine.number(k)
            places.append(affine.linear(tuple(index), dims))
            lanes.append(self.elemental.splat(values[piece], self.widths[number]))
        if array.shape.dtype.is_complex:
            for place, value in zip(places, lanes, strict=True):
                access.store(self.nest, memory, place, value)
        else:
            store_all(self.nest, memory, places, lanes)

    def _in_row(
        self,
        starts: Sequence[Instruction],
        sizes: Ints,
        whole: Ints,
        values: dict[Instruction, Lanes],
        number: int,
    ) -> Index:
        """Where in an array the lanes' elements of a row of these sizes are; starts are clamped."""
        own: Index = tuple(affine.ZERO for _ in sizes)
        if prod(sizes) > 1:
            own = affine.reshaped(self.indices[number], self.found.dims, sizes)
        found = []
        for e, start, size, length in zip(own, starts, sizes, whole, strict=True):
            if size < length:
                dtype = start.shape.dtype
                e += self.elemental.place(values[start], dtype, (), 0, length - size)
            found.append(e)
        return tuple(found)


def _mask(lanes: Lanes) -> Value:
    """Lanes of truth values."""
    assert isinstance(lanes, Value), "truth values are not complex"
    return lanes
