"""Scaled factors: a product of factors with subnormal numbers, made of larger ones.

    2^-(p + q) (2^p A) (2^q B)          p, q: the largest numbers become 2^40 to 2^41

Subnormal numbers become normal ones, exactly, so that the product takes what it takes of others,
and its sums lose less on the way: but for the last rounding they are as accurate. Scaling is done
on doubles, for which no processor takes an assist. Where a factor has a number from 2^18 on its
subnormal ones would stay what they are, or sums overflow: p and q are 0 there.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.control import ranged, when
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.kernels.contraction.problem.axes import Contraction, first_read, reach
from hlo.backend.lanes import masked
from hlo.ir import dtype as dt

_LANES = 16
_CHUNK = 1 << 12  # Numbers of a unit.
_TO, _MOST = 40, 17  # The exponents of the largest number afterwards, and of one that is scaled.


class Region(Struct, frozen=True):
    """The elements of an array that are a factor, the first (0) or the second (1), in any order."""

    number: int
    first: int
    size: int

    @property
    def copy_bytes(self) -> int:
        """Of a scaled copy, which begins where the array does."""
        return dt.F32.item_bytes * (self.first + self.size)


def regions(c: Contraction) -> dict[int, Region] | None:
    """Of each array of factors that can be scaled its elements; None where they cannot: they have
    to be f32, and begin where it is known.
    """
    factors = (c.lhs, c.rhs)
    if any(f.dtype is not dt.F32 or f.starts or f.prologue is not None for f in factors):
        return None
    if c.out is not dt.F32 or c.bounded_side:
        return None
    found: dict[int, Region] = {}
    for number, (side, factor) in enumerate(zip(("lhs", "rhs"), factors, strict=True)):
        region = Region(number, factor.offset + first_read(c, side), reach(c, side))
        known = found.setdefault(factor.buffer, region)
        if (known.first, known.size) != (region.first, region.size):
            return None
    return found


def scaled_kernel(region: Region) -> Kernel:
    """buffers: an array; its scaled copy; the maxima of both factors."""
    w = Writer()
    source, copy, maxima = (w.buffer_address(n) for n in range(3))
    scale = _power(w, _exponents(w, maxima)[region.number])
    units = _scaled(w, source, copy, scale, region.first, region.size)
    return Kernel(w.kernel_function(), units, *w.beside, bytes_moved=8 * region.size)


def rescaled_kernel(c: Contraction) -> Kernel:
    """buffers: the results of scaled factors, which become those of the factors; the maxima."""
    w = Writer()
    results, maxima = (w.buffer_address(n) for n in range(2))
    p, q = _exponents(w, maxima)
    scale = _power(w, w.binary("sub", w.int(0), w.binary("add", p, q)))
    size = c.batches * c.m * c.n
    units = _scaled(w, results, results, scale, 0, size)
    return Kernel(w.kernel_function(), units, *w.beside, bytes_moved=8 * size)


def _exponents(w: Writer, maxima: Value) -> tuple[Value, Value]:
    """p and q."""
    found = []
    for n in range(2):
        code = w.load(w.address(maxima, w.int(n), "i32"), "i32", 4)
        exponent = w.binary("sub", w.binary("lshr", code, w.int(23, "i32")), w.int(127, "i32"))
        found.append(w.cast("sext", exponent, "i64"))
    fit = w.binary("and", *(w.compare("icmp sle", e, w.int(_MOST)) for e in found))
    p, q = (w.select(fit, w.binary("sub", w.int(_TO), e), w.int(0)) for e in found)
    return p, q


def _power(w: Writer, exponent: Value) -> Value:
    """The power of two as a double."""
    code = w.binary("shl", w.binary("add", exponent, w.int(1023)), w.int(52))
    return w.cast("bitcast", code, "double")


def _scaled(w: Writer, source: Value, to: Value, scale: Value, first: int, size: int) -> int:
    """Write the scaled numbers of an array from `first` on; returns how many units do so."""
    type, wide = vector_of("float", _LANES), vector_of("double", _LANES)
    factor = w.splat(scale, _LANES)

    def vector(at: Value, mask: Value | None) -> None:
        place, target = (w.address(array, at, "float") for array in (source, to))
        numbers = w.cast("fpext", masked.load(w, type, place, 4, mask), wide)
        scaled = w.cast("fptrunc", w.binary("fmul", numbers, factor), type)
        masked.store(w, scaled, target, 4, mask)

    steps_of_unit, steps = _CHUNK // _LANES, size // _LANES
    units = max(1, -(-steps // steps_of_unit))
    begin = times(w, BEGIN, steps_of_unit)
    end = w.intrinsic("llvm.umin", "i64", times(w, END, steps_of_unit), w.int(steps))
    ranged(w, begin, end, lambda n: vector(add(w, times(w, n, _LANES), w.int(first)), None))
    if left := size % _LANES:
        last = w.int(first + size - left)
        mask = masked.first_of(left, _LANES)
        when(w, w.compare("icmp eq", END, w.int(units)), lambda: vector(last, mask))
    return units
