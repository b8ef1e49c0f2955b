"""The pass catalogue and the pipelines: plain data.

A pass is a function `Module -> bool changed`; its keyword parameters are its options; the first
line of its docstring is its entry in `--list-passes`. A pass that XLA has bears XLA's name, in
XLA's spelling; the others are ours. Some passes are about ops that few programs have: these say so
in NEEDS, and are imported by pass_lookup.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Set

from hlo.ops.table import Opcodes, Trait, opcodes
from hlo.passes.fusion.fusion import fusion
from hlo.passes.large_values import (
    block_fusion,
    concatenate_parting,
    mask_skipping,
    score_order,
    score_rows,
    shift_lookups,
)
from hlo.passes.movement.reshape_mover import reshape_mover
from hlo.passes.padding.dynamic_padder import dynamic_padder
from hlo.passes.simplify.algsimp import algsimp
from hlo.passes.simplify.call_inliner import call_inliner
from hlo.passes.simplify.constant_folding import constant_folding
from hlo.passes.simplify.cse import cse
from hlo.passes.simplify.dce import dce
from hlo.passes.simplify.sharding_remover import sharding_remover
from hlo.passes.simplify.tuple_simplifier import tuple_simplifier

Pass = Callable[..., bool]

_COMMON: dict[str, Pass] = {
    "algsimp": algsimp,
    "block-fusion": block_fusion,
    "call-inliner": call_inliner,
    "constant_folding": constant_folding,
    "cse": cse,
    "dce": dce,
    "dynamic_padder": dynamic_padder,
    "fusion": fusion,
    "mask-skipping": mask_skipping,
    "reshape-mover": reshape_mover,
    "concatenate-parting": concatenate_parting,
    "score-order": score_order,
    "score-rows": score_rows,
    "shift-lookups": shift_lookups,
    "sharding-remover": sharding_remover,
    "tuple-simplifier": tuple_simplifier,
}

# Passes about ops that many programs lack, by room: opcodes of which a module needs one for the
# pass to have anything to do, of each set one. It is not run on others, nor imported for them.
_RARE: dict[str, dict[str, tuple[Set[str], ...]]] = {
    "blocks": {
        "while-loop-blocking": (frozenset({"while"}),),
    },
    "contraction": {
        "convert_operand_folding": (frozenset({"convert"}),),
        "dot-strength-reduction": (frozenset({"dot"}),),
        "masked-dot-rewriter": (frozenset({"iota"}), frozenset({"dot"})),
        "matrix-sharing": (frozenset({"dot"}),),
        "one-hot-rewriter": (frozenset({"iota"}), frozenset({"dot"})),
        "winograd": (frozenset({"convolution"}),),
        "zero-bands": (frozenset({"iota"}), frozenset({"dot"})),
    },
    "expand": {
        "batchnorm_expander": (Opcodes(lambda opcode: opcode.startswith("batch-norm")),),
        "complex-sort-expander": (frozenset({"sort"}), frozenset({"real"})),
        "map-expander": (frozenset({"map"}),),
        "ragged-all-to-all-rewriter": (frozenset({"ragged-all-to-all"}),),
        "ragged-dot-rewriter": (frozenset({"ragged-dot"}),),
        "rng-expander": (opcodes(Trait.EXPANDED),),
        "scaled-dot-rewriter": (frozenset({"scaled-dot"}),),
        "scan_expander": (frozenset({"scan"}),),
    },
    "fusion": {
        "factor-slicing": (opcodes(Trait.CUTS) | opcodes(Trait.CUTS_AT),),
        "fusion-opener": (frozenset({"fusion"}),),
        "gate-fusion": (frozenset({"while"}),),
        "prologue-fusion": (frozenset({"dot"}),),
        "scatter-fusion": (frozenset({"scatter"}),),
    },
    "movement": {
        "concatenate-flattening": (frozenset({"concatenate"}),),
        "gather-operand-transposer": (frozenset({"gather"}),),
        "reduction-operand-transposer": (frozenset({"reduce"}),),
        "scatter-operand-transposer": (frozenset({"scatter"}),),
        "select-sinking": (frozenset({"select"}),),
        "sort-operand-transposer": (frozenset({"sort"}),),
    },
    "reduction": {
        "narrow-scatter-rewriter": (frozenset({"scatter"}),),
        "scatter-splitting": (frozenset({"scatter"}),),
        "window-scan-rewriter": (frozenset({"reduce-window"}),),
        "window-separation": (frozenset({"reduce-window"}),),
    },
    "simplify": {
        "conditional-to-select": (frozenset({"conditional"}),),
        "flatten-call-graph": (opcodes(Trait.CALLS),),
        "index-narrower": (frozenset({"iota"}),),
        "simplify-conditional": (frozenset({"conditional"}),),
    },
    "while_loops": {
        "overwritten-start-remover": (frozenset({"while"}),),
        "row-update-mover": (frozenset({"while"}),),
        "table-lookup-mover": (frozenset({"while"}),),
        "while-loop-dot-batching": (frozenset({"while"}),),
        "while-loop-fusible-sinking": (frozenset({"while"}),),
        "while-loop-interchange": (frozenset({"while"}),),
        "while-loop-invariant-code-motion": (frozenset({"while"}),),
        "while-loop-ranges": (frozenset({"while"}),),
        "while-loop-rematerialization": (frozenset({"while"}),),
        "while-loop-state-splitting": (frozenset({"while"}),),
        "while-loop-state-transposer": (frozenset({"while"}),),
        "while-loop-sum-batching": (frozenset({"while"}), frozenset({"dot"})),
        "while-loop-unroller": (frozenset({"while"}),),
    },
}
NEEDS: dict[str, tuple[Set[str], ...]] = {
    name: needs for passes in _RARE.values() for name, needs in passes.items()
}


class Catalogue(MutableMapping[str, Pass]):
    """The passes by name; the rare ones are imported when the first of them is asked for."""

    def __init__(self) -> None:
        self._found: dict[str, Pass | None] = {
            name: _COMMON.get(name) for name in sorted({*_COMMON, *NEEDS})
        }

    def __contains__(self, name: object) -> bool:
        """Whether there is such a pass, which is not imported for that."""
        return name in self._found

    def __getitem__(self, name: str) -> Pass:
        found = self._found[name]
        return _rare(name) if found is None else found

    def __setitem__(self, name: str, function: Pass) -> None:
        self._found[name] = function

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _rare(name: str) -> Pass:
    from hlo.passes.pass_lookup import named_pass  # many programs need none of them

    room = next(room for room, passes in _RARE.items() if name in passes)
    return named_pass(room, name)


CATALOGUE = Catalogue()

LOOPS = (
    "flatten-call-graph",
    "table-lookup-mover",
    "while-loop-invariant-code-motion",
    "simplify-conditional",
    "tuple-simplifier",
    "while-loop-dot-batching",
    "while-loop-state-splitting",
    "while-loop-state-transposer",
    "tuple-simplifier",
    "dce",
)

# What runs after fusion, and after blocks are made: it takes out results that are only packed
# again, and constants and computations that kernels have copies of.
FUSED = ("tuple-simplifier", "dce")


def _written_out(*padder: str) -> tuple[str, ...]:
    """Ops written out as plainer ones."""
    return (
        "fusion-opener",
        "window-scan-rewriter",
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
    )


def _rewritten(algsimp: str) -> str:
    """Rounds of rewriting with the given form of algsimp."""
    return (
        f"fixpoint({algsimp},constant_folding,simplify-conditional,while-loop-ranges,"
        "while-loop-unroller,tuple-simplifier,cse,dce)"
    )


def _compiled(algsimp: str, *inexact: str) -> tuple[str, ...]:
    """What `compile` runs. inexact: passes that only fast mode runs."""
    return (
        *_written_out("dynamic_padder"),
        f"layers({','.join(_optimised(algsimp, *inexact))})",
    )


def _optimised(algsimp: str, *inexact: str) -> tuple[str, ...]:
    """What is done to each layer of a network."""
    return (
        _rewritten(algsimp),
        "rng-expander",
        "one-hot-rewriter",
        "masked-dot-rewriter",
        "while-loop-sum-batching",
        "while-loop-dot-batching",
        "dot-strength-reduction",
        "window-separation",
        "complex-sort-expander",
        "sort-operand-transposer",
        "scatter-operand-transposer",
        "reshape-mover",
        "while-loop-rematerialization",
        algsimp,
        "dot-strength-reduction",
        *LOOPS,
        "while-loop-fusible-sinking",
        "convert_operand_folding",
        "narrow-scatter-rewriter",
        "scatter-splitting",
        "index-narrower",
        "cse",
        "dce",
        "while-loop-interchange",
        "shift-lookups",
        "concatenate-parting",
        "score-order",
        "mask-skipping",
        "score-rows",
        "reduction-operand-transposer",
        "gather-operand-transposer",
        "concatenate-flattening",
        "row-update-mover",
        "overwritten-start-remover",
        *inexact,
        "dce",
        "zero-bands",
        "matrix-sharing",
        "select-sinking",
        "fusion",
        "gate-fusion",
        *FUSED,
        "prologue-fusion",
        "block-fusion",
        "prologue-fusion",
        "factor-slicing",
        "while-loop-blocking",
        *FUSED,
        "scatter-fusion",
    )


PIPELINES: dict[str, tuple[str, ...]] = {
    "": (),
    "simplify": (*_written_out(), _rewritten("algsimp")),
    "default": _compiled("algsimp"),
    "fast": _compiled("algsimp{inexact=true}", "winograd"),
}

# Rows (a, b, why): wherever both stand in a pipeline, the first a stands before the last b.
ORDER: tuple[tuple[str, str, str], ...] = (
    ("fusion-opener", "scan_expander", "what is expanded stands outside of fusions"),
    ("window-scan-rewriter", "scan_expander", "scans that it writes become loops"),
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
    ("dynamic_padder", "dot-strength-reduction", "what is valid along depth is cut out of the dot"),
    ("window-separation", "fusion", "what makes a window's array is fused into its first part"),
    ("algsimp", "sort-operand-transposer", "slices of the first of a sort are seen beside it"),
    ("complex-sort-expander", "sort-operand-transposer", "rows of parts are turned as others are"),
    ("sort-operand-transposer", "fusion", "what makes rows turns them where it is computed"),
    ("dynamic_padder", "window-separation", "what is valid of a window's array is known by then"),
    ("one-hot-rewriter", "dot-strength-reduction", "rows that are picked are no sums"),
    ("algsimp", "one-hot-rewriter", "what is counted and compared is in its simplest form"),
    ("cse", "masked-dot-rewriter", "factors that are masked alike share one mask"),
    ("matrix-sharing", "fusion", "a product that has been fused is not seen"),
    ("cse", "select-sinking", "what both sides of a select share is one value"),
    ("mask-skipping", "select-sinking", "what a mask leaves out is seen beside its select"),
    ("select-sinking", "fusion", "formulas inside of fusions are not seen"),
    ("masked-dot-rewriter", "fusion", "a sum of products is fused with what makes its factors"),
    (
        "while-loop-sum-batching",
        "dot-strength-reduction",
        "a product of all trips is looked at as others are",
    ),
    (
        "while-loop-dot-batching",
        "dot-strength-reduction",
        "a short product of every trip is a product of all trips first",
    ),
    ("while-loop-sum-batching", "while-loop-blocking", "sums that leave loops need no blocks"),
    ("algsimp", "dot-strength-reduction", "a product that was turned has few columns then"),
    ("dot-strength-reduction", "fusion", "a sum of products is fused with what makes its factors"),
    ("dynamic_padder", "call-inliner", "a reduction of what is valid calls the reducer as it was"),
    ("dynamic_padder", "map-expander", "maps of dynamic sizes stay maps"),
    ("dynamic_padder", "batchnorm_expander", "norms of dynamic sizes stay norms"),
    ("dynamic_padder", "algsimp", "sizes are arithmetic, of which most goes away"),
    ("dynamic_padder", "fusion", "what is padded is fused as any static program"),
    ("algsimp", "fusion", "rewrites do not look into fusions"),
    ("fusion", "block-fusion", "blocks are made of whole kernels"),
    ("fusion", "gate-fusion", "gates are a kernel of their own before they are the product's"),
    (
        "algsimp",
        "overwritten-start-remover",
        "memory that is not filled stands for zeros where nobody proved that it is not read",
    ),
    (
        "row-update-mover",
        "overwritten-start-remover",
        "kept rows are a start that is seen",
    ),
    ("cse", "row-update-mover", "the row that is taken and put back has one index"),
    ("cse", "overwritten-start-remover", "two loops write memory of their own"),
    ("overwritten-start-remover", "fusion", "updates inside fusions are not seen"),
    ("block-fusion", "factor-slicing", "blocks are made of products of whole arrays"),
    ("block-fusion", "while-loop-blocking", "a body whose values no cache holds has blocks inside"),
    ("gate-fusion", "while-loop-blocking", "a block's trip runs the kernels that the loop has"),
    (
        "overwritten-start-remover",
        "while-loop-blocking",
        "rows that are written are memory that blocks can share once nobody reads their start",
    ),
    ("fusion", "prologue-fusion", "what makes a factor is one kernel"),
    ("block-fusion", "prologue-fusion", "what leaves a product for its blocks may make a factor"),
    ("gate-fusion", "prologue-fusion", "gates are found behind products of whole arrays"),
    (
        "prologue-fusion",
        "block-fusion",
        "a factor that its product computes need not stay in a cache",
    ),
    ("while-loop-blocking", "scatter-fusion", "blocks are cut of scatters of whole arrays"),
    ("winograd", "fusion", "what is done to a convolution's results is done where they are placed"),
    ("algsimp", "winograd", "a convolution is known to have no holes or groups by then"),
    ("gate-fusion", "dce", "the computations of what was joined are nobody's"),
    ("mask-skipping", "fusion", "what a mask leaves out is not seen inside of fusions"),
    ("concatenate-parting", "score-order", "scores with others beside them are scores by then"),
    ("mask-skipping", "score-rows", "bands of scores are looped over by themselves"),
    ("score-rows", "overwritten-start-remover", "what its loops write begins as anything"),
    ("shift-lookups", "score-order", "lookups can be of another order, moves that mix rows cannot"),
    ("zero-bands", "fusion", "masks of factors are not seen inside of fusions"),
    ("mask-skipping", "zero-bands", "bands of scores are products of their own"),
    ("score-order", "mask-skipping", "bands are cut of scores in one order"),
    ("cse", "mask-skipping", "equal masks of scores and their gradients are one value"),
    ("fusion", "tuple-simplifier", "a kernel's results that are packed again are its own tuple"),
    ("while-loop-blocking", "tuple-simplifier", "blocks' results that are packed again, too"),
    ("fusion", "dce", "computations whose fusions were written out are nobody's"),
    (
        "while-loop-invariant-code-motion",
        "simplify-conditional",
        "before a loop its constants are seen, on which a conditional may choose",
    ),
    (
        "while-loop-invariant-code-motion",
        "convert_operand_folding",
        "what a loop need not convert again is converted before it",
    ),
    ("convert_operand_folding", "fusion", "what a product reads as it is needs no kernel"),
    (
        "while-loop-invariant-code-motion",
        "reduction-operand-transposer",
        "what a loop does not change is seen as an array that it reads",
    ),
    ("concatenate-flattening", "fusion", "what is joined inside fusions is not seen"),
    ("gather-operand-transposer", "fusion", "gathers inside fusions are not seen"),
    ("reduction-operand-transposer", "fusion", "reductions inside fusions are not seen"),
    ("scatter-operand-transposer", "algsimp", "what is turned may have been turned before"),
    ("scatter-operand-transposer", "fusion", "what is combined is turned where it is computed"),
    ("scatter-operand-transposer", "scatter-splitting", "tables of parts are batches, which stay"),
    ("narrow-scatter-rewriter", "fusion", "rows that are gathered and rounded are fused"),
    ("scatter-splitting", "fusion", "tables of parts are filled and summed by kernels of loops"),
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
        "while-loop-state-splitting",
        "what no trip changes need not be taken apart",
    ),
    (
        "while-loop-state-splitting",
        "while-loop-interchange",
        "rows go through a loop apart before their elements do",
    ),
    (
        "while-loop-invariant-code-motion",
        "while-loop-interchange",
        "what no trip changes need not act on each element by itself",
    ),
    (
        "while-loop-ranges",
        "while-loop-rematerialization",
        "rows that are taken in turn are known as such",
    ),
    (
        "while-loop-rematerialization",
        "while-loop-invariant-code-motion",
        "what is computed again leaves the loop where no trip changes it",
    ),
    (
        "while-loop-invariant-code-motion",
        "while-loop-fusible-sinking",
        "what left a loop by itself and costs little comes back, large as it is",
    ),
    ("while-loop-fusible-sinking", "mask-skipping", "a mask that is counted is seen to be"),
    ("while-loop-fusible-sinking", "cse", "what two states held is one value"),
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
