"""The passes about `while` loops, as one table: imported by the first program that has a loop."""

from __future__ import annotations

from collections.abc import Callable

from hlo.passes.gate_fusion import gate_fusion
from hlo.passes.overwritten_start_remover import overwritten_start_remover
from hlo.passes.row_update_mover import row_update_mover
from hlo.passes.table_lookup_mover import table_lookup_mover
from hlo.passes.while_loop_dot_batching import while_loop_dot_batching
from hlo.passes.while_loop_fusible_sinking import while_loop_fusible_sinking
from hlo.passes.while_loop_interchange import while_loop_interchange
from hlo.passes.while_loop_invariant_code_motion import while_loop_invariant_code_motion
from hlo.passes.while_loop_ranges import while_loop_ranges
from hlo.passes.while_loop_rematerialization import while_loop_rematerialization
from hlo.passes.while_loop_state_splitting import while_loop_state_splitting
from hlo.passes.while_loop_state_transposer import while_loop_state_transposer
from hlo.passes.while_loop_unroller import while_loop_unroller

LOOP_PASSES: dict[str, Callable[..., bool]] = {
    "gate-fusion": gate_fusion,
    "overwritten-start-remover": overwritten_start_remover,
    "row-update-mover": row_update_mover,
    "table-lookup-mover": table_lookup_mover,
    "while-loop-dot-batching": while_loop_dot_batching,
    "while-loop-fusible-sinking": while_loop_fusible_sinking,
    "while-loop-interchange": while_loop_interchange,
    "while-loop-invariant-code-motion": while_loop_invariant_code_motion,
    "while-loop-ranges": while_loop_ranges,
    "while-loop-rematerialization": while_loop_rematerialization,
    "while-loop-state-splitting": while_loop_state_splitting,
    "while-loop-state-transposer": while_loop_state_transposer,
    "while-loop-unroller": while_loop_unroller,
}
