"""The shape of a tile of sums that stays in registers while depth runs.

rows, columns, Ring --tile_shape--> rows of the tile, vectors of a row
"""

from __future__ import annotations

from hlo.backend.kernels.contraction.ring import Ring
from hlo.machine import COMMON

MOST_ROWS = 24


def tile_shape(
    m: int, n: int, ring: Ring, *, diagonal: bool = False, most: int = MOST_ROWS
) -> tuple[int, int]:
    """Rows, so many at most, and vectors of the register tile that needs the fewest cycles for all
    of the result.
    """
    best: tuple[float, int, int] | None = None
    for vectors in (1, 2, 3, 4, 6, 8):
        limit = (ring.registers - ring.parts * vectors - ring.parts) // (ring.parts * vectors)
        if limit < 1 or (vectors > 1 and (vectors - 1) * ring.lanes >= n):
            continue
        limit = min(limit, 14 if vectors == 2 else MOST_ROWS, 4 if diagonal else most)
        tiles = -(-m // limit)
        rows = -(-m // tiles)
        panels = -(-n // (vectors * ring.lanes))
        cost = tiles * panels * _cycles(rows, vectors, ring.parts)
        if best is None or cost < best[0] * 0.999:
            best = (cost, rows, vectors)
    assert best is not None, "one vector fits every register file"
    return best[1], best[2]


def _cycles(rows: int, vectors: int, parts: int) -> float:
    """Cycles of one depth, for machines of all caches; columns come from the second level."""
    cycles = COMMON.cycles
    products = rows * vectors * parts * parts / cycles.operations
    loads = rows * parts / cycles.loads + vectors * parts
    return max(products, loads, cycles.latency) + 1.0
