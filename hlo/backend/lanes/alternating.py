"""Runs of lanes that alternate: even lanes and odd ones of vectors, their lower and upper halves.

x = [p q p q ..], y = [r s r s ..]  =>  [p p .. r r ..] and [q q .. s s ..], runs of equal length

Of two vectors, runs that lie in one part of 16 bytes stay in it: [p r .. p r ..]. Every machine
moves lanes of two vectors within such parts by one short instruction, which LLVM's selector finds
at once. Lanes that cross them go by an order in a register, and it tries for long to avoid that.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.lanes.types import scalar_bits

_PART_BITS = 128


def part_lanes(scalars: Sequence[str]) -> int:
    """Lanes that lie in one part, of whichever of the types has the widest ones."""
    return _PART_BITS // max(map(scalar_bits, scalars))


def alternate(w: Writer, a: Value, b: Value | None, run: int, part: int) -> tuple[Value, Value]:
    """The even runs and the odd ones of one vector or two. part: the lanes of a part."""
    size = part if b is not None and 2 * run <= part else a.lanes
    starts = [
        source + start + place
        for start in range(0, a.lanes, size)
        for source in ((0, a.lanes) if b is not None else (0,))
        for place in range(0, size, 2 * run)
    ]
    even, odd = (
        w.shuffle(a, b, [start + first + lane for start in starts for lane in range(run)])
        for first in (0, run)
    )
    return even, odd


def swapped(w: Writer, a: Value, run: int) -> Value:
    """Each even run in the place of the odd one behind it, and the other way round."""
    return w.shuffle(a, None, [lane ^ run for lane in range(a.lanes)])


def every(w: Writer, a: Value, step: int) -> Value:
    """Lanes 0, step, 2 step, ...; a scalar where that is one."""
    if a.lanes == step:
        return w.extract(a, 0)
    return w.shuffle(a, None, range(0, a.lanes, step)) if step > 1 else a
