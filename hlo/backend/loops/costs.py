"""Costs: bytes that a kernel's loops move and operations that they compute, for the cost model.

An expression is evaluated once for each value of the loop variables in its index: once per row
where only row variables occur, once per element of a reduction inside the reduction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from hlo.backend.loops.domain import Domain
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.outputs import Output
from hlo.indexing.affine import Expr, loop_variables

# Operations of loops that a run of the program runs once, for which it is worth little to be fast:
# they take about a quarter of a microsecond, and LLVM some 20 for each line.
BRIEF_OPERATIONS = 1 << 13


def flops(domains: Sequence[Domain]) -> int:
    """Operations of all domains, in additions."""
    return sum(ops * evaluations(index) for d in domains for ops, index in d.trace.work)


def bytes_moved(
    expression: Expression, outputs: Sequence[Output], domains: Sequence[Domain]
) -> int:
    """Bytes read, of each operand at most its size, and bytes written (of a window: its own)."""
    sizes = {leaf.number: leaf.size for leaf in expression.leaves.values()}
    read: dict[int, int] = {}
    widths: dict[int, int] = {}
    for domain in domains:
        for position, leaf, width in {
            (r.position, r.leaf, r.dtype.item_bytes) for r in domain.trace.reads
        }:
            read[leaf] = read.get(leaf, 0) + evaluations([position])
            widths[leaf] = width
    reads = sum(min(count, sizes[leaf]) * widths[leaf] for leaf, count in read.items())
    return reads + sum(prod(o.dims) * o.array.dtype.item_bytes for o in outputs)


def evaluations(exprs: Iterable[Expr]) -> int:
    """How many values the loop variables in the indices take together."""
    return prod(v.high - v.low + 1 for v in loop_variables(exprs))
