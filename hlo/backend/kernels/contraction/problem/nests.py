"""What the schedules of all contraction kernels have in common: names, caches, stores.

i counts rows, j columns, b batches, r, s, .. depths; p0 is the first operand.
"""

from __future__ import annotations

from math import prod

from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.loops.schedule import (
    Axis,
    Cache,
    Role,
    Storage,
    Store,
    axis_name,
)
from hlo.machine import aligned

FREE = {"lhs": "i", "rhs": "j"}
DEPTH = axis_name(0, "r")
SUMS = "sums"
_RESULT = 2  # The result's place in a product's table.


def cached(name: str, dims: tuple[int, ...], ring: Ring) -> Cache:
    """Ring scalars in scratch, in whole lines."""
    size_bytes = aligned(prod(dims) * ring.scalar_bytes)
    return Cache(name, dims, ring.dtype_name, size_bytes, Storage.SCRATCH)


def stored(c: Contraction, epilogue: Epilogue | None, sums: str = SUMS) -> Store:
    """Finished sums, or what an epilogue makes of them."""
    sizes = {"b": c.batches, "i": c.m, "j": c.n}
    index = tuple(name for name, size in sizes.items() if size > 1)
    if epilogue is None:
        return Store("result", _RESULT, index, sums)
    reads = tuple(f"p{n}" for n in epilogue.others)
    return Store("result", _RESULT, index, f"epilogue of {sums}", reads=reads)


def batches(c: Contraction) -> Axis:
    """One after the other."""
    return Axis("b", c.batches, Role.PARALLEL)
