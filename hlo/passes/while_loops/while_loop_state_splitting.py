"""while-loop-state-splitting: a loop's array of few rows is as many arrays.

    while(y[2, n]), body: stack(f(y[0], y[1]), g(y[0], y[1]))
      =>  while(y0[n], y1[n]), body: (f(y0, y1), g(y0, y1))

Systems of equations are written like that: an array's rows are the unknowns, a step takes them
apart and stacks what they become. Element by element nothing else is read, so that the loop whose
state are the rows is one kernel (`while-loop-interchange`), and the stacks are never made.
"""

from __future__ import annotations

from hlo.analysis.reducers import reducer_of
from hlo.analysis.while_loops.loop_state import element_index, extend, start_of
from hlo.analysis.while_loops.row_states import RowStates, row_dims, row_states
from hlo.attributes.slices import SliceDim, slice_dims
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant
from hlo.passes.loop_making import extensible_loops, home
from hlo.passes.patterns.matching import ints
from hlo.passes.simplify.algsimp import algsimp


def while_loop_state_splitting(module: Module) -> bool:
    """Take apart a loop's arrays of few rows where each row's elements then go through it alone.

    O(instructions of bodies).
    """
    changed = False
    for loop in extensible_loops(module):
        for states in row_states(loop):
            loop = _split(loop, states)
            changed = True
    if changed:
        algsimp(module)  # rows of stacks of rows
    return changed


def _split(loop: Instruction, states: RowStates) -> Instruction:
    """The loop with the rows as elements of its state; what the arrays were is handed on."""
    shapes = {k: loop.shape.elements[k] for k in states.elements}
    starts = [
        _as_row(_cut(start_of(loop, k), r, d), d)
        for k, d in states.elements.items()
        for r in range(shapes[k].dims[d])
    ]
    count = len(loop.shape.elements)
    loop, elements = extend(loop, starts)
    body = loop.called_computations()[0]
    rows: dict[int, list[Instruction]] = {}
    for k, d in states.elements.items():
        rows[k], elements = elements[: shapes[k].dims[d]], elements[shapes[k].dims[d] :]
    apart = _Apart(states, rows)
    apart.replace_ends()
    places = [(k, r) for k in rows for r in range(len(rows[k]))]
    for at, (k, r) in enumerate(places):
        body.set_operand(body.root, count + at, apart.row(body.root.operands[k], r))
    for k in rows:
        before = make(body.parameters[0], "get-tuple-element", body.parameters[0], index=k)
        body.set_operand(body.root, k, before)
    _restack(loop, states, shapes, {place: count + at for at, place in enumerate(places)})
    return loop


def _restack(
    loop: Instruction, states: RowStates, shapes: dict[int, Shape], at: dict[tuple[int, int], int]
) -> None:
    """Whoever reads one of the arrays after the loop reads the rows' stack."""
    computation = loop.computation
    assert computation is not None, "a loop stands in a computation"
    for reader in tuple(loop.users):
        k = element_index(reader)
        if k not in shapes:
            continue
        d = states.elements[k]
        one = shapes[k].with_dims(n if e != d else 1 for e, n in enumerate(shapes[k].dims))
        rows = [
            make(reader, "get-tuple-element", loop, index=at[k, r])
            for r in range(shapes[k].dims[d])
        ]
        pieces = [make(reader, "reshape", row, shape=one) for row in rows]
        stack = make(reader, "concatenate", *pieces, dimensions=(d,))
        computation.replace_uses(reader, stack)
        computation.remove(reader)


def _cut(array: Instruction, row: int, dim: int) -> Instruction:
    """One row of an array, its dimension kept."""
    taken = tuple(
        SliceDim(row, row + 1) if d == dim else SliceDim(0, n)
        for d, n in enumerate(array.shape.dims)
    )
    return make(array, "slice", array, slice=taken)


def _as_row(piece: Instruction, dim: int) -> Instruction:
    """A piece of one row without the dimension that counts rows."""
    shape = Shape.array(piece.shape.dtype, row_dims(piece.shape, dim))
    return make(piece, "reshape", piece, shape=shape)


class _Apart:
    """The rows of a body's members, each written once. rows: those of the state's elements."""

    def __init__(self, states: RowStates, rows: dict[int, list[Instruction]]) -> None:
        self.states = states
        self.known: dict[tuple[Instruction, int], Instruction] = {}
        for member in states.members:
            if member.opcode == "get-tuple-element":
                for r, row in enumerate(rows[element_index(member)]):
                    self.known[member, r] = row

    def row(self, value: Instruction, r: int) -> Instruction:
        """Row r of a member. The operands' rows are written first, without recursion."""
        stack = [(value, r)]
        while stack:
            top = stack[-1]
            missing = [n for n in self._needed(*top) if n not in self.known]
            if missing and top not in self.known:
                stack += missing
                continue
            stack.pop()
            if top not in self.known:
                self.known[top] = self._written(*top)
        return self.known[value, r]

    def _needed(self, value: Instruction, r: int) -> list[tuple[Instruction, int]]:
        """The rows of operands that a row is made of."""
        match value.opcode:
            case "broadcast" | "constant" | "get-tuple-element" | "reshape":
                return []
            case "concatenate":
                piece, place = self._piece(value, r)
                return [(piece, place)] if piece in self.states.members else []
            case "slice":
                rows = slice_dims(value.attributes)[self.states.members[value]]
                return [(value.operands[0], rows.start + r * rows.stride)]
            case "transpose":
                return [(value.operands[0], r)]
        return [(o, r) for o in value.operands if o.shape.dims]

    def _piece(self, stack: Instruction, r: int) -> tuple[Instruction, int]:
        """The operand of a concatenate that holds a row, and where in it."""
        dim = self.states.members[stack]
        for piece in stack.operands:
            count = piece.shape.dims[dim]
            if r < count:
                return piece, r
            r -= count
        raise AssertionError("a row of a concatenate lies in one of its operands")

    def _written(self, value: Instruction, r: int) -> Instruction:
        dim = self.states.members[value]
        shape = Shape.array(value.shape.dtype, row_dims(value.shape, dim))
        match value.opcode:
            case "broadcast":
                return _broadcast_row(value, r, dim, shape)
            case "constant":
                return _part(value, r, dim)
            case "reshape":
                return _read_row(value, r, dim, shape)
            case "concatenate" | "slice" | "transpose":
                needed = self._needed(value, r)
                if needed:
                    return self.known[needed[0]]
                return _as_row(self._piece(value, r)[0], dim)
        operands = [self.known[o, r] if o.shape.dims else o for o in value.operands]
        return home(value).new(value.opcode, shape, operands, value.attributes, like=value)

    def replace_ends(self) -> None:
        """Let slices of one row be that row, and sums over rows be sums of them, in order."""
        for end in self.states.ends:
            (source, *first) = end.operands
            dim = self.states.members[source]
            if end.opcode == "slice":
                row = self.row(source, slice_dims(end.attributes)[dim].start)
                new = make(end, "reshape", row, shape=end.shape)
            else:
                (opcode,) = reducer_of(end).opcodes
                new = make(end, "broadcast", first[0], shape=end.shape, dimensions=())
                for r in range(source.shape.dims[dim]):
                    new = make(end, opcode, new, self.row(source, r))
            home(end).replace_uses(end, new)
        for stored in self.states.stored:
            self._stack(stored)

    def _stack(self, stored: Instruction) -> None:
        """Rows that are written to another array, as a stack of its shape."""
        (source,) = stored.operands
        dim = self.states.members[source]
        one = stored.shape.with_dims(
            1 if d == dim + 1 else n for d, n in enumerate(stored.shape.dims)
        )
        rows = [self.row(source, r) for r in range(source.shape.dims[dim])]
        pieces = [make(stored, "reshape", row, shape=one) for row in rows]
        stack = make(stored, "concatenate", *pieces, dimensions=(dim + 1,))
        home(stored).replace_uses(stored, stack)


def _broadcast_row(value: Instruction, r: int, dim: int, shape: Shape) -> Instruction:
    """A broadcast's row: of the operand, or of the operand's part where the rows differ."""
    (operand,) = value.operands
    dims = ints(value, "dimensions")
    if dim in dims:
        operand = _part(operand, r, dims.index(dim))
    rest = tuple(d - (d > dim) for d in dims if d != dim)
    return make(value, "broadcast", operand, shape=shape, dimensions=rest)


def _read_row(value: Instruction, r: int, dim: int, shape: Shape) -> Instruction:
    """A row's row: of the array that it is read of, at one place more that is known."""
    (taken,) = value.operands
    array, *starts = taken.operands
    dtype = starts[dim + 1].shape.dtype
    starts[dim + 1] = make_constant(value, Literal.of(r, Shape.array(dtype, ())))
    sizes = tuple(1 if d == dim + 1 else n for d, n in enumerate(taken.shape.dims))
    row = make(value, "dynamic-slice", array, *starts, dynamic_slice_sizes=sizes)
    return make(value, "reshape", row, shape=shape)


def _part(value: Instruction, r: int, dim: int) -> Instruction:
    """A row of what is no member; of a constant a constant, which a loop over lanes can hold."""
    if value.opcode != "constant":
        return _as_row(_cut(value, r, dim), dim)
    literal = value["literal"]
    assert isinstance(literal, Literal), "a constant holds a literal"
    shape = Shape.array(value.shape.dtype, row_dims(value.shape, dim))
    return make_constant(value, Literal.of(literal.array.take(r, dim), shape))
