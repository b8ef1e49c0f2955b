"""Buffer numbers: where a contraction's arrays stand in the list of buffers of its kernels.

Contraction of a dot or convolution, BufferNumbers --placed--> the same of those buffers
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.factors import Factor, factor_of, prologue_of
from hlo.analysis.leaves import leaves_of
from hlo.backend.kernels.contraction.problem.axes import Computed, Contraction, Operand, Start
from hlo.ir.instruction import Instruction


class Place(Struct, frozen=True):
    """The buffer that holds a factor, and where the factor begins in it."""

    buffer: int
    offset: int = 0
    starts: tuple[Start, ...] = ()
    prologue: Computed | None = None

    @property
    def moved(self) -> tuple[int, ...]:
        """The buffers of arrays that are not the factor as they lie there."""
        if self.prologue is not None:
            return self.prologue.buffers
        return (self.buffer,) if self.starts else ()


class BufferNumbers(Struct, frozen=True):
    """Places of a contraction's arrays among its kernels' buffers.

    temporaries: they come from there on.
    """

    lhs: Place = Place(0)
    rhs: Place = Place(1)
    result: int = 2
    temporaries: int = 3

    @property
    def moved(self) -> frozenset[int]:
        """The arrays of which a factor is a part that only the run knows, or is computed."""
        return frozenset((*self.lhs.moved, *self.rhs.moved))


DOT_BUFFERS = BufferNumbers()


def fusion_buffers(fusion: Instruction, contraction: Instruction) -> BufferNumbers:
    """Those of a fusion around a contraction: its operands, its results, temporaries."""
    lhs, rhs = map(place_of, contraction.operands)
    count = len(fusion.operands)
    return BufferNumbers(lhs, rhs, count, temporaries=count + len(leaves_of(fusion.shape)))


def place_of(operand: Instruction) -> Place:
    """A factor in a fusion, among the fusion's operands."""
    factor = factor_of(operand)
    if factor is None:
        arrays = prologue_of(operand)
        assert arrays is not None, "output fusions multiply parameters, or what is computed of them"
        buffers = tuple(map(fusion_number, arrays))
        return Place(buffers[0], prologue=Computed(operand, arrays, buffers))
    return Place(fusion_number(factor.array), factor.offset, _starts(factor))


def _starts(factor: Factor) -> tuple[Start, ...]:
    return tuple(
        Start(fusion_number(s.index), s.index.shape.dtype, s.most, s.stride) for s in factor.starts
    )


def fusion_number(parameter: Instruction) -> int:
    """Which operand of the fusion a parameter is."""
    number = parameter["parameter_number"]
    assert isinstance(number, int), "an INT64"
    return number


def placed(c: Contraction, buffers: BufferNumbers) -> Contraction:
    """The contraction of those buffers."""
    return replace(
        c,
        lhs=_moved(c.lhs, buffers.lhs),
        rhs=_moved(c.rhs, buffers.rhs),
        out_buffer=buffers.result,
    )


def _moved(operand: Operand, place: Place) -> Operand:
    offset = operand.offset + place.offset
    return replace(
        operand, buffer=place.buffer, offset=offset, starts=place.starts, prologue=place.prologue
    )
