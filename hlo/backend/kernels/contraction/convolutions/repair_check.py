"""Repair check: whether a padded convolution has anything to be repaired (repair.py), as a byte.

The product multiplies the zeros that stand for positions outside of the base, and zero times a
number that is not finite is NaN. Where all that met zeros is finite, or all of the kernel is NaN,
there is nothing to repair. There is something only if a factor that met zeros has a number that is
not finite, and if some result is NaN; what takes less to look through is looked through first.
Factors are by a kernel of one unit, which is short beside the product; results by the product
itself as they leave its registers, for later half of them would come from another processor's
cache.
"""

from __future__ import annotations

from math import prod

from hlo.backend.ir.control import set_flag, when
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Writer
from hlo.backend.kernels.contraction.convolutions.finiteness import (
    note_not_finite,
    note_number,
    vectors_of,
)
from hlo.backend.kernels.contraction.convolutions.form import Form, Spatial, is_nan
from hlo.backend.kernels.contraction.problem.result import Epilogue, Lanes
from hlo.backend.kernels.contraction.problem.ring import Parts, Ring, narrowed
from hlo.ir.dtype import DType
from hlo.machine import COMMON

# Vectors of results that the product tests in the time of reading one vector of a factor.
CHECK = 3
# The sums of fewer positions take no longer than reading a kernel that comes from far.
FEW_POSITIONS = 16
LARGE_BYTES = COMMON.second_cache.bytes // 16  # Kernels from this size on come from a far cache.


def reads_factors_first(form: Form, sides: tuple[int, ...]) -> bool:
    """Whether the factors that meet zeros take less looking than the results."""
    read = sum(vectors_of(form.ring, form.shapes[side]) for side in sides)
    return CHECK * read <= vectors_of(form.ring, form.shapes[2])


def reads_results_alone(form: Form, sides: tuple[int, ...]) -> bool:
    """Whether summing again takes no longer than looking through the factors."""
    positions = form.images * prod(form.out[s.out] for s in form.spatial)
    read = sum(form.shapes[side].size_bytes for side in sides)
    return positions < FEW_POSITIONS and read >= LARGE_BYTES


def noting(ring: Ring, dtype: DType, flag: int) -> Epilogue:
    """The result as it is; the byte in buffer `flag` becomes 1 where some of it is NaN."""

    def apply(w: Writer, sums: Parts, lanes: Lanes) -> Parts:
        nan = is_nan(w, sums)
        if lanes.mask is not None:
            nan = w.binary("and", nan, lanes.mask)
        set_flag(w, nan, lanes.others[0])
        return narrowed(w, ring, dtype, sums)

    return Epilogue(dtype, apply, others=(flag,))


def check_kernel(form: Form, sides: tuple[int, ...]) -> Kernel:
    """buffers: lhs, rhs, the byte: 1 where a factor is not finite among what met zeros, else 0.

    sides: the factors that meet zeros.
    """
    w = Writer()
    memory = [w.buffer_address(place) for place in range(3)]
    found = w.alloca("i64", 8)
    w.store(w.int(0), found, 8)
    for side in sides:
        note_not_finite(w, form.ring, memory[side], form.shapes[side], found)
    if sides == (1,) and all(_always_meets(form, s) for s in form.spatial):

        def number() -> None:  # else every product is NaN, and rightly
            w.store(w.int(0), found, 8)
            note_number(w, form.ring, memory[1], form.shapes[1], found)

        when(w, w.compare("icmp ne", w.load(found, "i64", 8), w.int(0)), number)
    w.store(w.cast("trunc", w.load(found, "i64", 8), "i8"), memory[2], 1)
    read = sum(form.shapes[side].size_bytes for side in sides)
    return Kernel(w.kernel_function(), 1, *w.beside, bytes_moved=read)


def _always_meets(form: Form, s: Spatial) -> bool:
    """Whether each window meets an element of the base."""
    w, size = s.window, form.shapes[0].dims[s.lhs]
    last = (form.out[s.out] - 1) * w.stride - w.pad_low
    is_dense = w.base_dilation == w.window_dilation == 1
    return is_dense and w.size > w.pad_low and last < size
