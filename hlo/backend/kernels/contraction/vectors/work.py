"""The work of matrix-vector products, from their plans.

Dots | Axpys --vector_work--> Work, which speeds turn into time (backend/ir/work.py)
"""

from __future__ import annotations

from hlo.backend.ir.kernel import Work
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.problem.work import instructions, reach
from hlo.backend.kernels.contraction.vectors.plan import (
    ACROSS,
    DEPTHS,
    at_once,
    is_dots,
    row_groups,
)


def vector_work(c: Contraction, ring: Ring) -> Work:
    """Of gemv.py's kernels: dots load rows and columns for their products; axpys the columns, and
    sums that they store again, each with a product of every depth.
    """
    rows, parts = len(row_groups(c.m)[0]), ring.parts
    products = rows * parts**2 * instructions(ring)
    if is_dots(c, ring):
        columns = at_once(c, ring)
        vectors = c.n * -(-c.k // ring.lanes)
        loads = parts * (rows + columns) / columns
        sums = float(c.batches * c.m * c.n * parts)
    else:
        vectors, loads, sums = c.k * -(-c.n // ring.lanes), 0.0, 0.0
        products += parts * (1 + 2 * rows / DEPTHS)
    groups = len(row_groups(c.m))
    return Work(
        instructions=c.batches * vectors * groups * max(products, loads),
        sums=ACROSS * sums,
        moved=c.batches * c.k * c.n * c.rhs.read_bytes * groups,
        reach=reach(c),
        is_stream=True,
    )
