"""The shape of a tile of sums that stays in registers while depth runs.

rows, columns, Ring --tile_shape--> rows of the tile, vectors of a row
"""

from __future__ import annotations

import math

from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.machine import COMMON

MOST_ROWS = 24
VECTORS = (1, 2, 3, 4, 6, 8)
# Of few rows, where these leave so many fewer columns that two panels read: 200 columns in two
# panels of seven vectors, not of eight. Zen 4, 72 to 400 columns in loops: 0.75 to 0.9 of the time.
# Narrow panels read short runs of rows, so that a tenth less takes longer (400 columns on AVX2).
FEW_ROWS = 2
FURTHER_VECTORS = (5, 7)
WORTH = 7 / 8
# How much dearer a wider tile of complex numbers may be: for as many products it reads fewer of
# lhs's, each of which is two loads. Zen 4, 512 x 512 x 512 and 64 x 2048 x 512 of c64 0.97 and 0.90
# of the time, 512 x 512 x 512 of c128 0.80.
WIDER = 1.01


def tile_shape(
    m: int,
    n: int,
    ring: Ring,
    *,
    diagonal: bool = False,
    most: int = MOST_ROWS,
    even: int = 0,
) -> tuple[int, int]:
    """Rows, so many at most, and vectors of the register tile that needs the fewest cycles for all
    of the result. even: a number of columns that its vectors have to part evenly, as they do all,
    where any do.
    """
    best: tuple[float, int, int] | None = None
    most_covered = 0  # vectors that the best one reads
    for vectors in (*VECTORS, *(FURTHER_VECTORS if m <= FEW_ROWS else ())):
        read = ring.parts * vectors * ring.rows + ring.parts
        limit = (ring.registers - read) // (ring.parts * vectors)
        if limit < ring.rows or (vectors > 1 and (vectors - 1) * ring.lanes >= n):
            continue
        if even and vectors > 1 and math.gcd(n, even) % (vectors * ring.lanes):
            continue
        limit = min(limit, 14 if vectors == 2 else MOST_ROWS, 4 if diagonal else most)
        limit = max(limit - limit % ring.rows, ring.rows)
        tiles, rows = row_steps(m, limit, ring.rows)
        panels = -(-n // (vectors * ring.lanes))
        covered = panels * vectors
        if vectors in FURTHER_VECTORS and covered > most_covered * WORTH:
            continue
        cost = tiles * panels * _cycles(rows, vectors, ring)
        if best is None or cost < best[0] * (WIDER if ring.parts > 1 else 0.999):
            best, most_covered = (cost, rows, vectors), covered
    assert best is not None, "one vector fits every register file"
    return best[1], best[2]


def row_steps(m: int, most: int, multiple: int) -> tuple[int, int]:
    """Tiles of as many rows, at most so many, and how many these are: a multiple of what products
    take at once, of which there are `most` and `m` at least.
    """
    tiles = -(-m // most)
    if multiple > 1 and -(-m // tiles // multiple) * multiple > m:
        tiles += 1
    return tiles, -(-m // tiles // multiple) * multiple


def _cycles(rows: int, vectors: int, ring: Ring) -> float:
    """Cycles of one depth, for machines of all caches; columns come from the second level."""
    cycles, parts = COMMON.cycles, ring.parts
    products = rows * vectors * parts * parts / cycles.operations
    loads = rows // ring.rows * parts / cycles.loads + vectors * ring.rows * parts
    return max(products, loads, cycles.latency) + 1.0
