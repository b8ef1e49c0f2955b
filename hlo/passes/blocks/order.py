"""Block order: dots of large values put into the form in which blocks cut them.

    dot(x[rows, batch, depth], y) --in_block_order--> dot(transpose(x)[batch, rows, depth], y)
    dot(x, large) --in_block_order--> transpose(dot(large, x))
    dot(x, y) of bf16, a sum over blocks --in_block_order--> convert(dot(x, y) of f32)
    those that no block took --restored--> as they were

Blocks are contiguous parts of what they read. A product of large scores reads heads that lie side
by side in every row as one part a head once these are moved, which takes a pass over the operand,
little beside one over the scores. Sums over blocks have a type that holds parts of them as well as
the whole: dots of narrower types are rounded once.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from hlo.analysis.decisions import without_zeros
from hlo.analysis.fusibility import contraction_of
from hlo.analysis.large_values import LEAST_SAVED_BYTES, LEAST_SCORES_BYTES
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32
from hlo.ir.instruction import Attributes, Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.contraction import DotAttributes
from hlo.passes.blocks.epilogues import own_product
from hlo.passes.blocks.operands import KINDS, Operands, as_they_were, in_order, transposed, turn
from hlo.passes.patterns.matching import ints, is_plain

LEAST_RATIO = 4  # Of the bytes of the largest of the three to those of the operand that is moved.
Dims = tuple[int, ...]


class Ordered(Struct, frozen=True, eq=False):
    """Dots whose operands were moved, by what their attributes were; what moves operands, those of
    fusions too; dots that became others, by what makes the same of them, their shapes and
    attributes.
    """

    dots: dict[Instruction, Attributes]
    operands: Operands
    ends: dict[Instruction, tuple[Instruction, Shape, Attributes]]

    def is_one_dot(self, members: Collection[Instruction]) -> bool:
        """Whether the members are a dot and what makes the same of it: nobody else had the value
        between them, which the dot's own kernel keeps in registers.
        """
        found = (self.ends.get(member) for member in members)
        return len(members) == 2 and any(end is not None and end[0] in members for end in found)


def in_block_order(module: Module, computation: Computation) -> Ordered:
    """Move operands of dots over large values, and of fusions, where blocks could not cut them as
    they lie.
    """
    ordered = Ordered({}, Operands(), {})
    for one in [i for i in computation.instructions if i.attributes.get("kind") == "kOutput"]:
        if (dot := contraction_of(one)) is not None and _is_hidden_sum(dot):
            own_product(module, one, dot)
    for one in computation.instructions:
        if one.opcode == "dot" and _largest(one) >= LEAST_SAVED_BYTES and is_plain(one.shape):
            _exchange(computation, one, ordered)
            _widen(computation, one, ordered)
            for number in range(2):
                _order(computation, one, number, ordered)
        elif one.opcode == "fusion" and one.attributes.get("kind") in KINDS:
            most = max((leaf.size_bytes for leaf in one.shape.leaves()), default=0)
            if most >= LEAST_SAVED_BYTES:
                in_order(module, one, _wanted, most // LEAST_RATIO, ordered.operands)
    return ordered


def _is_hidden_sum(dot: Instruction) -> bool:
    """Whether blocks of scores would add up a product that is part of a fusion. Without a batch it
    is one of weights more often, whose fusion stays unless it is a move.
    """
    assert dot.computation is not None, "in a fusion"
    is_moved = dot.computation.root.opcode == "reshape" and len(dot.users) == 1
    return (
        dot.opcode == "dot"
        and _largest(dot) >= LEAST_SCORES_BYTES
        and any(_is_added_up(dot, n) for n in range(2))
        and (bool(_dims(dot, "lhs", "batch")) or is_moved)
    )


def restored(module: Module, computation: Computation, ordered: Ordered) -> None:
    """Undo it for those that are still there; a dot stays as it is if what makes the same of it is
    in a block by now.
    """
    moves = set(ordered.operands.made.values())
    for dot, attributes in ordered.dots.items():
        if dot in computation:
            operands = [o.operands[0] if o in moves else o for o in dot.operands]
            computation.set_operands(dot, operands)
            computation.set_attributes(dot, attributes)
    as_they_were(module, computation, ordered.operands)
    for dot, (end, shape, attributes) in ordered.ends.items():
        if dot in computation and end in computation:
            if end.opcode == "transpose":
                computation.set_operands(dot, reversed(dot.operands))
            computation.set_attributes(dot, attributes)
            dot.shape = shape
            computation.replace_uses(end, dot)
            computation.remove(end)


def _largest(dot: Instruction) -> int:
    return max(shape.size_bytes for shape in (dot.shape, *(o.shape for o in dot.operands)))


def _exchange(computation: Computation, dot: Instruction, ordered: Ordered) -> None:
    """A dot whose large operand is the right one, if rows of that give rows of the result."""
    left, right = (operand.shape for operand in dot.operands)
    others = max(left.size_bytes, dot.shape.size_bytes)
    if others * LEAST_RATIO > right.size_bytes or _is_added_up(dot, 1):
        return
    dims = DotAttributes.of(dot.attributes).dims
    batch, rows = len(dims.lhs_batch), len(dims.lhs_free(left.rank))
    columns = len(dims.rhs_free(right.rank))
    sizes, rank = dot.shape.dims, dot.shape.rank
    shape = dot.shape.with_dims((*sizes[:batch], *sizes[batch + rows :], *sizes[batch:][:rows]))
    turned = (*range(batch), *range(batch + columns, rank), *range(batch, batch + columns))
    attributes = dict(without_zeros(dot))
    for kind in ("batch", "contracting"):
        for side, other in (("lhs", "rhs"), ("rhs", "lhs")):
            attributes.pop(f"{side}_{kind}_dims", None)
            if found := _dims(dot, other, kind):
                attributes[f"{side}_{kind}_dims"] = found
    ends = (dot.shape, dot.attributes)
    computation.set_operands(dot, reversed(dot.operands))
    computation.set_attributes(dot, attributes)
    _end(computation, dot, shape, ("transpose", {"dimensions": turned}), ordered, ends)


def _widen(computation: Computation, dot: Instruction, ordered: Ordered) -> None:
    """A sum over blocks whose type holds less than single floats do."""
    dtype = dot.shape.dtype
    if dtype.is_float and dtype.bits < F32.bits and any(_is_added_up(dot, n) for n in range(2)):
        was = (dot.shape, dot.attributes)
        _end(computation, dot, dot.shape.with_dtype(F32), ("convert", {}), ordered, was)


def _end(
    computation: Computation,
    dot: Instruction,
    shape: Shape,
    made: tuple[str, Attributes],
    ordered: Ordered,
    was: tuple[Shape, Attributes],
) -> None:
    """The dot gets another shape, and its users what is made of it."""
    opcode, attributes = made
    dot.shape = shape
    end = computation.new(opcode, was[0], [dot], attributes, like=dot)
    computation.replace_uses(dot, end)
    ordered.ends[dot] = (end, *was)


def _order(computation: Computation, dot: Instruction, number: int, ordered: Ordered) -> None:
    """Move one operand of a dot, if that has to be and is little."""
    if (order := _wanted(dot, number)) is not None:
        ordered.dots.setdefault(dot, dot.attributes)
        turn(dot, number, order)
        moved = transposed(dot.operands[number], order, ordered.operands)
        computation.set_operand(dot, number, moved)


def _wanted(dot: Instruction, number: int) -> Dims | None:
    """The order in which blocks read an operand of a dot; None: as it is, or it is no little."""
    operand, side = dot.operands[number], ("lhs", "rhs")[number]
    batch, depth = (_dims(dot, side, kind) for kind in ("batch", "contracting"))
    others = [d for d in range(operand.shape.rank) if d not in (*batch, *depth)]
    if _is_added_up(dot, 1 - number):
        order = (*batch, *depth, *others)
    elif number == 0:
        order = (*batch, *others, *depth)
    else:
        order = (*batch, *(d for d in range(operand.shape.rank) if d not in batch))
    longer = [d for d in order if operand.shape.dims[d] != 1]
    if longer == sorted(longer) or not is_plain(operand.shape):
        return None
    return order if operand.shape.size_bytes * LEAST_RATIO <= _largest(dot) else None


def _is_added_up(dot: Instruction, number: int) -> bool:
    """Whether blocks that part the largest operand add up the product: its first dimension beside
    the batch is contracted.
    """
    operand, side = dot.operands[number], ("lhs", "rhs")[number]
    if operand.shape.size_bytes < _largest(dot):
        return False
    batch, depth = (_dims(dot, side, kind) for kind in ("batch", "contracting"))
    longer = (d for d, n in enumerate(operand.shape.dims) if n != 1 and d not in batch)
    return next(longer, None) in depth


def _dims(dot: Instruction, side: str, kind: str) -> Dims:
    name = f"{side}_{kind}_dims"
    return ints(dot, name) if name in dot.attributes else ()
