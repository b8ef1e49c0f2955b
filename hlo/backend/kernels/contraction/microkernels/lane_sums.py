"""Sums over the lanes of vectors: neighbours are added, as long as there are any.

    a, b --neighbours within parts of 16 bytes--> [a a b b ..] --neighbouring parts--> sums in order

Reductions halve their vectors instead (emitters/horizontal_reduction.py).
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.lanes.alternating import alternate, every, part_lanes, swapped


def across(w: Writer, ring: Ring, vectors: list[Value]) -> Value:
    """The sums over the lanes of 1, 2, 4, ... vectors, as the lanes of one."""
    count, lanes = len(vectors), vectors[0].lanes
    part = min(part_lanes([vectors[0].scalar_type]), lanes)
    left = part  # lanes of a part that are of one vector
    while left > 1 and len(vectors) > 1:
        vectors = _neighbours_added(w, ring, vectors, 1, part)
        left //= 2
    if left > 1:
        vectors, part = [_added_in_place(w, ring, vectors[0], left)], part // left
    while vectors[0].lanes > max(count, part) or len(vectors) > 1:
        vectors = _neighbours_added(w, ring, vectors, part, part)
    return vectors[0]


def _neighbours_added(
    w: Writer, ring: Ring, vectors: list[Value], run: int, part: int
) -> list[Value]:
    """The even and the odd runs of lanes of each two vectors, or of one alone."""
    if len(vectors) == 1 and vectors[0].lanes == 2:
        (total,) = vectors
        return [*ring.add(w, (w.extract(total, 0),), (w.extract(total, 1),))]
    pairs = zip(vectors[::2], vectors[1::2] or (None,), strict=True)
    halves = (alternate(w, a, b, run, part) for a, b in pairs)
    return [ring.add(w, (even,), (odd,))[0] for even, odd in halves]


def _added_in_place(w: Writer, ring: Ring, total: Value, count: int) -> Value:
    """Each so many lanes added up, as the lanes of a shorter vector."""
    run = 1
    while run < count:
        (total,) = ring.add(w, (total,), (swapped(w, total, run),))
        run *= 2
    return every(w, total, count)
