"""dot-strength-reduction: short dots are sums of products, which fuse with what is around them.

    dot(x, y)  =>  reduce-add over k of x[b, m, k] * y[b, n, k]

A tile of a product is vectors of columns and walks along depth; where there are few of both, most
of its lanes and instructions do nothing. Measured against tiles on AVX-512 (Zen 4), in f32, 65,536
rows: 0.12 to 0.6 of the time for depths of 2 and up to 8 columns, 0.65 to 0.9 for 4, 0.6 to 0.95
for 8 and 12; from 16 columns or depths on it takes longer. Thousands of matrices of 2x2 to
8x8: 0.25 to 0.85.

Where the rows lie in memory whatever is done, no loop around the sums would compute them, and of
two columns and more tiles are as fast or faster: on Zen 5, 65,536 rows of 2 to 12 numbers and 2 to
8 columns, 0.3 to 1.0 of the time of sums with vectors of 64 bytes, 0.5 to 1.05 with vectors of 32
(f64 0.5 to 1.05). One column takes 1.6 to 2.3 times as long.

In each of several matrices one row of weights for a few rows of the other factor (an image resized,
a mean of neighbours) is a sum by lanes of columns: 0.7 to 0.9 of the time of tiles for depths of 2
to 12 and 64 columns, and what is gathered or scaled is read where it lies.

A dot without rows and columns of its own (every dimension is of both factors) has no tiles at all.
Where depth does not run along both factors, a sum over strides is best taken by lanes of results;
so is one over rows that fill no vector, which are turned in registers. Measured against one row at
a time, 224 and 16,384 rows of f32: 0.03 to 0.3 of the time for depths of 2 to 12 with vectors of
64 bytes, 0.2 to 1.1 with vectors of 32, 0.25 to 1.2 with vectors of 16.

A vector that meets matrices which lie apart has no tiles either: where depth is between the
matrices and their columns (a solver's stages, `[batch, stage, state]`), a product packs all columns
side by side first. Measured on Zen 4 up to a vector of columns, of half a vector where numbers are
widened, and 4,000 stages: 0.07 to 0.9 of the time, where each matrix has a vector of its own 0.5 to
1.02. Sums of 100,000 are cut into parts whose lanes lie apart, and take 2.5 to 8 times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo.analysis.fusibility import SCALAR_STRUCTURE, is_fusible
from hlo.indexing.queries import OperandDims, operand_dims
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Ints, Shape
from hlo.machine import CHOICES
from hlo.ops.making import make
from hlo.passes.liveness import replace, replaceable
from hlo.passes.patterns.matching import is_plain, splat

MOST_DEPTH = 12
MOST_COLUMNS = 8
MOST_STAGES = 4096
LEAST_ROWS = 256  # Of fewer, sums take LLVM less time.


def dot_strength_reduction(module: Module) -> bool:
    """Write dots of few columns and a short depth, or of no rows and columns, as sums of products.

    dot(x, y) => reduce(spread(x) * spread(y)), in f32 where the type is narrower. O(instructions).
    """
    found = [i for i in replaceable(module, "dot") if _is_short(i)]
    for dot in found:
        replace(dot, _sum_of_products(module, dot))
    return bool(found)


def _is_short(dot: Instruction) -> bool:
    shapes = [dot.shape, *(o.shape for o in dot.operands)]
    if not all(map(is_plain, shapes)) or not all(s.size for s in shapes) or dot.get("algorithm"):
        return False
    if len({_kind(s.dtype) for s in shapes}) > 1 or dot.shape.dtype.is_pred:
        return False
    own, contracted = operand_dims(dot)
    if all(None not in pair for pair in own):
        return _fills_no_vector(dot, contracted) or not _runs_along_depth(dot, contracted)
    for side in (0, 1):
        if (
            _weighs_few_rows(dot, own, contracted, side)
            or _is_vector_of_stages(dot, own, contracted, side)
            or _is_batch_of_lanes(dot, own, contracted, side)
        ):
            return True
    columns = prod(n for n, (left, _) in zip(dot.shape.dims, own, strict=True) if left is None)
    if not 1 < _depth(dot, contracted) <= MOST_DEPTH or columns > MOST_COLUMNS:
        return False
    return columns == 1 or not _is_matrix_in_memory(dot, own, contracted)


def _is_matrix_in_memory(
    dot: Instruction, own: Sequence[OperandDims], contracted: Sequence[OperandDims]
) -> bool:
    """Whether many rows along depth are there in any case, and no loop around the sums would
    compute them.
    """
    matrix = dot.operands[0]
    if any(None not in pair for pair in own) or not _runs_along(matrix, 0, contracted):
        return False
    rows = matrix.shape.size // _depth(dot, contracted)
    while matrix.opcode in ("reshape", "bitcast"):
        (matrix,) = matrix.operands
    is_there = matrix.opcode in SCALAR_STRUCTURE or not is_fusible(matrix)
    return rows >= LEAST_ROWS and is_there


def _depth(dot: Instruction, contracted: Sequence[OperandDims]) -> int:
    return prod(dot.operands[0].shape.dims[d] for d, _ in contracted if d is not None)


def _fills_no_vector(dot: Instruction, contracted: Sequence[OperandDims]) -> bool:
    """Whether a row is shorter than the longest vector there is."""
    row = _depth(dot, contracted) * _accumulated(dot.shape.dtype).component.item_bytes
    return row < max(CHOICES["vector_bytes"])


def _is_vector(own: Sequence[OperandDims], side: int) -> bool:
    """Whether this factor is a vector, or one for each of a batch."""
    return all(pair[1 - side] is not None for pair in own)


def _weighs_few_rows(
    dot: Instruction, own: Sequence[OperandDims], contracted: Sequence[OperandDims], side: int
) -> bool:
    """Whether this factor is a vector for each of a batch, which weighs the other's few rows,
    whose columns lie side by side.

        f32[b,k] . f32[b,k,n]
    """
    batches = prod(n for n, pair in zip(dot.shape.dims, own, strict=True) if None not in pair)
    is_few = batches > 1 and 1 < _depth(dot, contracted) <= MOST_DEPTH
    last = dot.operands[1 - side].shape.rank - 1
    return is_few and _is_vector(own, side) and last not in {pair[1 - side] for pair in contracted}


def _is_vector_of_stages(
    dot: Instruction, own: Sequence[OperandDims], contracted: Sequence[OperandDims], side: int
) -> bool:
    """Whether this factor is a vector (of each of a batch), and the other's depth lies between
    whole matrices and short rows of columns, at most a vector of them.

        f32[k] . f32[b,k,n],  f32[b,k] . f32[b,k,n]
    """
    if not _is_vector(own, side) or not 1 < _depth(dot, contracted) <= MOST_STAGES:
        return False
    matrix = dot.operands[1 - side].shape
    depths = [pair[1 - side] for pair in contracted]
    first = min((d for d in depths if d is not None), default=0)
    last = max((d for d in depths if d is not None), default=0)
    wide = _accumulated(dot.shape.dtype)
    row = prod(matrix.dims[last + 1 :]) * wide.component.item_bytes
    longest = max(CHOICES["vector_bytes"]) // (1 if wide is dot.shape.dtype else 2)
    return prod(matrix.dims[:first]) > 1 and last + 1 < matrix.rank and row <= longest


def _is_batch_of_lanes(
    dot: Instruction, own: Sequence[OperandDims], contracted: Sequence[OperandDims], side: int
) -> bool:
    """Whether this factor is a vector for each of a batch, whose vectors and matrices lie as lanes:
    neighbours in memory are neighbours in the batch, in both factors.

        f32[k,b] . f32[m,k,b]
    """
    if not _is_vector(own, side) or _depth(dot, contracted) <= 1:
        return False
    lefts, rights = (x.shape.rank - 1 for x in dot.operands)
    return (lefts, rights) in own


def _runs_along_depth(dot: Instruction, contracted: Sequence[OperandDims]) -> bool:
    """Whether both factors' neighbours in memory are neighbours in depth."""
    return all(_runs_along(x, side, contracted) for side, x in enumerate(dot.operands))


def _runs_along(factor: Instruction, side: int, contracted: Sequence[OperandDims]) -> bool:
    return factor.shape.rank - 1 in {pair[side] for pair in contracted}


def _kind(dtype: DType) -> tuple[bool, bool]:
    return dtype.is_float, dtype.component is not dtype


def _sum_of_products(module: Module, dot: Instruction) -> Instruction:
    own, contracted = operand_dims(dot)
    pairs = _summed_in_order(dot, own, contracted)
    wide = _accumulated(dot.shape.dtype)
    lhs, rhs = (o.shape.dims for o in dot.operands)
    extents = [lhs[left] if left is not None else rhs[right or 0] for left, right in pairs]
    whole = Shape.array(wide, extents)
    factors = [_spread(dot, side, pairs, whole) for side in (0, 1)]
    product = make(dot, "multiply", *factors)
    scalar = Shape.array(wide, ())
    dimensions = tuple(d for d, pair in enumerate(pairs) if pair in contracted)
    from hlo.passes.loop_making import reducer  # few programs have dots so short

    adder = reducer(module, dot, "add", scalar)
    start = splat(dot, 0, scalar)
    total = make(dot, "reduce", product, start, dimensions=dimensions, to_apply=adder)
    kept = [pair for pair in pairs if pair not in contracted]
    made = _converted(total, dot.shape.dtype)
    if kept == own:
        return made
    back = tuple(map(kept.index, own))
    return make(dot, "transpose", made, shape=dot.shape, dimensions=back)


def _summed_in_order(
    dot: Instruction, own: Sequence[OperandDims], contracted: Sequence[OperandDims]
) -> list[OperandDims]:
    """The factors' dimensions in the order in which products are summed: the result's and depth's,
    or a matrix's own where its batch lies as lanes.
    """
    pairs = [*own, *contracted]
    for side in (0, 1):
        if _is_batch_of_lanes(dot, own, contracted, side):
            return sorted(pairs, key=lambda pair: pair[1 - side] or 0)
    return pairs


def _accumulated(dtype: DType) -> DType:
    """The type in which sums are kept."""
    return dt.F32 if dtype.is_float and dtype.bits < 32 else dtype


def _spread(dot: Instruction, side: int, pairs: Sequence[OperandDims], whole: Shape) -> Instruction:
    """A factor at every index of the result and of depth. pairs: the factors' dimensions there."""
    dims = [(pair[side], at) for at, pair in enumerate(pairs)]
    places = {d: at for d, at in dims if d is not None}
    x = _converted(dot.operands[side], whole.dtype, like=dot)
    order: Ints = tuple(sorted(places, key=places.__getitem__))
    if order != tuple(range(x.shape.rank)):
        turned = Shape.array(x.shape.dtype, [x.shape.dims[d] for d in order])
        x = make(dot, "transpose", x, shape=turned, dimensions=order)
    return make(dot, "broadcast", x, shape=whole, dimensions=tuple(sorted(places.values())))


def _converted(x: Instruction, dtype: DType, like: Instruction | None = None) -> Instruction:
    if x.shape.dtype is dtype:
        return x
    return make(like or x, "convert", x, shape=Shape.array(dtype, x.shape.dims))
