"""The work of packing a factor, by the product that needs it or before it.

Packing --packed_bytes_and_instructions, packing_work--> what products and estimates count
"""

from __future__ import annotations

from math import log2

from hlo.backend.ir.kernel import Work
from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.backend.kernels.contraction.packing.runs import runs_met
from hlo.backend.kernels.contraction.packing.strided import stretch_of
from hlo.backend.kernels.contraction.problem.axes import Axes, extent

COPIED = 2  # Instructions for a vector that is packed: it is loaded and stored.
JOINED = 3  # For a part of words: it is widened as it is loaded, shifted, and joined.
CHECKED = 3  # To see whether a vector of words has subnormal numbers.
# Pieces of rows shorter than a page are read so many times as slowly as a stream: what asks for a
# stream ahead begins anew with each.
PIECES = 2


def read_and_made(
    packing: Packing, batch: Axes, panels: int, times: int = 1, *, checks: bool = False
) -> tuple[float, float]:
    """Bytes that are read where a factor is packed for so many batches, so many panels at a time,
    so many times; instructions that it takes: a square of vectors that lies across is turned by
    shuffles, halves, quarters and so on of each; elements that are no runs are gathered one by one.
    """
    source, ring = packing.source, packing.ring
    elements = float(times * source.size * extent(batch))
    vectors = elements * ring.parts / ring.lanes
    is_read = source.is_free_contiguous or packing.by_rows or runs_met(packing)
    if source.joined is not None:
        instructions = (JOINED * source.joined.group + CHECKED * checks) * vectors
    elif is_read or stretch_of(packing):
        instructions = COPIED * vectors
    elif source.is_depth_contiguous:
        instructions = (COPIED + log2(ring.lanes)) * vectors
    else:
        instructions = COPIED * elements
    return elements * source.number_bytes * _in_pieces(packing, panels), instructions


def _in_pieces(packing: Packing, panels: int) -> float:
    """How many times as long as a stream a factor takes of which so many panels are read at a time,
    where these are pieces of rows of which others read the rest.
    """
    source, machine = packing.source, packing.ring.target.machine
    size = panels * packing.panels.step
    run = size * source.number_bytes
    is_row = source.is_free_contiguous and len(source.depth) == 1
    if not is_row or size >= source.free_size or run >= machine.cycles.page_bytes:
        return 1.0
    return PIECES * (run + machine.line_bytes - source.dtype.item_bytes) / run


def packing_work(packing: Packing, batch: Axes, *, checks: bool) -> Work:
    """Of a kernel that packs all panels of a factor for the kernels behind it, of which each thread
    reads those of other batches.
    """
    count, batches = packing.panels.count, extent(batch)
    read, instructions = read_and_made(packing, batch, count, checks=checks)
    written = float(batches * packing.size_bytes)
    handed = written if batches == 1 else 0.0
    # Lines that are written are read first.
    return Work(instructions, moved=read + 2 * written, handed=handed, is_stream=True)
