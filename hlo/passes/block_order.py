"""Block order: small operands of dots put into the order in which blocks cut them.

    dot(x[rows, batch, depth], y) --in_block_order--> dot(transpose(x)[batch, rows, depth], y)
    those that no block took --restored--> dot(x, y)

Blocks are contiguous parts of what they read. A product of large scores reads heads that lie side
by side in every row as one part a head once these are moved, which takes a pass over the operand,
little beside one over the scores.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo.analysis.block_size import LEAST_SAVED_BYTES
from hlo.ir.computation import Computation
from hlo.ir.instruction import Attributes, Instruction
from hlo.passes.patterns.matching import ints, is_plain

LEAST_RATIO = 4  # Of the bytes of the largest of the three to those of the operand that is moved.
Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ordered:
    """Dots whose operands were moved, by what their attributes were, and what moves them."""

    dots: dict[Instruction, Attributes]
    moved: dict[tuple[Instruction, Dims], Instruction]


def in_block_order(computation: Computation) -> Ordered:
    """Move operands of dots over large values where blocks could not cut them as they lie."""
    ordered = Ordered({}, {})
    for dot in computation.instructions:
        if dot.opcode == "dot" and _largest(dot) >= LEAST_SAVED_BYTES and is_plain(dot.shape):
            for number in range(2):
                _order(computation, dot, number, ordered)
    return ordered


def restored(computation: Computation, ordered: Ordered) -> None:
    """Undo it for the dots that are still there."""
    moves = set(ordered.moved.values())
    for dot, attributes in ordered.dots.items():
        if dot in computation:
            operands = [o.operands[0] if o in moves else o for o in dot.operands]
            computation.set_operands(dot, operands)
            computation.set_attributes(dot, attributes)
    for transpose in moves:
        if not transpose.users:
            computation.remove(transpose)


def _largest(dot: Instruction) -> int:
    return max(shape.size_bytes for shape in (dot.shape, *(o.shape for o in dot.operands)))


def _order(computation: Computation, dot: Instruction, number: int, ordered: Ordered) -> None:
    """Move one operand of a dot, if that has to be and is little."""
    operand, side = dot.operands[number], ("lhs", "rhs")[number]
    batch, depth = (_dims(dot, side, kind) for kind in ("batch", "contracting"))
    order = _wanted(operand.shape.rank, batch, depth, is_left=number == 0)
    longer = [d for d in order if operand.shape.dims[d] != 1]
    if longer == sorted(longer) or not is_plain(operand.shape):
        return
    if operand.shape.size_bytes * LEAST_RATIO > _largest(dot):
        return
    moved = ordered.moved.get((operand, order))
    if moved is None:
        shape = operand.shape.with_dims(operand.shape.dims[d] for d in order)
        moved = computation.new("transpose", shape, [operand], {"dimensions": order}, like=dot)
        ordered.moved[operand, order] = moved
    ordered.dots.setdefault(dot, dot.attributes)
    attributes = dict(dot.attributes)
    attributes[f"{side}_contracting_dims"] = tuple(order.index(d) for d in depth)
    if batch:
        attributes[f"{side}_batch_dims"] = tuple(range(len(batch)))
    computation.set_operand(dot, number, moved)
    computation.set_attributes(dot, attributes)


def _wanted(rank: int, batch: Dims, depth: Dims, *, is_left: bool) -> Dims:
    """The batch, then, of a left side, what is not contracted; the others as they stand."""
    last = depth if is_left else ()
    return (*batch, *(d for d in range(rank) if d not in (*batch, *last)), *last)


def _dims(dot: Instruction, side: str, kind: str) -> Dims:
    name = f"{side}_{kind}_dims"
    return ints(dot, name) if name in dot.attributes else ()
