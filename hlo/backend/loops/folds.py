"""Folds: the numbers by which it is chosen how a fold is made."""

from __future__ import annotations

from hlo.backend.loops.expression import Expression
from hlo.backend.loops.trace import trace
from hlo.indexing import affine, spaces
from hlo.indexing.affine import Expr, Index
from hlo.ir.instruction import Instruction
from hlo.ops.table import attribute

BLOCK = 256  # elements that one accumulator takes before it is added to the total
UNROLLED = 8  # folds up to this length are written without a loop,
SHORT = 16  # and up to this one where each lane folds a row of its own,
SHORT_PICKED = 24  # of which it picks elements
FEWEST_TURNED = 4
MOST_ROW_OPS, MOST_ROW_READS = 96, 24  # of such a row
MOST_LANES = 16  # of vectors that are turned in registers
_FEWEST = 4  # lanes of a vector of its own kind of register


def most_turned(reduce: Instruction) -> int:
    """How long rows are at most that lanes fold for themselves."""
    return SHORT_PICKED if reduce.shape.is_tuple else SHORT


def fitting(length: int, lanes: int) -> int:
    """The lanes of a loop's vectors: fewer than full ones where a short one is all there is.

    It needs no mask, so that LLVM may keep what a loop hands on in a register.
    """
    return length if 1 < length < lanes and length.bit_count() == 1 else lanes


def narrowed(length: int, lanes: int) -> int:
    """The fewest lanes, a power of two, that take a whole loop in one vector: divisions and roots
    take as long as their vectors are wide."""
    return min(lanes, max(_FEWEST, 1 << (length - 1).bit_length())) if length > 1 else lanes


def folded_extents(expression: Expression, reduce: Instruction, index: Index) -> tuple[int, ...]:
    """The dimensions that a reduce folds, as few loops, for one of its indices."""
    dims = reduce.operands[0].shape.dims
    dimensions = attribute(reduce, "dimensions")
    folded = [d for d in range(len(dims)) if d in dimensions]  # type: ignore[operator]  # INTS
    extents = tuple(dims[d] for d in folded)

    def met(inner: Index) -> list[Expr]:
        kept, own = iter(index), affine.reshaped(inner, extents, extents)
        places = dict(zip(folded, own, strict=True))
        at = tuple(places[d] if d in places else next(kept) for d in range(len(dims)))
        roots = reduce.operands[: len(reduce.operands) // 2]
        return trace(expression, [(x, at, ()) for x in roots]).expressions()

    return spaces.factored(extents, met)
