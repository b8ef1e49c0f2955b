"""Lane masks: which lanes of a vector of indices there are."""

from __future__ import annotations

from hlo.backend.ir.values import listed
from hlo.backend.ir.writer import Value, Writer


def below(w: Writer, start: Value, total: int, lanes: int) -> Value:
    """Which of `lanes` indices from start are less than total."""
    type = f"<{lanes} x i64>"
    first = start.integer
    if first is not None:
        bits = tuple(int(first + lane < total) for lane in range(lanes))
        return listed("i1", bits) if lanes > 1 else w.int(bits[0], "i1")
    each = w.splat(start, lanes)
    index = w.binary("add", each, iota(lanes, "i64"))
    return w.compare("icmp ult", index, w.int(total, type))


def iota(lanes: int, scalar: str) -> Value:
    """0, 1, 2, ... as a constant."""
    if lanes == 1:
        return Value("0", scalar)
    return listed(scalar, tuple(range(lanes)))
