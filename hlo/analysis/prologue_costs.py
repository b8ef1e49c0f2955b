"""What it costs that a product computes its factor where it reads it, beside keeping it in memory.

    Prologue, the products that read it --is_cheaper--> whether they had better compute it

Ops count as additions of a vector, as op_cost has them. A factor in memory costs a write, and a
read in each product; the arrays behind it are read in any case, by each product that computes it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from msgspec import Struct

from hlo.analysis.factors import MOVES, ROWS_AT_ONCE, STREAMED_ROWS
from hlo.analysis.fusibility import op_cost
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Opaque, Variable
from hlo.indexing.maps import cases
from hlo.indexing.queries import operand_dims
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON_LANES

LEAST_COLUMNS = 64  # It does where rows of it are at least so many columns.
# Ops of an element that take as long as to write it and to read it again.
MOST_REPEATED = 8
# An element of more ops waits for these and not for its bytes; its code would stand in each place
# that reads the factor.
MOST_COST = 20


class Prologue(Struct, frozen=True):
    """A factor, what it is computed by, and the arrays that this reads."""

    factor: Instruction
    members: Collection[Instruction]
    arrays: Collection[Instruction]


def is_cheaper(prologue: Prologue, products: Sequence[tuple[Instruction, Instruction]]) -> bool:
    """Whether to compute a factor in all products that read it takes less than to keep it in
    memory. products: dots, and what the factor is called there.
    """
    counts = [_evaluations(dot, own) for dot, own in products]
    if not counts or not all(counts) or not _is_in_runs(prologue):
        return False
    shape, uses = prologue.factor.shape, len(counts)
    cost = sum(op_cost(m) for m in prologue.members if 2 * m.shape.size >= shape.size)
    arrays = [array.shape for array in prologue.arrays]
    read = sum(min(a.size, shape.size) * a.dtype.item_bytes for a in arrays)
    kept = read + (1 + uses) * shape.size_bytes
    repeated = (sum(counts) - 1) * cost
    return cost <= MOST_COST and repeated <= MOST_REPEATED and uses * read <= kept


def _evaluations(dot: Instruction, factor: Instruction) -> int:
    """How often a product would compute each element of a factor; 0: it had better not."""
    if dot.opcode != "dot" or dot.get("sparsity") or dot.operands[0] is dot.operands[1]:
        return 0
    side = dot.operands.index(factor)
    rows = _extent(dot, side)
    if is_streamed(dot, factor):
        return -(-rows // ROWS_AT_ONCE)
    return int(side == 1 and rows > STREAMED_ROWS and _is_packed(dot))


def _runs_along_depth(dot: Instruction, side: int) -> bool:
    """Whether neighbours of a factor in memory are neighbours in depth."""
    _, contracted = operand_dims(dot)
    return any(pair[side] == dot.operands[side].shape.rank - 1 for pair in contracted)


def _is_packed(dot: Instruction) -> bool:
    """Whether many rows meet columns that are better computed while they are packed: those of which
    each depth is a run. Columns that run along depth are packed in squares, a fourth of a vector a
    row, and those of a batch (attention's keys and values) stay near: both are computed in whole
    vectors, a block of them at a time in a cache (block-fusion).
    """
    own, _ = operand_dims(dot)
    return all(None in pair for pair in own) and not _runs_along_depth(dot, 1)


def _extent(dot: Instruction, without: int) -> int:
    """Elements of the result in each batch that differ by the place in one factor alone."""
    own, _ = operand_dims(dot)
    pairs = zip(dot.shape.dims, own, strict=True)
    return prod(n for n, pair in pairs if pair[without] is None)


def is_streamed(dot: Instruction, factor: Instruction) -> bool:
    """Whether few rows meet the factor, which is larger, as it lies: both run along depth, or its
    columns are long runs of one depth.
    """
    side = dot.operands.index(factor)
    rows, columns = _extent(dot, side), _extent(dot, 1 - side)
    if not 0 < rows <= min(STREAMED_ROWS, columns):
        return False
    last, other = factor.shape.rank - 1, dot.operands[1 - side].shape
    _, contracted = operand_dims(dot)
    ends = {pair[side]: pair[1 - side] for pair in contracted}
    if last in ends:
        return side == 0 or rows == 1 or ends[last] == other.rank - 1
    return len(contracted) == 1 and factor.shape.dims[-1] >= LEAST_COLUMNS


def _is_in_runs(prologue: Prologue) -> bool:
    """Whether a vector of neighbours of a factor is made of neighbours in each of its arrays, or of
    one element.
    """
    factor = prologue.factor
    *outer, columns = factor.shape.dims
    if columns < COMMON_LANES:
        return False
    vectors = Variable("vector", 0, columns // COMMON_LANES - 1)
    lane = Variable("lane", 0, COMMON_LANES - 1, lanes=COMMON_LANES)
    row = [affine.of(Variable(f"d{d}", 0, size - 1)) for d, size in enumerate(outer)]
    waiting: list[tuple[Instruction, Index]] = [
        (factor, (*row, affine.of(vectors) * COMMON_LANES + Expr({lane: 1}, 0)))
    ]
    seen: set[tuple[Instruction, Index]] = set()
    while waiting:
        value, index = top = waiting.pop()
        if top in seen:
            continue
        seen.add(top)
        if value in prologue.arrays:
            if affine.stride(affine.linear(index, value.shape.dims)) not in (0, 1):
                return False
        elif value.opcode in MOVES:
            waiting += _moved(value, index)
        else:
            waiting += [(o, index if o.shape.dims else ()) for o in value.operands]
    return True


def _moved(value: Instruction, index: Index) -> list[tuple[Instruction, Index]]:
    """What of the operands of a moving op is read at an index."""
    found: list[tuple[Instruction, Index]] = []

    def start(operand: int, at: Index, low: int, high: int) -> Expr:
        if low == high:
            return affine.number(low)
        found.append((value.operands[operand], at))
        lanes = max((e.lanes for e in at), default=1)
        return affine.of(Opaque("start", low, high, at, lanes=lanes))

    return found + [(value.operands[c.operand], c.index) for c in cases(value, index, start)]
