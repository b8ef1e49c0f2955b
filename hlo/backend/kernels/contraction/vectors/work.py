"""The work of matrix-vector products, from their plans.

Dots | Axpys --vector_work--> Work, which speeds turn into time (backend/ir/work.py)
"""

from __future__ import annotations

from hlo.analysis.factors import ROWS_AT_ONCE
from hlo.backend.ir.kernel import Work
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.problem.work import computing, instructions, reach
from hlo.backend.kernels.contraction.vectors.matrix_prefetch import RowPrefetch
from hlo.backend.kernels.contraction.vectors.plan import (
    ACROSS,
    DEPTHS,
    at_once,
    dots_rows,
    is_dots,
    row_groups,
)

STORED = 2  # Products in the time of a store: one is begun in a cycle.
# The same of a vector of the matrix that is loaded and made a number of the ring. Zen 4: 0.8 of
# bf16 by one row, 0.4 by two, 0.75 and 0.9 of f32 by four and eight.
LOADED = 0.75


def vector_work(c: Contraction, ring: Ring) -> Work:
    """Of gemv.py's kernels: dots load rows and columns for their products, a group of rows after
    the other; axpys the columns, and sums that they store again after DEPTHS of them, which begin
    beside products. Parts of complex numbers are taken apart by an instruction each.
    """
    is_along = is_dots(c, ring)
    grouped = dots_rows(c, ring) if is_along else row_groups(c.m)
    groups = len(grouped) if is_along or ring.parts > 1 else 1
    rows, parts = -(-c.m // groups), ring.parts
    products = rows * parts**2 * instructions(ring)
    if is_along:
        columns = at_once(c, ring)
        vectors = c.n * -(-c.k // ring.lanes)
        loads = parts * (rows + columns) / columns
        products += 0 if parts == 1 else parts if c.lhs.apart else loads
        sums = float(c.batches * c.m * c.n * parts)
    else:
        vectors, loads, sums = c.k * -(-c.n // ring.lanes), 0.0, 0.0
        products += parts * (LOADED + (parts > 1))
    return Work(
        instructions=c.batches * vectors * groups * max(products, loads),
        sums=ACROSS * sums,
        moved=c.batches * c.k * c.n * c.rhs.read_bytes * groups,
        reach=reach(c),
        is_stream=is_along or _is_foreseen(c, ring),
    )


def _is_foreseen(c: Contraction, ring: Ring) -> bool:
    """Whether rows of a matrix come while products are made: between a vector of some rows and the
    next there are so few products that a processor sees it, or hints ask for it.
    """
    return c.m <= ROWS_AT_ONCE or RowPrefetch.of(c, ring.target.machine).line_bytes > 0


def word_stream_work(c: Contraction, ring: Ring, rows: int) -> Work:
    """Of word_stream.py's kernel, whose contraction counts depths of elements. Beside products a
    vector of words is a shuffle or two, of floats three operations that look at it, of which half
    find no room between products, and what computes it; a sum is read and stored once for DEPTHS
    rows.
    """
    assert ring.dot is not None, "of words"
    group = ring.dot.group
    words = c.batches * -(-c.k // group) * -(-c.n // ring.lanes)
    made = group / 2 + 1.5 * ring.rounds + group * computing(c.rhs)
    return Work(
        instructions=words * (rows * instructions(ring) + made + STORED * rows / DEPTHS),
        moved=c.batches * c.k * c.n * c.rhs.read_bytes,
        reach=reach(c),
        is_stream=_is_foreseen(c, ring),
    )
