"""The loops that add up the parts of a product, as a schedule has them.

Contraction, how many parts --parts_schedule--> LoopSchedule
"""

from __future__ import annotations

from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.nests import DEPTH, SUMS, stored
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.products.split_k import block_sizes_of, rows_of
from hlo.backend.loops.one_nest import around, schedule_of
from hlo.backend.loops.schedule import Axis, Loop, LoopSchedule, Reduction, Role, Tail


def parts_schedule(
    c: Contraction, ring: Ring, parts: int, epilogue: Epilogue | None
) -> LoopSchedule:
    """The loops of split_k.py's `sum_kernel`."""
    (run, rows, step), lanes = rows_of(c), ring.lanes
    tail = Tail.PREDICATED if run % lanes else Tail.NONE
    vectors = Axis("j", run, Role.VECTOR, lanes, lanes, tail)
    depth = Axis(DEPTH, parts, Role.REDUCED, blocks=tuple(block_sizes_of(parts)))
    made = Reduction(SUMS, "add", (depth,), lanes, reads=("parts",))
    own = Axis("i", min(step, rows), Role.SERIAL, of=rows if rows % step else 0)
    body = around((own,), (Loop(vectors, (made, stored(c, epilogue))),))
    axes = (Axis("i", rows, Role.PARALLEL, step, tail=Tail.SHORT if rows % step else Tail.NONE),)
    return schedule_of(axes, around(axes, body), (f"sums: of {parts} parts of depth",))
