"""while-loop-state-transposer: arrays that a loop goes along by columns lie with these as rows.

    while(x[m, n]), body: x[:, i] = f(x[:, i - 1])
      =>  transpose(while(transpose(x)), body: x[i, :] = f(x[i - 1, :]))

Recurrences along the last dimension (tridiagonal solvers, recursive filters, alternating
directions) take an element of every row in each trip. Turned once, a trip reads and writes whole
rows, and the loop can be one kernel whose lanes go through all of it (`while-loop-interchange`).
"""

from __future__ import annotations

from hlo.analysis.while_loops.column_states import ColumnState, column_states
from hlo.analysis.while_loops.loop_state import element_index, extend, start_of
from hlo.attributes.slices import slice_dims
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Ints
from hlo.ops.indexing import ScatterAttributes
from hlo.ops.making import make, transposed
from hlo.passes.liveness import awaited
from hlo.passes.loop_making import extensible_loops, home
from hlo.passes.simplify.algsimp import algsimp
from hlo.passes.while_loops.loop_shrinking import shrink


def while_loop_state_transposer(module: Module) -> bool:
    """Turn a loop's arrays whose columns a trip reads and writes. O(edges of bodies)."""
    changed = False
    for loop in extensible_loops(module):
        states = column_states(loop)
        if states and not _waits(states):
            _turn(loop, states)
            changed = True
    if changed:
        algsimp(module)  # arrays that one loop turns back and the next one turns again
    return changed


def _waits(states: list[ColumnState]) -> bool:
    """Whether a control dependence names an access."""
    accesses = [a for s in states for a in (*s.reads, *s.writes)]
    return any("control-predecessors" in a.attributes or a in awaited(home(a)) for a in accesses)


def _turn(loop: Instruction, states: list[ColumnState]) -> None:
    """The loop with further elements, which are the arrays with the last dimension first."""
    count = len(loop.shape.elements)
    starts = [start_of(loop, s.element) for s in states]
    loop, elements = extend(loop, [transposed(x, _last_first(x.shape.rank)) for x in starts])
    body, _ = loop.called_computations()
    for n, (state, element) in enumerate(zip(states, elements, strict=True)):
        last = _turned(body, state, element)
        before = make(body.parameters[0], "get-tuple-element", body.parameters[0],
                      index=state.element)  # fmt: skip
        body.set_operand(body.root, count + n, last)
        body.set_operand(body.root, state.element, before)
        for reader in [u for u in loop.users if element_index(u) == state.element]:
            whole = make(reader, "get-tuple-element", loop, index=count + n)
            back = transposed(whole, _first_last(whole.shape.rank))
            home(reader).replace_uses(reader, back)
            home(reader).remove(reader)
    shrink(loop, {s.element for s in states})  # with what read and wrote the arrays as they were


def _turned(body: Computation, state: ColumnState, element: Instruction) -> Instruction:
    """What the element is after a trip, whose reads and writes are of the turned array."""
    of = {u: element for u in body.parameters[0].users if element_index(u) == state.element}
    value = body.root.operands[state.element]
    for write in state.writes:
        of[write] = _written(write, of[write.operands[0]])
    for read in state.reads:
        row = _row(read, of[read.operands[0]])
        body.replace_uses(read, make(read, "reshape", row, shape=read.shape))
    return of[value]


def _row(read: Instruction, array: Instruction) -> Instruction:
    """What a slice takes, of the turned array."""
    if read.opcode == "slice":
        *ranges, own = slice_dims(read.attributes)
        return make(read, "slice", array, slice=(own, *ranges))
    *others, last = read.operands[1:]
    dims = read.shape.dims
    sizes = (dims[-1], *dims[:-1])
    return make(read, "dynamic-slice", array, last, *others, dynamic_slice_sizes=sizes)


def _written(write: Instruction, array: Instruction) -> Instruction:
    """An update of the turned array."""
    if write.opcode == "dynamic-update-slice":
        _, update, *starts = write.operands
        dims = update.shape.dims
        shape = update.shape.with_dims((dims[-1], *dims[:-1]))
        row = make(write, "reshape", update, shape=shape)
        return make(write, "dynamic-update-slice", array, row, starts[-1], *starts[:-1])
    attributes: ScatterAttributes[Computation] = ScatterAttributes.of(write.attributes)
    rank = array.shape.rank
    inserted = sorted((d + 1) % rank for d in attributes.inserted_window_dims)
    mapped = [(d + 1) % rank for d in attributes.scatter_dims_to_operand_dims]
    changed = {
        **write.attributes,
        "inserted_window_dims": tuple(inserted),
        "scatter_dims_to_operand_dims": tuple(mapped),
    }
    operands = (array, *write.operands[1:])
    return home(write).new("scatter", array.shape, operands, changed, like=write)


def _last_first(rank: int) -> Ints:
    return (rank - 1, *range(rank - 1))


def _first_last(rank: int) -> Ints:
    return (*range(1, rank), 0)
