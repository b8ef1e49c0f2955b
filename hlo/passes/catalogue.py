"""The pass catalogue and the pipelines: plain data.

A pass is a function `Module -> bool changed`; its keyword parameters are its options; the first
line of its docstring is its entry in `--list-passes`. A pass that XLA has bears XLA's name, in
XLA's spelling; the others are ours.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.passes.algsimp import algsimp
from hlo.passes.batchnorm_expander import batchnorm_expander
from hlo.passes.block_fusion import block_fusion
from hlo.passes.call_inliner import call_inliner
from hlo.passes.conditional_to_select import conditional_to_select
from hlo.passes.constant_folding import constant_folding
from hlo.passes.cse import cse
from hlo.passes.dce import dce
from hlo.passes.dynamic_padder import dynamic_padder
from hlo.passes.flatten_call_graph import flatten_call_graph
from hlo.passes.fusion import fusion
from hlo.passes.fusion_opener import fusion_opener
from hlo.passes.index_narrower import index_narrower
from hlo.passes.map_expander import map_expander
from hlo.passes.narrow_scatter_rewriter import narrow_scatter_rewriter
from hlo.passes.ragged_all_to_all_rewriter import ragged_all_to_all_rewriter
from hlo.passes.ragged_dot_rewriter import ragged_dot_rewriter
from hlo.passes.reshape_mover import reshape_mover
from hlo.passes.rng_expander import rng_expander
from hlo.passes.scaled_dot_rewriter import scaled_dot_rewriter
from hlo.passes.scan_expander import scan_expander
from hlo.passes.sharding_remover import sharding_remover
from hlo.passes.simplify_conditional import simplify_conditional
from hlo.passes.table_lookup_mover import table_lookup_mover
from hlo.passes.tuple_simplifier import tuple_simplifier
from hlo.passes.while_loop_dot_batching import while_loop_dot_batching
from hlo.passes.while_loop_interchange import while_loop_interchange
from hlo.passes.while_loop_invariant_code_motion import while_loop_invariant_code_motion
from hlo.passes.while_loop_unroller import while_loop_unroller

Pass = Callable[..., bool]

CATALOGUE: dict[str, Pass] = {
    "algsimp": algsimp,
    "batchnorm_expander": batchnorm_expander,
    "block-fusion": block_fusion,
    "call-inliner": call_inliner,
    "conditional-to-select": conditional_to_select,
    "constant_folding": constant_folding,
    "cse": cse,
    "dce": dce,
    "dynamic_padder": dynamic_padder,
    "flatten-call-graph": flatten_call_graph,
    "fusion": fusion,
    "fusion-opener": fusion_opener,
    "map-expander": map_expander,
    "narrow-scatter-rewriter": narrow_scatter_rewriter,
    "index-narrower": index_narrower,
    "ragged-all-to-all-rewriter": ragged_all_to_all_rewriter,
    "ragged-dot-rewriter": ragged_dot_rewriter,
    "reshape-mover": reshape_mover,
    "rng-expander": rng_expander,
    "scaled-dot-rewriter": scaled_dot_rewriter,
    "scan_expander": scan_expander,
    "sharding-remover": sharding_remover,
    "simplify-conditional": simplify_conditional,
    "table-lookup-mover": table_lookup_mover,
    "tuple-simplifier": tuple_simplifier,
    "while-loop-dot-batching": while_loop_dot_batching,
    "while-loop-interchange": while_loop_interchange,
    "while-loop-invariant-code-motion": while_loop_invariant_code_motion,
    "while-loop-unroller": while_loop_unroller,
}

LOOPS = (
    "flatten-call-graph",
    "table-lookup-mover",
    "while-loop-invariant-code-motion",
    "tuple-simplifier",
    "while-loop-dot-batching",
    "tuple-simplifier",
    "dce",
)

# What runs after fusion: it takes out results that are only packed again, and constants and
# computations that kernels have copies of.
FUSED = ("tuple-simplifier", "dce")


def _simplify(algsimp: str, *padder: str) -> tuple[str, ...]:
    """Ops written out as plainer ones, then rewritten with the given form of algsimp."""
    return (
        "fusion-opener",
        "scan_expander",
        "ragged-all-to-all-rewriter",
        "ragged-dot-rewriter",
        "scaled-dot-rewriter",
        *padder,
        "call-inliner",
        "conditional-to-select",
        "map-expander",
        "batchnorm_expander",
        "tuple-simplifier",
        "dce",
        f"fixpoint({algsimp},constant_folding,simplify-conditional,while-loop-unroller,"
        "tuple-simplifier,cse,dce)",
    )


def _compiled(algsimp: str) -> tuple[str, ...]:
    """What `compile` runs."""
    return (
        *_simplify(algsimp, "dynamic_padder"),
        "rng-expander",
        "reshape-mover",
        algsimp,
        *LOOPS,
        "narrow-scatter-rewriter",
        "index-narrower",
        "cse",
        "dce",
        "while-loop-interchange",
        "fusion",
        *FUSED,
        "block-fusion",
    )


PIPELINES: dict[str, tuple[str, ...]] = {
    "": (),
    "simplify": _simplify("algsimp"),
    "default": _compiled("algsimp"),
    "fast": _compiled("algsimp{inexact=true}"),
}

# Rows (a, b, why): wherever both stand in a pipeline, the first a stands before the last b.
ORDER: tuple[tuple[str, str, str], ...] = (
    ("fusion-opener", "scan_expander", "what is expanded stands outside of fusions"),
    ("conditional-to-select", "map-expander", "a map of both branches stays a map"),
    ("call-inliner", "map-expander", "a map that calls plain arithmetic stays a map"),
    ("scan_expander", "call-inliner", "the loop that a scan becomes calls its step"),
    (
        "call-inliner",
        "fusion",
        "a producer in a caller cannot be fused into a consumer in a callee",
    ),
    ("call-inliner", "cse", "equal values in two callees merge only when they stand side by side"),
    ("call-inliner", "rng-expander", "what calls draw counts only once it stands in the entry"),
    ("fusion-opener", "dynamic_padder", "sizes are followed through plain ops"),
    ("dynamic_padder", "call-inliner", "a reduction of what is valid calls the reducer as it was"),
    ("dynamic_padder", "map-expander", "maps of dynamic sizes stay maps"),
    ("dynamic_padder", "batchnorm_expander", "norms of dynamic sizes stay norms"),
    ("dynamic_padder", "algsimp", "sizes are arithmetic, of which most goes away"),
    ("dynamic_padder", "fusion", "what is padded is fused as any static program"),
    ("algsimp", "fusion", "rewrites do not look into fusions"),
    ("fusion", "block-fusion", "blocks are made of whole kernels"),
    ("fusion", "tuple-simplifier", "a kernel's results that are packed again are its own tuple"),
    ("fusion", "dce", "computations whose fusions were written out are nobody's"),
    ("narrow-scatter-rewriter", "fusion", "rows that are gathered and rounded are fused"),
    ("index-narrower", "fusion", "arg-max is rewritten where it stands alone"),
    ("cse", "fusion", "a value computed twice would be fused twice"),
    (
        "table-lookup-mover",
        "while-loop-invariant-code-motion",
        "the key that a search looks for leaves the loop",
    ),
    (
        "flatten-call-graph",
        "while-loop-invariant-code-motion",
        "a body that two loops share cannot be changed for one of them",
    ),
    (
        "while-loop-invariant-code-motion",
        "fusion",
        "a value inside a fusion does not leave the loop",
    ),
    (
        "while-loop-interchange",
        "fusion",
        "a loop whose body is in kernels already stays one of arrays",
    ),
    (
        "while-loop-invariant-code-motion",
        "while-loop-interchange",
        "what no trip changes need not act on each element by itself",
    ),
    ("while-loop-dot-batching", "fusion", "a row's slice inside a fusion is not seen as one"),
    (
        "while-loop-invariant-code-motion",
        "while-loop-dot-batching",
        "a matrix that is computed in the loop becomes one of its unchanging elements",
    ),
    ("flatten-call-graph", "fusion", "clones made later would not share fused computations' names"),
)


def option_types(function: Pass) -> dict[str, object]:
    """The pass's options with their defaults."""
    return dict(function.__kwdefaults__ or {})


def first_line(function: Pass) -> str:
    """What a pass does, in its own words."""
    return (function.__doc__ or "").strip().split("\n")[0]
