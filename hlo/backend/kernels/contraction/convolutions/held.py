"""A padded convolution's copies between zeros, of elements as matrix units and words take them.

bf16 stays bf16, integers of up to 8 bits stay what they are: matrix units take them so, and the
array becomes words of quads, whose zeros are moved with the others. Features of which no quads are
whole become pairs of s16.
"""

from __future__ import annotations

from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.convolutions.convolution import (
    AS_THEY_ARE,
    PAIRS,
    Base,
    convolution_contraction,
)
from hlo.backend.kernels.contraction.problem.axes import Contraction, normal
from hlo.backend.kernels.contraction.problem.ring import Ring, ring_of
from hlo.backend.kernels.contraction.problem.tiles import tiles_of
from hlo.backend.kernels.contraction.words.words import in_words
from hlo.ir.instruction import Instruction

WORD_BITS = 32  # Of which elements are at most half.


def held_as_multiplied(instruction: Instruction, target: Target) -> tuple[Contraction, Base, Base]:
    """The contraction and its factors, copied so where tiles or words are multiplied; else as
    numbers.
    """
    ring = ring_of(instruction.shape.dtype, target)
    if any(o.shape.dtype.bits > WORD_BITS // 2 for o in instruction.operands):
        return convolution_contraction(instruction)
    for held in (AS_THEY_ARE, PAIRS):
        made = convolution_contraction(instruction, held)
        is_copied = any(array.padded for array in made[1:])
        if is_copied and _is_served(normal(made[0], ring.lanes), ring):
            return made
    return convolution_contraction(instruction)


def _is_served(c: Contraction, ring: Ring) -> bool:
    """Whether matrix units or words multiply elements as they are held."""
    if tiles_of(c, ring) is None:
        return in_words(c, ring) is not None
    from hlo.backend.kernels.contraction.matrix_units.amx import tile_plan  # few machines have them

    return tile_plan(c, ring) is not None or in_words(c, ring) is not None
