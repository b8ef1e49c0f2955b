"""Groups: how the factors of one large matrix are shared out among threads.

A group of columns (of LU) or rows (of Cholesky) at a time is factored by itself; then what it
changes elsewhere is cut into tiles, whose units wait for nobody. Two threads gain by it from some
hundred rows on; without threads it is as fast, for a tile works on one stretch of memory.
"""

from __future__ import annotations

GROUP = 64  # Rows or columns, a multiple of every tile's.
MOST_ALONE = 4 * GROUP  # Rows and columns of a matrix that one thread factors as fast as two.
SHARES = 16  # Units of a step, a power of two: of tiles or groups, the n-th is unit n mod SHARES's.
MOST_BYTES = 1 << 28  # Of a matrix's copy, which lies in the arena.
