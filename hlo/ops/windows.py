"""Ops that slide a window over an array: reduce-window, select-and-scatter.

Source: shared/OP_SEMANTICS.md sections 9 and 10.
"""

from __future__ import annotations

from hlo.attributes.names import COMPUTATION
from hlo.attributes.window import WINDOW, Window
from hlo.ops.table import Attr, Op, Trait

NO_WINDOW = Window(())


class ReduceWindow(Op):
    """result[o] = fold of f from init over the window's elements that lie inside, row-major.

    Position w of window o reads b = o * stride + w * window_dilation - low, if b >= 0, b is a
    multiple of base_dilation, and b / base_dilation < dim. Holes and padding are skipped; init is
    applied once. Reversal has no effect.
    C1: an even number of operands, at least 2. C2: all arrays have equal dimensions.
    C3: one window dimension per dimension. C4: sizes, strides and dilations are at least 1.
    R1-R7: the reducer's rules, as for reduce.
    Source: XLA OP_SEMANTICS "ReduceWindow".
    """

    opcode = "reduce-window"
    attrs = {"window": Attr(WINDOW, NO_WINDOW), "to_apply": Attr(COMPUTATION)}


class SelectAndScatter(Op):
    """result = init everywhere; each source element goes, by f, to the element its window selects.

    In a window (row-major, positions inside only) the first is the winner until select(winner, next)
    is false; then result[winner] = scatter(result[winner], source[o]).
    C1: select takes two scalars of the operand's type and returns pred[]. C2: scatter is a reducer
    for (init, source). C3: source has the dimensions of reduce-window's result. C4: window as in
    reduce-window, with base dilation 1.
    Source: XLA OP_SEMANTICS "SelectAndScatter".
    """

    opcode = "select-and-scatter"
    arity = 3
    attrs = {
        "window": Attr(WINDOW, NO_WINDOW),
        "select": Attr(COMPUTATION),
        "scatter": Attr(COMPUTATION),
    }
