"""Lane masks: which lanes of a vector of indices there are."""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer


def below(w: Writer, start: Value, total: int, lanes: int) -> Value:
    """Which of `lanes` indices from start are less than total."""
    type = f"<{lanes} x i64>"
    if start.text.isdigit():
        bits = ", ".join(f"i1 {int(int(start.text) + i < total)}" for i in range(lanes))
        return Value(f"<{bits}>", f"<{lanes} x i1>") if lanes > 1 else Value(bits[3:], "i1")
    each = w.splat(start, lanes)
    index = w.binary("add", each, iota(lanes, "i64"))
    return w.compare("icmp ult", index, w.int(total, type))


def iota(lanes: int, scalar: str) -> Value:
    """0, 1, 2, ... as a constant."""
    if lanes == 1:
        return Value("0", scalar)
    text = ", ".join(f"{scalar} {i}" for i in range(lanes))
    return Value(f"<{text}>", f"<{lanes} x {scalar}>")
