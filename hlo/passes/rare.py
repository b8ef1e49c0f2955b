"""The rare passes: those about ops that most programs lack; imported when one of them is asked for.

What ops each needs is in the catalogue (NEEDS), which knows their names without them.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.passes.batchnorm_expander import batchnorm_expander
from hlo.passes.conditional_to_select import conditional_to_select
from hlo.passes.factor_slicing import factor_slicing
from hlo.passes.gate_fusion import gate_fusion
from hlo.passes.map_expander import map_expander
from hlo.passes.narrow_scatter_rewriter import narrow_scatter_rewriter
from hlo.passes.overwritten_start_remover import overwritten_start_remover
from hlo.passes.prologue_fusion import prologue_fusion
from hlo.passes.ragged_all_to_all_rewriter import ragged_all_to_all_rewriter
from hlo.passes.ragged_dot_rewriter import ragged_dot_rewriter
from hlo.passes.rng_expander import rng_expander
from hlo.passes.row_update_mover import row_update_mover
from hlo.passes.scaled_dot_rewriter import scaled_dot_rewriter
from hlo.passes.scan_expander import scan_expander
from hlo.passes.scatter_splitting import scatter_splitting
from hlo.passes.simplify_conditional import simplify_conditional
from hlo.passes.table_lookup_mover import table_lookup_mover
from hlo.passes.while_loop_dot_batching import while_loop_dot_batching
from hlo.passes.while_loop_fusible_sinking import while_loop_fusible_sinking
from hlo.passes.while_loop_interchange import while_loop_interchange
from hlo.passes.while_loop_invariant_code_motion import while_loop_invariant_code_motion
from hlo.passes.while_loop_ranges import while_loop_ranges
from hlo.passes.while_loop_rematerialization import while_loop_rematerialization
from hlo.passes.while_loop_state_splitting import while_loop_state_splitting
from hlo.passes.while_loop_unroller import while_loop_unroller
from hlo.passes.window_scan_rewriter import window_scan_rewriter
from hlo.passes.window_separation import window_separation
from hlo.passes.winograd import winograd
from hlo.passes.zero_bands import zero_bands

RARE: dict[str, Callable[..., bool]] = {
    "batchnorm_expander": batchnorm_expander,
    "conditional-to-select": conditional_to_select,
    "factor-slicing": factor_slicing,
    "gate-fusion": gate_fusion,
    "map-expander": map_expander,
    "narrow-scatter-rewriter": narrow_scatter_rewriter,
    "scatter-splitting": scatter_splitting,
    "overwritten-start-remover": overwritten_start_remover,
    "prologue-fusion": prologue_fusion,
    "ragged-all-to-all-rewriter": ragged_all_to_all_rewriter,
    "ragged-dot-rewriter": ragged_dot_rewriter,
    "rng-expander": rng_expander,
    "row-update-mover": row_update_mover,
    "scaled-dot-rewriter": scaled_dot_rewriter,
    "scan_expander": scan_expander,
    "simplify-conditional": simplify_conditional,
    "table-lookup-mover": table_lookup_mover,
    "while-loop-dot-batching": while_loop_dot_batching,
    "while-loop-fusible-sinking": while_loop_fusible_sinking,
    "while-loop-interchange": while_loop_interchange,
    "while-loop-invariant-code-motion": while_loop_invariant_code_motion,
    "while-loop-ranges": while_loop_ranges,
    "while-loop-rematerialization": while_loop_rematerialization,
    "while-loop-state-splitting": while_loop_state_splitting,
    "while-loop-unroller": while_loop_unroller,
    "window-scan-rewriter": window_scan_rewriter,
    "window-separation": window_separation,
    "zero-bands": zero_bands,
    "winograd": winograd,
}
