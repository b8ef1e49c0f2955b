"""Subnormal factors: products of few such numbers by many others, without the assist for each.

    the small factor has some -> the product on doubles, of which none is subnormal; else the usual

To look at a vector takes little beside its product with a matrix, at a window of taps beside its
convolution with a signal. Longer factors have ways of their own (flushed_products.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.kernel import NONE_KNOWN, Kernel, KernelCall, KernelSequence
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import Contraction, reach
from hlo.backend.kernels.contraction.problem.buffer_numbers import BufferNumbers, Place
from hlo.backend.kernels.contraction.sequence import ContractionSequence
from hlo.backend.kernels.contraction.words.subnormal_check import (
    can_be_looked_at,
    first_address,
    has_subnormals,
)
from hlo.backend.kernels.versions import of_read
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction

# Products of an element, and operations in all, beside which looking takes little: a recurrent cell
# of 32 units took 1.04 of the time.
_LEAST_REUSE, _LEAST_FLOPS = 24, 1 << 12
# Each part of a kernel that threads take looks by itself: so many, of so many operations at least.
_MOST_PARTS, _PART_FLOPS = 16, 1 << 18


class Looked(Struct, frozen=True):
    """A factor that is looked at: its place in the sequence's buffers, the address of the first
    element that is read, by its array's, and how many there are.
    """

    place: int
    first: Callable[[Writer, Value], Value]
    size: int


def finished(sequence: ContractionSequence, c: Contraction, tails: Sequence[str]) -> KernelSequence:
    """The sequence's product, in versions where it is one kernel. tails: the sides whose factors
    are likely to have subnormal numbers.
    """
    first, calls = len(sequence.calls), sequence.calls
    made = sequence.finished(c)
    own = [n for n in range(first, len(calls)) if not calls[n].is_early]
    if len(own) != 1:
        return made

    def alone(target: Target) -> KernelCall | None:
        """The product where nothing is packed for it, if operands and results may be one array as
        they are in the usual one.
        """
        epilogue_of, buffers = sequence.epilogue_of, sequence.buffers
        other = ContractionSequence(target, epilogue_of, buffers, NONE_KNOWN)
        other.temporaries = list(sequence.temporaries)
        careful = other.finished(c)
        if len(careful.calls) != 1 or careful.in_place < made.in_place:
            return None
        return careful.calls[0] if careful.must_alias == made.must_alias else None

    factors = _factors_of(c, tails)
    calls[own[0]] = in_versions(calls[own[0]], alone, factors, sequence.target)
    return sequence.made()


def _factors_of(c: Contraction, sides: Sequence[str]) -> list[Looked]:
    """Of a product in memory, where these are f32 and lie as they are."""
    if {c.lhs.dtype, c.rhs.dtype, c.out} != {dt.F32}:
        return []
    return [
        Looked(factor.buffer, partial(_first_of_side, c, side), reach(c, side))
        for side in sides
        if not (factor := getattr(c, side)).starts
        and factor.prologue is None
        and factor.joined is None
    ]


def _first_of_side(c: Contraction, side: str, w: Writer, array: Value) -> Value:
    return first_address(w, c, side, array, 0)


def arrays_of(
    convolution: Instruction, buffers: BufferNumbers, sides: Sequence[str]
) -> list[Looked]:
    """Of a convolution that reads its operands themselves, where all are f32."""
    places = {"lhs": buffers.lhs, "rhs": buffers.rhs}
    sizes = {"lhs": convolution.operands[0].shape.size, "rhs": convolution.operands[1].shape.size}
    if {i.shape.dtype for i in (convolution, *convolution.operands)} != {dt.F32}:
        return []
    return [
        Looked(places[side].buffer, lambda _, array: array, sizes[side])
        for side in sides
        if places[side] == Place(places[side].buffer)
    ]


def in_versions(
    call: KernelCall,
    careful_for: Callable[[Target], KernelCall | None],
    factors: Iterable[Looked],
    target: Target,
) -> KernelCall:
    """The call, of a kernel in versions where that gains.

    careful_for: the same call, as a target has it that makes products on doubles; None where it
    is none. factors: those that may have subnormal numbers.
    """
    usual = call.kernel
    looked = [one for one in factors if one.place in call.buffers and _gains(one.size, usual)]
    if not looked or not can_be_looked_at(target):
        return call
    careful = careful_for(replace(target, on_doubles=True, schedules=None))
    if careful is None or careful.buffers != call.buffers:
        return call
    places = [call.buffers.index(one.place) for one in looked]

    def found(w: Writer) -> Value:
        some = [
            has_subnormals(w, one.first(w, w.buffer_address(place)), one.size, dt.F32, target)
            for place, one in zip(places, looked, strict=True)
        ]
        return w.any_lane(*some)

    kernel = of_read(usual, careful.kernel, found)
    if target.schedules is not None:
        target.schedules.enter_same(kernel.text, usual.text)
    return replace(call, kernel=kernel)


def _gains(size: int, kernel: Kernel) -> bool:
    """Whether it takes little to look at so many elements in each part of the kernel."""
    parts = max(1, min(kernel.units, _MOST_PARTS, kernel.flops // _PART_FLOPS))
    return kernel.flops >= max(_LEAST_FLOPS, 2 * _LEAST_REUSE * size * parts)
