"""The work of a contraction by what is summed alone, which estimates of all its kernels start from.

Contraction --reach, factor_bytes--> bytes;  Ring --instructions--> how many a multiply-add takes
"""

from __future__ import annotations

from math import prod

from hlo.analysis.fusibility import op_cost
from hlo.backend.ir.kernel import Work
from hlo.backend.kernels.contraction.problem.axes import Contraction, Operand
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.ir.graph import computed_from


def instructions(ring: Ring) -> float:
    """Of a product of vectors and its sum: one that does both, or two."""
    if ring.dot is not None:
        return 1.0 if ring.dot.adds else 2.0
    if ring.rounds:
        return 1.0 if ring.fused else 2.0
    return 1.5  # A product and a sum of integers, which begin on different ports.


def computing(factor: Operand) -> float:
    """Operations on vectors that an element of a factor takes to be computed, as op_cost has them;
    0 of one in memory. What is computed for few elements stands outside of the loops.
    """
    if factor.prologue is None:
        return 0.0
    root, arrays = factor.prologue.root, factor.prologue.arrays
    members = (m for m in computed_from(root) if m not in arrays)
    return sum(op_cost(m) for m in members if 2 * m.shape.size >= root.shape.size)


def reach(c: Contraction) -> int:
    """Bytes of the factors and the result."""
    return sum(
        (factor_bytes(c, "lhs"), factor_bytes(c, "rhs"), c.batches * c.m * c.n * c.out.item_bytes)
    )


def factor_bytes(c: Contraction, side: str) -> int:
    """Bytes of a factor's elements, each counted once."""
    axes = (*c.batch, *c.rows, *c.columns, *c.depth)
    sizes = [a.size for a in axes if getattr(a, side)]
    factor: Operand = getattr(c, side)
    return round(prod(sizes) * factor.read_bytes)


def copy_work(moved: int) -> Work:
    """Of a kernel that checks a factor or makes it ready: a stream of bytes that it reads and
    writes, of all that the product works on.
    """
    return Work(moved=moved, is_stream=True)
