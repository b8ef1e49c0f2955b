"""Zero check: whether a product may leave out what the zeros of a factor meet.

    Decisions.zeros of a dot --bands_of_zeros--> Bands --limited--> the plan that leaves depths out,
    where it pays;   checks_of(contraction) --> kernels that check whether it may

That a factor is zero outside of a band is said by the text, and believed by nobody: before such a
product the run checks whether what is said to be zero is +0 or -0, and whether all that such zeros
may meet is finite (0 times infinity is NaN). Where it is not, the product is made of all depths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from hlo.analysis.bands import ALL, FAR, Band
from hlo.analysis.decisions import decisions_of
from hlo.backend.ir.arithmetic import add, split_index, strided, times
from hlo.backend.ir.control import each, ranged, set_flag
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.kernels.check_flag import CHECKED_AT_ONCE
from hlo.backend.kernels.contraction.problem.axes import (
    Axis,
    Bands,
    Contraction,
    Operand,
    only,
    reach,
)
from hlo.backend.kernels.contraction.problem.offsets import address_0
from hlo.backend.kernels.contraction.problem.ring import element_address, is_plain
from hlo.backend.kernels.contraction.products.band_limits import share_of
from hlo.backend.kernels.contraction.products.plan import ProductPlan
from hlo.backend.lanes import masked
from hlo.indexing.queries import operand_dims
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON

LEAST = 64  # Rows, columns and depths.
MOST_SHARE = 0.85  # Of the products.
_OTHER = {"lhs": "rhs", "rhs": "lhs"}


def bands_of_zeros(dot: Instruction) -> Bands:
    """Where the text says that factors are not zero, by the contraction's axes."""
    said = decisions_of(dot).zeros
    if not said or len(dot.operands) != 2:
        return Bands()
    own, depth = operand_dims(dot)
    found = [ALL, ALL]
    for side, first, second, low, high in said:
        if side not in (0, 1) or len(depth) != 1:
            continue
        free = [pair[side] for pair in own if pair[1 - side] is None]
        band = _opened(Band(low, high), dot.operands[side].shape.dims, first, second)
        if free == [first] and second == depth[0][side]:
            found[side] = found[side].meet(band)
        elif free == [second] and first == depth[0][side]:
            found[side] = found[side].meet(band.transposed)
    return Bands(lhs=found[0], rhs=found[1])


def _opened(band: Band, dims: Sequence[int], first: int, second: int) -> Band:
    """The band without ends that leave nothing out."""
    if not {first, second} <= set(range(len(dims))):
        return ALL
    low = min(band.low, FAR) if band.low > 1 - dims[first] else -FAR
    return Band(low, max(band.high, -FAR) if band.high < dims[second] - 1 else FAR)


def limited(plan: ProductPlan) -> ProductPlan | None:
    """The plan without the depths at which factors are said to be zero; None where there are none,
    or too few to check for. The same for all machines: signs of zeros may depend on it.
    """
    c, ring = plan.contraction, plan.ring
    if not c.zeros.has_depths or c.is_diagonal or min(c.m, c.n, c.k) < LEAST:
        return None
    if c.lhs.prologue is not None or c.rhs.prologue is not None:
        return None  # there is nothing in memory to check at
    is_float = ring.dot is None and ring.parts == 1 and ring.scalar in ("float", "double")
    if not is_float or len(plan.nest) != 1 or max(map(len, (c.rows, c.columns, c.depth))) != 1:
        return None
    if not all(is_plain(f.dtype, ring.factors) for f in (c.lhs, c.rhs)):
        return None
    if any(_runs(c, side) is None for side in ("lhs", "rhs")):
        return None
    bands = replace(c.zeros, result=c.bands.result)
    found = replace(plan, contraction=replace(c, bands=bands))
    share, rates = share_of(found), COMMON.rates
    saved = (share_of(plan) - share) * c.flops / rates.contracted_ops
    looked = sum(reach(c, side) * ring.scalar_bytes for side in ("lhs", "rhs"))
    pays = saved > looked / rates.memory_bytes + 3 * rates.share_us
    return found if pays and share <= MOST_SHARE * share_of(plan) else None


def checks_of(c: Contraction) -> Iterator[tuple[Kernel, str, str]]:
    """The kernels, which factor each checks, and what for. c: with its bands."""
    for side in ("lhs", "rhs"):
        if not getattr(c.bands, side).is_all:
            yield _zero_kernel(c, side), side, "other numbers where it is said to be zero"
        if not getattr(c.bands, _OTHER[side]).is_all:
            yield _finite_kernel(c, side), side, "numbers that are not finite"


def _runs(c: Contraction, side: str) -> tuple[Axis, Axis, Band] | None:
    """A factor's axes, the one in runs last, and its band by them; None where neither is."""
    (free,) = only(c.rows if side == "lhs" else c.columns, side)
    (depth,) = only(c.depth, side)
    band: Band = getattr(c.zeros, side)
    strides = getattr(free, side), getattr(depth, side)
    if strides[1] == 1:
        return free, depth, band
    return (depth, free, band.transposed) if strides[0] == 1 else None


class _ZeroCheck:
    """A kernel that checks runs of one factor. buffers: the factor, the byte that becomes 1
    where something is found, starts."""

    def __init__(self, c: Contraction, side: str) -> None:
        self.w = w = Writer()
        self.factor: Operand = getattr(c, side)
        self.source, self.flag = (w.buffer_address(n) for n in range(2))
        self.source = address_0(w, self.source, self.factor, 2)
        self.bits = self.factor.dtype.bits
        self.lanes = 512 // self.bits

    def run(self, first: Value, count: Value, is_found: Callable[[Value], Value]) -> None:
        """`count` numbers from element `first` on; is_found: of twice their bits, so that signs are
        away.
        """
        w, lanes = self.w, self.lanes
        type = vector_of(f"i{self.bits}", lanes)
        steps = w.binary("udiv", add(w, count, w.int(lanes - 1)), w.int(lanes))

        def at_step(n: Value) -> None:
            done = times(w, n, lanes)
            left = w.binary("sub", count, done)
            mask = w.compare("icmp ult", counted("i64", lanes), w.splat(left, lanes))
            at = element_address(w, self.source, add(w, first, done), self.factor.dtype)
            codes = masked.load(w, type, at, self.bits // 8, mask)
            found = is_found(w.binary("shl", codes, w.int(1, type)))
            set_flag(w, found, self.flag)

        ranged(w, w.int(0), steps, at_step)

    def kernel(self, units: int, size: int) -> Kernel:
        w = self.w
        return Kernel(w.kernel_function(), units, *w.beside, bytes_moved=size * self.bits // 8)


def _finite_kernel(c: Contraction, side: str) -> Kernel:
    """Infinities and NaNs among all that lies between the first and the last element."""
    check, size = _ZeroCheck(c, side), reach(c, side)
    w, type = check.w, vector_of(f"i{check.bits}", check.lanes)
    infinity = {32: 0xFF000000, 64: 0xFFE0000000000000}[check.bits]

    def unit(n: Value) -> None:
        first = times(w, n, CHECKED_AT_ONCE)
        count = w.intrinsic(
            "llvm.umin", "i64", w.binary("sub", w.int(size), first), w.int(CHECKED_AT_ONCE)
        )
        check.run(first, count, lambda codes: w.compare("icmp uge", codes, w.int(infinity, type)))

    each(w, BEGIN, END, unit)
    return check.kernel(-(-size // CHECKED_AT_ONCE), size)


def _zero_kernel(c: Contraction, side: str) -> Kernel:
    """Numbers other than zero outside of the band, in runs before and behind it."""
    check, found = _ZeroCheck(c, side), _runs(c, side)
    assert found is not None, "a plan that is limited"
    outer, inner, band = found
    w, type = check.w, vector_of(f"i{check.bits}", check.lanes)
    batch = [(a.size, getattr(a, side)) for a in c.batch if getattr(a, side)]
    batches, stride = 1, getattr(outer, side)
    for size, _ in batch:
        batches *= size

    def is_found(codes: Value) -> Value:
        return w.compare("icmp ne", codes, w.int(0, type))

    def within(value: Value) -> Value:
        low = w.intrinsic("llvm.smax", "i64", value, w.int(0))
        return w.intrinsic("llvm.smin", "i64", low, w.int(inner.size))

    def unit(n: Value) -> None:
        b, row = split_index(w, n, (batches, outer.size))
        start = add(w, strided(w, b, batch), times(w, row, stride))
        if band.low > -FAR:
            before = within(add(w, row, w.int(band.low)))
            check.run(start, before, is_found)
        if band.high < FAR:
            behind = within(add(w, row, w.int(band.high + 1)))
            left = w.binary("sub", w.int(inner.size), behind)
            check.run(add(w, start, behind), left, is_found)

    each(w, BEGIN, END, unit)
    return check.kernel(batches * outer.size, batches * outer.size * inner.size)
