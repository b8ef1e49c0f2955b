"""while-loop-dot-batching: one product before a loop for the rows that its iterations would take.

    for i: dot(x[i], w)          =>   y = dot(x, w);  for i: y[i]
    for i: dot(convert(x[i]), w) =>   y = dot(convert(x), w);  for i: y[i]

A recurrent network multiplies each step's input by the same matrix. With few rows a step that reads
the matrix once per iteration, at the cache's bandwidth; all rows together are arithmetic. And a
product that is too short to be worth a second thread in each step is worth it for all steps at
once: a step of LSTM with 8 rows of 64 numbers took 15 % less, of 128 numbers 20 %. Longer products
are as fast in the loop, which keeps no result of theirs. What a row is computed of leaves with the
product (trip_rows.py): embeddings of tokens, casts, masks.
"""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.while_loops.loop_state import element_index, extend, start_of
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Ints, Shape
from hlo.ops.making import make, make_constant
from hlo.passes.liveness import awaited
from hlo.passes.loop_making import home
from hlo.passes.patterns.contraction import exchanged_attributes
from hlo.passes.patterns.matching import ints
from hlo.passes.simplify.dce import drop_dead_instructions
from hlo.passes.while_loops.loop_shrinking import without_unread
from hlo.passes.while_loops.trip_products import Limits, loops_with_dots
from hlo.passes.while_loops.trip_rows import Taken, TripRows

MOST_ROWS_A_TRIP = 2  # All rows are multiplied, whether a trip takes them or not.
SIDES = ("lhs", "rhs")


class Batch(Struct, frozen=True):
    """A dot of the body that moves: its operand `side` is a row that the trip takes, the other one
    is w, an element of the state.
    """

    dot: Instruction
    side: int
    taken: Taken
    w: Instruction


def while_loop_dot_batching(
    module: Module,
    *,
    max_rows: int = 4,
    max_ops: int = 1 << 21,
    max_bytes: int = 1 << 24,
    least_bytes: int = 1 << 13,
) -> bool:
    """Multiply the rows of a stacked input by an unchanging matrix before the loop, at once.

    max_rows: rows of one iteration, where it has more than max_ops operations; max_bytes: of the
    product, and of its rows where they are computed; least_bytes: of the matrix. Only for loops
    with a known number of iterations, all of which take different rows. O(edges).
    """
    changed = False
    limits = Limits(max_rows, max_ops, max_bytes, least_bytes)
    for loop, known in loops_with_dots(module):
        rows = TripRows(loop, known)
        found = [batch for batch in _batches(rows) if _pays(batch, rows, limits)]
        if found:
            _move(rows, found)
            changed = True
    return changed


def _pays(batch: Batch, rows: TripRows, limits: Limits) -> bool:
    """Whether all rows at once take less than a trip's in each trip."""
    product = _product_shape(batch).size_bytes
    computed = rows.computed_bytes(batch.dot.operands[batch.side])
    if batch.taken.rows > MOST_ROWS_A_TRIP * rows.known.iterations:
        return False
    return limits.admit(_rows(batch), _operations(batch), batch.w.shape, product, computed)


def _batches(rows: TripRows) -> list[Batch]:
    """The dots of a loop's body that multiply a row by what no trip changes."""
    kept = awaited(rows.body)
    found = []
    for dot in rows.body.instructions:
        if dot.opcode != "dot" or dot in kept or "control-predecessors" in dot.attributes:
            continue
        if dot.get("sparsity"):
            continue
        for side in (0, 1):
            w = dot.operands[1 - side]
            taken = rows.taken(dot.operands[side]) if w in rows.unchanged else None
            if taken is not None:
                found.append(Batch(dot, side, taken, w))
                break
    return found


def _contracting(dot: Instruction, side: int) -> Ints:
    return ints(dot, f"{SIDES[side]}_contracting_dims")


def _batched(dot: Instruction, side: int) -> Ints:
    name = f"{SIDES[side]}_batch_dims"
    return ints(dot, name) if name in dot.attributes else ()


def _free(batch: Batch, side: int) -> Ints:
    """The sizes of an operand's dimensions that the result has of it alone."""
    shared = {*_contracting(batch.dot, side), *_batched(batch.dot, side)}
    return tuple(n for d, n in enumerate(batch.dot.operands[side].shape.dims) if d not in shared)


def _rows(batch: Batch) -> int:
    return prod(_free(batch, batch.side))


def _operations(batch: Batch) -> int:
    """Of one iteration's product."""
    contracted = _contracting(batch.dot, 0)
    depth = prod(batch.dot.operands[0].shape.dims[d] for d in contracted)
    return 2 * depth * batch.dot.shape.size


def _product_dims(batch: Batch) -> tuple[Ints, int]:
    """The dimensions of the product of all rows, and which of them counts the iterations."""
    of_batch = len(_batched(batch.dot, 0))
    at = of_batch + (len(_free(batch, 0)) if batch.side else 0)
    dims = batch.dot.shape.dims
    return (*dims[:at], batch.taken.rows, *dims[at:]), at


def _product_shape(batch: Batch) -> Shape:
    return Shape.array(batch.dot.shape.dtype, _product_dims(batch)[0])


def _move(rows: TripRows, batches: list[Batch]) -> None:
    """Products before the loop, their rows in it."""
    batches = [_exchanged(rows.body, batch) for batch in batches]
    starts = [_product(rows, batch) for batch in batches]
    loop, elements = extend(rows.loop, starts)
    for batch, element in zip(batches, elements, strict=True):
        _take_row(rows.body, batch, element)
    drop_dead_instructions(rows.body)
    without_unread(loop)


def _exchanged(body: Computation, batch: Batch) -> Batch:
    """The same product with a row that is a vector first, so that the rows of all trips are rows of
    their product, too.
    """
    if batch.side == 0 or _free(batch, 1):
        return batch
    x, y = batch.dot.operands
    attributes = exchanged_attributes(batch.dot)
    dot = make(batch.dot, "dot", y, x, shape=batch.dot.shape, **attributes)
    body.replace_uses(batch.dot, dot)
    return replace(batch, dot=dot, side=0)


def _product(rows: TripRows, batch: Batch) -> Instruction:
    """The product of all rows, from the loop's start state."""
    dot, side, loop = batch.dot, batch.side, rows.loop
    outside = [rows.before(dot.operands[side]), start_of(loop, element_index(batch.w))]
    operands = outside if side == 0 else outside[::-1]
    attributes = dict(dot.attributes)
    for kind in ("contracting", "batch"):
        name = f"{SIDES[side]}_{kind}_dims"
        if name in attributes:
            attributes[name] = tuple(d + 1 for d in ints(dot, name))
    return home(loop).new("dot", _product_shape(batch), operands, attributes, like=dot)


def _take_row(body: Computation, batch: Batch, element: Instruction) -> None:
    """This iteration's part of the product, in the dot's place."""
    dims, counted = _product_dims(batch)
    sizes = tuple(1 if d == counted else n for d, n in enumerate(dims))
    dot, at = batch.dot, batch.taken.at
    zero = make_constant(dot, Literal.of(np.zeros((), at.shape.dtype.numpy), at.shape))
    starts = [at if d == counted else zero for d in range(len(dims))]
    row = make(dot, "dynamic-slice", element, *starts, dynamic_slice_sizes=sizes)
    body.replace_uses(dot, make(dot, "reshape", row, shape=dot.shape))
