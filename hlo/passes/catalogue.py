"""The pass catalogue and the pipelines: plain data.

A pass is a function `Module -> bool changed`; its keyword parameters are its options; the first
line of its docstring is its entry in `--list-passes`. A pass that XLA has bears XLA's name, in
XLA's spelling; the others are ours. Some passes are about ops that few programs have: these say so
in NEEDS, and are imported by pass_lookup.py. What stands before what, and why, is in order.py.
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
        "dot-operand-transposer": (frozenset({"dot"}),),
        "gather-operand-transposer": (frozenset({"gather"}),),
        "reduction-operand-transposer": (frozenset({"reduce"}),),
        "scatter-operand-transposer": (frozenset({"scatter"}),),
        "select-sinking": (frozenset({"select"}),),
        "sort-operand-transposer": (frozenset({"sort"}),),
        "transpose-cancellation": (frozenset({"transpose"}),),
    },
    "reduction": {
        "narrow-scatter-rewriter": (frozenset({"scatter"}),),
        "reduction-joining": (frozenset({"reduce"}),),
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
        "while-loop-result-batching": (frozenset({"while"}), frozenset({"dot"})),
        "while-loop-state-splitting": (frozenset({"while"}),),
        "while-loop-state-transposer": (frozenset({"while"}),),
        "while-loop-sum-batching": (frozenset({"while"}),),
        "while-loop-transpose-sinking": (frozenset({"while"}), frozenset({"transpose"})),
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
    "while-loop-result-batching",
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
        "while-loop-result-batching",
        "dot-strength-reduction",
        "window-separation",
        "complex-sort-expander",
        "sort-operand-transposer",
        "scatter-operand-transposer",
        "reshape-mover",
        "transpose-cancellation",
        "while-loop-rematerialization",
        "while-loop-transpose-sinking",
        algsimp,
        "dot-strength-reduction",
        "dot-operand-transposer",
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
        "reduction-joining",
    )


PIPELINES: dict[str, tuple[str, ...]] = {
    "": (),
    "simplify": (*_written_out(), _rewritten("algsimp")),
    "default": _compiled("algsimp"),
    "fast": _compiled("algsimp{inexact=true}", "winograd", "cse"),
}


def option_types(function: Pass) -> dict[str, object]:
    """The pass's options with their defaults."""
    return dict(function.__kwdefaults__ or {})


def first_line(function: Pass) -> str:
    """What a pass does, in its own words."""
    return (function.__doc__ or "").strip().split("\n")[0]
