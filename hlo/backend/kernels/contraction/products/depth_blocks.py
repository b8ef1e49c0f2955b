"""How many depths a product packs at a time.

The same for machines of all caches, as it says in which order sums are added.
"""

from __future__ import annotations

from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.machine import COMMON

DEPTH_BLOCK = 1024
DEPTH_WHOLE = 2048  # Depths up to this are not worth a second block.
LEAST_BLOCK = 256  # Blocks of fewer depths wait for their sums.
WINDOWS_WHOLE = (
    4096  # What DEPTH_WHOLE is where few columns meet windows that are read as they lie.
)
LEAST_DEPTH = 16  # The least depth of a block: packing in squares needs more than one of them.


def depth_block(lhs: Packing, row_bytes: int, *, is_read: bool) -> int:
    """Depths that are packed at a time: whole runs of lhs where they are short. row_bytes: what the
    columns of one depth take; is_read: lhs is windows that are read where they lie.
    """
    k, near = lhs.source.depth_size, _near_depth(lhs, row_bytes)
    if k <= (WINDOWS_WHOLE if is_read else min(DEPTH_WHOLE, near)):
        return k
    run = lhs.source.depth[-1][0]
    block = min(DEPTH_BLOCK, near)
    if 1 < run < k:
        return _whole_runs(run, block)
    size = -(-k // -(-k // block))
    size = -(-size // LEAST_DEPTH) * LEAST_DEPTH
    while 0 < k % size < LEAST_DEPTH:
        size += LEAST_DEPTH
    return size


def _near_depth(lhs: Packing, row_bytes: int) -> int:
    """The depth to which all columns fit a quarter of the second-level cache, where lhs are windows
    that are no runs along depth: to pack them costs so much that they meet all columns at once.
    """
    source = lhs.source
    is_plain_matrix = len(source.depth) <= 1 and len(source.free) <= 1
    if lhs.by_rows or is_plain_matrix or source.depth_size <= 2 * LEAST_BLOCK:
        return DEPTH_WHOLE
    return max(LEAST_BLOCK, COMMON.second_cache.bytes // 4 // row_bytes)


def _whole_runs(run: int, block: int) -> int:
    """About `block` depths: runs, or an even part of one."""
    if run <= block:
        return block // run * run
    sizes = range(block, block // 4, -1)
    return next((size for size in sizes if run % size == 0), block)
