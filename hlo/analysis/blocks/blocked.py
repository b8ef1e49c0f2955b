"""Blocked fusions: those that run block by block, as their text says."""

from __future__ import annotations

from hlo.ir.instruction import Instruction

KIND = "kCustom"  # The kind of fusions that run block by block.


def is_blocked(fusion: Instruction) -> bool:
    """Whether a fusion is run block by block."""
    if fusion.attributes.get("kind") != KIND:
        return False
    from hlo.analysis.blocks.size import block_of  # few programs have large values

    return block_of(fusion) is not None
