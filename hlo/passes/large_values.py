"""Large values: the passes about what no cache holds.

Few programs have any, and what these passes know of them takes a while to import: so it is, when
there are some.
"""

from __future__ import annotations

from hlo.analysis.fusibility import contraction_of
from hlo.analysis.large_values import (
    LEAST_SAVED_BYTES,
    LEAST_SCORES_BYTES,
    is_worth_a_look,
    padded_bytes,
)
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.fusion.fusion import called_by_ops
from hlo.passes.rewriting import Limits, apply_rules
from hlo.passes.simplify.cse import cse

_MOVES_OF_FACTORS = Limits(only=frozenset({"dot-of-transpose"}))


def block_fusion(module: Module) -> bool:
    """Run chains over large values block by block, so that those values stay in the cache.

    From every large value with its consumers, a group grows over further large values
    (block_fusion.py). O(edges) for each of them.
    """
    inside = called_by_ops(module)
    if not any(_has_chains(c) for c in module.computations if c not in inside):
        return False
    from hlo.passes.blocks.block_fusion import fuse_blocks

    return fuse_blocks(module)


def _has_chains(computation: Computation) -> bool:
    """Whether a large value is made and read here, by two kernels that blocks may join, or padded
    by a convolution that may be a block by itself; or a fusion has a product of scores, which may
    leave it.
    """
    large = [i for i in computation.instructions if is_worth_a_look(i)]
    return any(i.users and i.opcode not in ("parameter", "constant") for i in large) or (
        bool(large)
        and any(_is_padded(i) or _has_scores_inside(i) for i in computation.instructions)
    )


def _is_padded(instruction: Instruction) -> bool:
    return padded_bytes(instruction) >= LEAST_SAVED_BYTES


def _has_scores_inside(fusion: Instruction) -> bool:
    dot = contraction_of(fusion) if fusion.get("kind") == "kOutput" else None
    if dot is None:
        return False
    return max(v.shape.size_bytes for v in (dot, *dot.operands)) >= LEAST_SCORES_BYTES


def concatenate_parting(module: Module) -> bool:
    """Compute of long rows with a few columns beside them as of two arrays.

    O(instructions) for each large concatenate (concatenate_parting.py).
    """
    if not any(
        i.opcode == "concatenate" and i.shape.size_bytes >= LEAST_SCORES_BYTES
        for computation in module.computations
        for i in computation.instructions
    ):
        return False
    from hlo.passes.scores.concatenate_parting import part_concatenates

    return part_concatenates(module)


def shift_lookups(module: Module) -> bool:
    """Look up shifted rows of scores, instead of moving what rows begin at (shift_lookups.py).

    O(instructions) for each large move.
    """
    if not _has_scores(module):
        return False
    from hlo.passes.scores.shift_lookups import look_shifts_up

    return look_shifts_up(module)


def score_order(module: Module) -> bool:
    """Put scores of grouped heads, laid out in several orders, into one (scores/order.py).

    Factors that it turned are read as they lie where their product can, and equal values are one,
    so that the pipeline finds nothing to do on what it made. O(instructions) for each large
    product.
    """
    if not _has_scores(module):
        return False
    from hlo.passes.scores.order import order_scores

    if not order_scores(module):
        return False
    apply_rules(module, _MOVES_OF_FACTORS)
    cse(module)
    return True


def score_rows(module: Module) -> bool:
    """Compute scores whose heads are mixed some rows at a time, in a loop (scores/rows.py).

    O(instructions) for each large product.
    """
    if not _has_scores(module):
        return False
    from hlo.passes.scores.rows import loop_over_rows

    return loop_over_rows(module)


def mask_skipping(module: Module) -> bool:
    """Leave out scores of which a mask shows that nothing comes of them (mask_skipping.py).

    O(instructions) for each select over large scores.
    """
    if not _has_scores(module):
        return False
    from hlo.passes.scores.mask_skipping import skip_masked_scores

    return skip_masked_scores(module)


def _has_scores(module: Module) -> bool:
    return any(
        i.opcode == "dot" and i.shape.is_array and i.shape.size_bytes >= LEAST_SCORES_BYTES
        for computation in module.computations
        for i in computation.instructions
    )
