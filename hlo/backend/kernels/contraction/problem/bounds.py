"""Bounds: with what a bounded kernel is called, in tiles, panels, words or steps of a contraction.

low, high  --bounds_in--> [first, last) of so many elements each that have some between them
"""

from __future__ import annotations

from hlo.backend.ir.arithmetic import add, divided
from hlo.backend.ir.functions import HIGH, LOW
from hlo.backend.ir.writer import Value, Writer

Range = tuple[Value, Value]  # [first, last)


def bounds_in(w: Writer, size: int) -> Range:
    """The bounds, counted in pieces of so many elements."""
    return divided(w, LOW, size), divided(w, add(w, HIGH, w.int(size - 1)), size)


def within_bounds(w: Writer, own: Range, size: int) -> Range:
    """What of some pieces is between the bounds; perhaps nothing."""
    low, high = bounds_in(w, size)
    first = w.intrinsic("llvm.umax", "i64", own[0], low)
    return first, w.intrinsic("llvm.umin", "i64", own[1], high)
