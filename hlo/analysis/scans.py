"""Scans: which reduce-windows are cumulative."""

from __future__ import annotations

from hlo.analysis.reducers import reducer_of
from hlo.attributes.window import Window
from hlo.ir.instruction import Instruction


def scanned_dimension(instruction: Instruction) -> tuple[int, bool] | None:
    """The dimension that a reduce-window scans, and whether it does so from the end: the window is
    as long as the dimension, and padded before it, or after it for reducers whose order is free.
    None for other windows, and for other instructions.
    """
    window = instruction.get("window")
    if instruction.opcode != "reduce-window" or not isinstance(window, Window):
        return None
    x = instruction.operands[0].shape
    if not instruction.shape.is_array or instruction.shape.dims != x.dims or 0 in x.dims:
        return None
    if any(d.stride != 1 or d.base_dilation != 1 or d.window_dilation != 1 for d in window.dims):
        return None
    long = [k for k, d in enumerate(window.dims) if d.size > 1]
    if len(long) != 1 or window.dims[long[0]].size < x.dims[long[0]]:
        return None
    (k,) = long
    d = window.dims[k]
    if (d.pad_low, d.pad_high) == (d.size - 1, 0):
        return k, False
    if (d.pad_low, d.pad_high) == (0, d.size - 1) and reducer_of(instruction).reassociates:
        return k, True
    return None
