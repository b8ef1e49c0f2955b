"""The rare passes: those about ops that many programs lack, imported when one is asked for.

What ops each needs is in the catalogue (NEEDS), which knows their names without them. Passes that a
program needs together stand in a table together.
"""

from __future__ import annotations

from collections.abc import Callable

Pass = Callable[..., bool]


def rare_pass(name: str) -> Pass:
    """The pass of a name."""
    found = _arithmetic_pass(name) or _position_pass(name)
    if found is not None:
        return found
    from hlo.passes.loops import LOOP_PASSES

    if name in LOOP_PASSES:
        return LOOP_PASSES[name]
    from hlo.passes.expanders import EXPANDERS

    return EXPANDERS[name]


def _arithmetic_pass(name: str) -> Pass | None:
    """Those about products, sums and types."""
    match name:
        case "convert_operand_folding":
            from hlo.passes.convert_operand_folding import convert_operand_folding as found
        case "dot-strength-reduction":
            from hlo.passes.dot_strength_reduction import dot_strength_reduction as found
        case "index-narrower":
            from hlo.passes.index_narrower import index_narrower as found
        case "masked-dot-rewriter":
            from hlo.passes.masked_dot_rewriter import masked_dot_rewriter as found
        case "matrix-sharing":
            from hlo.passes.matrix_sharing import matrix_sharing as found
        case "one-hot-rewriter":
            from hlo.passes.one_hot_rewriter import one_hot_rewriter as found
        case "prologue-fusion":
            from hlo.passes.prologue_fusion import prologue_fusion as found
        case "reduction-operand-transposer":
            from hlo.passes.reduction_operand_transposer import (
                reduction_operand_transposer as found,
            )
        case "window-separation":
            from hlo.passes.window_separation import window_separation as found
        case "winograd":
            from hlo.passes.winograd import winograd as found
        case "zero-bands":
            from hlo.passes.zero_bands import zero_bands as found
        case _:
            return None
    return found


def _position_pass(name: str) -> Pass | None:
    """Those about places that are read and written, about branches, calls and loops in blocks."""
    match name:
        case "conditional-to-select":
            from hlo.passes.conditional_to_select import conditional_to_select as found
        case "factor-slicing":
            from hlo.passes.factor_slicing import factor_slicing as found
        case "flatten-call-graph":
            from hlo.passes.flatten_call_graph import flatten_call_graph as found
        case "fusion-opener":
            from hlo.passes.fusion_opener import fusion_opener as found
        case "gather-operand-transposer":
            from hlo.passes.gather_operand_transposer import gather_operand_transposer as found
        case "narrow-scatter-rewriter":
            from hlo.passes.narrow_scatter_rewriter import narrow_scatter_rewriter as found
        case "scatter-splitting":
            from hlo.passes.scatter_splitting import scatter_splitting as found
        case "sort-operand-transposer":
            from hlo.passes.sort_operand_transposer import sort_operand_transposer as found
        case "simplify-conditional":
            from hlo.passes.simplify_conditional import simplify_conditional as found
        case "while-loop-blocking":
            from hlo.passes.while_loop_blocking import while_loop_blocking as found
        case _:
            return None
    return found
