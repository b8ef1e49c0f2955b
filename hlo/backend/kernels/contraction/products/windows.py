"""Windows: a factor whose rows overlap is read where it lies, a run of rows at a time.

Contraction, Ring --in_runs--> the same, whose outer axes of rows are part of the batch
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.kernels.contraction.problem.axes import Axis, Contraction, merged, only
from hlo.backend.kernels.contraction.problem.ring import Ring, is_plain
from hlo.backend.kernels.contraction.products.planning import LEAST_ROWS, WIDE


def in_runs(c: Contraction, ring: Ring) -> Contraction:
    """Rows that lie at one distance, the axes outside of them being part of the batch: a factor of
    overlapping windows is then read where it lies. For few columns, which would use a copy little.
    """
    *outer, run = merged(only(c.rows, "lhs")) or (Axis(1),)
    depth = merged(only(c.depth, "lhs"))
    if not outer or c.is_diagonal or c.n > WIDE or run.size < LEAST_ROWS:
        return c
    if len(depth) > 3 or not is_plain(c.lhs.dtype, ring.factors) or run.size != c.rows[-1].size:
        return c
    return replace(c, batch=(*c.batch, *c.rows[:-1]), rows=c.rows[-1:])
