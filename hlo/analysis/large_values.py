"""Large values: those that caches do not hold, so that it pays to keep them from being written out.

Most programs have none: what is known of these (blocks/size.py, and the passes of
hlo/passes/large_values.py) is imported when there is one.
"""

from __future__ import annotations

from hlo.analysis.fusibility import is_padded
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON

# The least bytes of values that blocks keep from being written out.
LEAST_SAVED_BYTES = COMMON.second_cache.bytes // 4
LEAST_SCORES_BYTES = COMMON.last_cache.bytes  # Of fewer scores nothing is left out or moved.


def is_worth_a_look(instruction: Instruction) -> bool:
    """Whether a value is large, or what a convolution makes of one that it pads."""
    return is_large(instruction) or padded_bytes(instruction) >= LEAST_SAVED_BYTES


def is_large(instruction: Instruction) -> bool:
    """Whether keeping a value from being written out saves anything."""
    return instruction.shape.is_array and instruction.shape.size_bytes >= LEAST_SAVED_BYTES


def padded_bytes(instruction: Instruction) -> int:
    """The bytes, at least, of the padded images that a convolution makes of its own."""
    if instruction.opcode != "convolution" or not is_padded(instruction):
        return 0
    return instruction.operands[0].shape.size_bytes
