"""Matrix pairs: a matrix by a vector and another vector by that matrix, which one pass computes.

    fusion {d = dot(A, x), over A's columns; y = dot(z or d, A), over A's rows; (d, y)} --> Pair

The matrix is read once where two kernels would read it twice.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.ir.dtype import F32, F64
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import COMMON
from hlo.ops.contraction import DotAttributes

# Smaller matrices stay in a cache between two products.
LEAST_BYTES = COMMON.last_cache.bytes
LEAST_ROWS, LEAST_COLUMNS = 1024, 128
# Rows that both products take one after the other, and of which cache they may take a half.
ROWS = COMMON.first_cache.ways
MOST_ROWS_BYTES = COMMON.second_cache.bytes // 2


class Pair(Struct, frozen=True):
    """Two products of vectors with one matrix, which read it together.

    along: the product that sums along rows of the matrix; down: the one that adds rows up.
    """

    along: Instruction
    down: Instruction

    @property
    def matrix(self) -> Instruction:
        """What both multiply."""
        return matrix_of(self.along)

    @property
    def is_chained(self) -> bool:
        """Whether the second product's vector is the first one's result."""
        return vector_of(self.down) is self.along


def pair_of(fusion: Instruction) -> Pair | None:
    """The two products that a fusion is made of, if it is made of such alone."""
    if fusion.opcode != "fusion" or fusion.attributes.get("kind") != "kOutput":
        return None
    (callee,) = fusion.called_computations()
    root = callee.root
    if root.opcode != "tuple" or len(root.operands) != 2:
        return None
    along, down = root.operands
    if not (is_over(along, 1) and is_over(down, 0) and matrix_of(along) is matrix_of(down)):
        return None
    given = {matrix_of(along), vector_of(along), vector_of(down)} - {along}
    return Pair(along, down) if all(o.opcode == "parameter" for o in given) else None


def is_over(dot: Instruction, dimension: int) -> bool:
    """Whether a product of a matrix and a vector sums over a dimension of the matrix."""
    if dot.opcode != "dot" or sorted(o.shape.rank for o in dot.operands) != [1, 2]:
        return False
    attributes = DotAttributes.of(dot.attributes)
    shapes = (dot.shape, *(o.shape for o in dot.operands))
    if attributes.algorithm != "unset" or not all(map(_is_plain, shapes)):
        return False
    sides = (attributes.lhs_contracting_dims, attributes.rhs_contracting_dims)
    side = dot.operands.index(matrix_of(dot))
    return len({s.dtype for s in shapes}) == 1 and tuple(sides[side]) == (dimension,)


def _is_plain(shape: Shape) -> bool:
    return shape.dtype in (F32, F64) and not shape.is_dynamic and shape.without_layout() == shape


def matrix_of(dot: Instruction) -> Instruction:
    """The factor of two dimensions."""
    return next(o for o in dot.operands if o.shape.rank == 2)


def vector_of(dot: Instruction) -> Instruction:
    """The factor of one dimension."""
    return next(o for o in dot.operands if o.shape.rank == 1)


def is_worth_one_pass(matrix: Shape) -> bool:
    """Whether a matrix comes from beyond a core's cache, and some of its rows stay in there."""
    rows, columns = matrix.dims
    row_bytes = columns * matrix.dtype.item_bytes
    return (
        matrix.size_bytes >= LEAST_BYTES
        and rows >= LEAST_ROWS
        and columns >= LEAST_COLUMNS
        and ROWS * row_bytes <= MOST_ROWS_BYTES
    )
