"""Transposing in registers: squares of lanes by rounds of interleaving."""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer


def end_to_end(w: Writer, parts: list[Value]) -> Value:
    """Vectors one after the other in one."""
    while len(parts) > 1:
        order = range(2 * parts[0].lanes)
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [w.shuffle(a, b, order) for a, b in pairs]
    return parts[0]


def transposed(w: Writer, rows: list[Value]) -> list[Value]:
    """Transposes the squares of len(rows) lanes, by rounds of interleaving."""
    count = len(rows)
    half = count // 2
    while half:
        merged: list[Value] = [rows[0]] * count
        for i in range(count):
            if i & half:
                continue
            low, high = _exchanged(w, rows[i], rows[i + half], half)
            merged[i], merged[i + half] = low, high
        rows = merged
        half //= 2
    return rows


def _exchanged(w: Writer, a: Value, b: Value, half: int) -> tuple[Value, Value]:
    """2x2 blocks of `half` lanes: (a.low b.low), (a.high b.high)."""
    lanes = a.lanes
    low = [i if not i & half else lanes + i - half for i in range(lanes)]
    high = [i + half if not i & half else lanes + i for i in range(lanes)]
    return w.shuffle(a, b, low), w.shuffle(a, b, high)
