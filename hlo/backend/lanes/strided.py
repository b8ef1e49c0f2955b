"""Lanes a few elements apart: the stretch that holds them is read whole, shuffles pick them.

    lane l at element step*l:  [ chunk 0 | chunk 1 | .. last one ]  -->  one shuffle per two chunks

The last chunk ends with the last lane's element, so that nothing beyond it is touched. Where a mask
switches lanes off, chunks are loaded under masks of their own, which let through what lanes that
are on begin with: rows of three numbers that a gather takes (the last ones, or all of them where
results lie over operands) take a quarter of the time so on Zen 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.lanes import masked
from hlo.backend.lanes.nest import Nest

_CHUNKS = 4  # For more chunks a gather touches fewer bytes than it takes instructions.
_NARROW_CHUNKS = 8  # The same of bytes and pairs of them: a gather takes several steps for each.
_FEWEST = 4  # The fewest lanes that are read so.


class Stretch(Struct, frozen=True):
    """Where chunks of `width` elements begin, and (chunk, place in it) of every lane."""

    width: int
    starts: tuple[int, ...]
    sources: tuple[tuple[int, int], ...]


def stretch(
    step: int, lanes: int, item_bytes: int, vector_bytes: int, *, shuffles: bool = False
) -> Stretch | None:
    """How lanes `step` elements apart are read; None where a gather is better.

    shuffles: one instruction picks any elements of this width from two vectors.
    """
    most = _NARROW_CHUNKS if shuffles and item_bytes <= 2 else _CHUNKS
    if lanes < _FEWEST or not 2 <= abs(step) <= most * vector_bytes:
        return None
    offsets = [abs(step) * lane for lane in range(lanes)]
    span = offsets[-1] + 1
    width = 1 << (min(span, vector_bytes // item_bytes).bit_length() - 1)
    count = -(-span // width)
    if count > most:
        return None
    starts = (*(width * k for k in range(count - 1)), span - width)
    if step < 0:
        offsets.reverse()
    chunks = [min(offset // width, count - 1) for offset in offsets]
    return Stretch(
        width, starts, tuple((c, o - starts[c]) for c, o in zip(chunks, offsets, strict=True))
    )


def load_stretch(
    nest: Nest, lowest: Value, element: str, found: Stretch, mask: Value | None = None
) -> Value:
    """The lanes; `lowest`: the address of the first element in memory. Those that a mask switches
    off touch no memory, and are zero."""
    w = nest.w
    type = vector_of(element, found.width)
    chunks = []
    for chunk, start in enumerate(found.starts):
        address = w.address(lowest, w.int(start), element) if start else lowest
        own = None if mask is None else _mask_of(w, mask, found, chunk)
        chunks.append(masked.load(w, type, address, 1, own))
    return picked(w, chunks, found)


def _mask_of(w: Writer, mask: Value, found: Stretch, chunk: int) -> Value:
    """Which elements of a chunk are those of lanes that are on."""
    lanes = {place: lane for lane, (c, place) in enumerate(found.sources) if c == chunk}
    return masked.moved(w, mask, [lanes.get(place) for place in range(found.width)])


def picked(w: Writer, chunks: Sequence[Value], found: Stretch) -> Value:
    """The lanes of a stretch whose chunks are in registers."""
    result: Value | None = None
    for first in range(0, len(chunks), 2):
        pair = chunks[first : first + 2]
        order = [
            place + (chunk - first) * found.width if chunk - first in (0, 1) else -1
            for chunk, place in found.sources
        ]
        some = w.shuffle(pair[0], pair[-1], order)
        if result is None:
            result = some
            continue
        lanes = len(order)
        blend = [lane + lanes * (chunk >= first) for lane, (chunk, _) in enumerate(found.sources)]
        result = w.shuffle(result, some, blend)
    assert result is not None, "a stretch has a chunk"
    return result
