"""Small results: whether a product that takes subnormal numbers for zeros may miss something.

Each of its results misses k terms of less than 2^-126 A or B, for factors up to A and B, and what
sums on the way lose: less than k 2^-126 (A + B + 1) together. Beside results 2^30 times as large
that is less than a 16th of half a unit of the last place of f32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from hlo.backend.ir.arithmetic import times
from hlo.backend.ir.control import loop, set_flag
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.kernels.contraction.problem.axes import Contraction, Operand, first_read, reach
from hlo.backend.kernels.contraction.problem.offsets import address_0, offsets_of
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

MAXIMA_BYTES = 8  # Of the largest magnitudes of two factors.
_BYTES = 64  # Of a vector.
# Products for each number of a factor or the result, from which on looking at all of these takes
# little beside.
_LEAST_REUSE = 24
_LEAST_FLOPS = 1 << 17  # Beside which the calls of the kernels that look take little.


def can_be_told(c: Contraction, at_most_two: Collection[int]) -> bool:
    """Whether the results are there to be looked at, and that takes little beside the product.
    at_most_two: the buffers of factors that are.
    """
    types = (c.lhs.dtype, c.rhs.dtype, c.out)
    is_partial = c.bounded_side not in ("", "depth")
    if any(t not in (dt.F32, dt.BF16) for t in types) or c.adds or is_partial:
        return False
    sizes = {c.lhs.buffer: reach(c, "lhs"), c.rhs.buffer: reach(c, "rhs")}
    count = c.batches * c.m * c.n
    looked = count + sum(size for place, size in sizes.items() if place not in at_most_two)
    is_long = min(count, *sizes.values()) >= _BYTES // dt.BF16.item_bytes  # vectors of any type
    return is_long and c.flops >= max(_LEAST_FLOPS, 2 * _LEAST_REUSE * looked)


def small_results_kernel(c: Contraction, at_most_two: Collection[int]) -> Kernel:
    """buffers: the factors; the results; a byte that becomes 1 where some result is small beside
    what it may miss, or NaN; the magnitudes of the factors' largest numbers, 2 of what is at most
    2; starts of the factors. at_most_two: the buffers of factors that are.
    """
    w = Writer()
    left, right, results, flag, maxima = (w.buffer_address(n) for n in range(5))
    arrays = (address_0(w, left, c.lhs, 5), address_0(w, right, c.rhs, 5 + offsets_of(c.lhs)))
    known = [factor.buffer in at_most_two for factor in (c.lhs, c.rhs)]
    lhs, rhs = (
        w.float(2.0) if is_known else _largest(w, c, side, array)
        for side, array, is_known in zip(("lhs", "rhs"), arrays, known, strict=True)
    )
    for n, largest in enumerate((lhs, rhs)):
        w.store(largest, w.address(maxima, w.int(n), "float"), 4)
    most = w.binary("fadd", w.binary("fadd", lhs, rhs), w.float(1.0))
    most = w.binary("fmul", most, w.float(float(c.k) * 2.0 ** (30 - 126)))
    code, type = w.cast("bitcast", most, "i32"), _codes(c.out)
    if c.out is dt.BF16:
        code = w.cast("trunc", w.binary("lshr", code, w.int(16, "i32")), "i16")
    bound = w.splat(code, _lanes(c.out))
    infinity = w.int(_infinity(c.out), type)

    def looked(size: Value, some: Value) -> Value:
        small, nan = w.compare("icmp ule", size, bound), w.compare("icmp ugt", size, infinity)
        return w.binary("or", some, w.binary("or", small, nan))

    count = c.batches * c.m * c.n
    none = w.zero(vector_of("i1", _lanes(c.out)))
    set_flag(w, _over(w, results, c.out, count, none, looked), flag)
    unknown = [side for side, is_known in zip(("lhs", "rhs"), known, strict=True) if not is_known]
    read = sum(reach(c, side) * getattr(c, side).dtype.item_bytes for side in unknown)
    return Kernel(w.kernel_function(), 1, *w.beside, bytes_moved=read + count * c.out.item_bytes)


def _largest(w: Writer, c: Contraction, side: str, array: Value) -> Value:
    """The magnitude of a factor's largest number; a NaN if it has one."""
    factor: Operand = getattr(c, side)
    dtype, type = factor.dtype, _codes(factor.dtype)
    first = element_address(w, array, w.int(first_read(c, side)), dtype)
    larger = partial(w.intrinsic, "llvm.umax", type)
    most = _over(w, first, dtype, reach(c, side), w.zero(type), larger)
    suffix = f"v{_lanes(dtype)}i{dtype.bits}"
    code = w.intrinsic("llvm.vector.reduce.umax", f"i{dtype.bits}", most, suffix=suffix)
    if dtype is dt.BF16:
        code = w.binary("shl", w.cast("zext", code, "i32"), w.int(16, "i32"))
    return w.cast("bitcast", code, "float")


def _over(
    w: Writer,
    array: Value,
    dtype: DType,
    count: int,
    first: Value,
    body: Callable[[Value, Value], Value],
) -> Value:
    """What becomes of `first` by the codes of the magnitudes of all elements, a vector at a time;
    the last elements may come twice.
    """
    type, lanes = _codes(dtype), _lanes(dtype)
    magnitude = w.int((1 << dtype.bits - 1) - 1, type)

    def sizes(position: Value) -> Value:
        codes = w.load(w.address(array, position, f"i{dtype.bits}"), type, dtype.item_bytes)
        return w.binary("and", codes, magnitude)

    def one(n: Value, state: list[Value]) -> Sequence[Value]:
        return [body(sizes(times(w, n, lanes)), state[0])]

    (result,) = loop(w, w.int(count // lanes), [first], one)
    return body(sizes(w.int(count - lanes)), result) if count % lanes else result


def _lanes(dtype: DType) -> int:
    return _BYTES // dtype.item_bytes


def _codes(dtype: DType) -> str:
    return vector_of(f"i{dtype.bits}", _lanes(dtype))


def _infinity(dtype: DType) -> int:
    """Its code: f32's, or the upper half of it."""
    return 0x7F800000 >> 32 - dtype.bits
