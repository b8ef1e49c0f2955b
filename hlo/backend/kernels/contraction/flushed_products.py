"""Flushed products: of f32 factors with subnormal numbers, without the processor's assist for each.

    product as if subnormal numbers were zeros; where that may matter, and they have some, once more

A processor that leaves subnormal numbers to microcode (`Cycles.assist`) takes a hundred times as
long for each vector that such a factor multiplies: tails of softmaxes or Gaussians by the rows of a
matrix. With zeros for them each result misses less than k 2^-126 (A + B + 1) for factors up to A
and B. Of results 2^30 times as large that is less than a 16th of half a unit of the last place.
Where others are, the product is computed once more, by the same kernels and with all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from hlo.analysis.underflow import is_at_most_two, underflowing
from hlo.backend.ir.arithmetic import times
from hlo.backend.ir.control import loop, set_flag
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import BEGIN, BUFFERS, END
from hlo.backend.ir.kernel import Kernel, KernelSequence
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.generic import FloatMode
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import Contraction, first_read, reach
from hlo.backend.kernels.contraction.problem.offsets import (
    address_0,
    offsets_of,
    start_buffers,
)
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.contraction.sequence import ContractionSequence
from hlo.backend.loops.schedule import Plan
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction

_LANES = 16
_INFINITY = 0x7F800000  # its code
_TYPE, _CODES = vector_of("float", _LANES), vector_of("i32", _LANES)
# Products for each number of a factor or the result, from which on looking at all of these takes
# little beside.
_LEAST_REUSE = 24


def flushing_mode(dot: Instruction, c: Contraction, target: Target) -> FloatMode | None:
    """The mode in which the product is likely to gain; None: it is not."""
    if not target.machine.cycles.assist or target.mode != "strict" or target.is_small:
        return None
    if c.lhs.dtype is not dt.F32 or c.rhs.dtype is not dt.F32:
        return None
    looked = reach(c, "lhs") + reach(c, "rhs") + c.batches * c.m * c.n
    if c.out is not dt.F32 or c.adds or c.bounded_side or c.flops < 2 * _LEAST_REUSE * looked:
        return None
    around = dot.computation
    if around is None or not any((o, ()) in underflowing(around) for o in dot.operands):
        return None
    if target.isa.subnormal_lanes(Writer(), Value("%x", _TYPE)) is None:
        return None
    return target.isa.float_mode


def with_flushed(
    sequence: ContractionSequence, dot: Instruction, c: Contraction, mode: FloatMode
) -> KernelSequence:
    """The kernels of the product in that mode, and those that make it once more. What computes a
    factor runs before them: in that mode it would be another one.
    """
    for side in ("lhs", "rhs"):
        c = sequence.in_memory(c, side)
    first = len(sequence.calls)
    made = sequence.finished(c)
    own = [call for call in sequence.calls[first:] if not call.is_early]
    if any(call.when is not None for call in own):
        return made  # it is chosen by other flags
    sequence.calls[first:] = [
        call if call.is_early else replace(call, kernel=_flushed(call.kernel, mode))
        for call in sequence.calls[first:]
    ]
    for call in sequence.calls[first:]:
        sequence.target.shown(call.kernel, partial(Plan, ("with zeros for subnormal numbers",)))
    small = sequence.cleared()
    places = (c.lhs.buffer, c.rhs.buffer, c.out_buffer, small)
    lines = ("check: whether results are large beside what they may miss",)
    kernel = _missing(c, [is_at_most_two(o) for o in dot.operands])
    sequence.call(kernel, partial(Plan, lines), *places, *start_buffers([c.lhs, c.rhs]))
    cleared = len(sequence.calls)
    again = sequence.flagged(c, [("lhs", c.lhs.buffer), ("rhs", c.rhs.buffer)])
    sequence.only_if(small, cleared + 1)  # The flag itself is cleared in any case.
    first = len(sequence.calls)
    sequence.calls += own
    sequence.only_if(again, first)
    return sequence.made()


def _flushed(kernel: Kernel, mode: FloatMode) -> Kernel:
    """The kernel, called in that mode."""
    w = Writer()
    usual, own = w.alloca("i32", 4), w.alloca("i32", 4)
    mode.save(w, usual)
    w.store(w.binary("or", w.load(usual, "i32", 4), w.int(mode.flushing, "i32")), own, 4)
    mode.set(w, own)
    w.call_declared(symbol(kernel), BUFFERS, BEGIN, END)
    mode.set(w, usual)
    function = w.kernel_function()
    declarations, globals_ = w.beside
    parts = (*kernel.functions, replace(kernel, functions=()))
    return replace(
        kernel, function=function, declarations=declarations, globals=globals_, functions=parts,
        is_glue=True,
    )  # fmt: skip


def _missing(c: Contraction, are_known: Sequence[bool]) -> Kernel:
    """buffers: the factors; the results; a byte that becomes 1 where what one may miss matters
    beside it; starts of the factors. are_known: whether the factors are known to be at most 2.
    """
    w = Writer()
    left, right, results, flag = (w.buffer_address(n) for n in range(4))
    arrays = (
        ("lhs", address_0(w, left, c.lhs, 4)),
        ("rhs", address_0(w, right, c.rhs, 4 + offsets_of(c.lhs))),
    )
    lhs, rhs = (
        w.float(2.0) if is_known else _largest(w, c, side, array)
        for (side, array), is_known in zip(arrays, are_known, strict=True)
    )
    most = w.binary("fadd", w.binary("fadd", lhs, rhs), w.float(1.0))
    most = w.binary("fmul", most, w.float(float(c.k) * 2.0 ** (30 - 126)))
    bound = w.splat(w.cast("bitcast", most, "i32"), _LANES)

    def looked(size: Value, some: Value) -> Value:
        small = w.compare("icmp ule", size, bound)
        nan = w.compare("icmp ugt", size, w.int(_INFINITY, _CODES))
        return w.binary("or", some, w.binary("or", small, nan))

    count = c.batches * c.m * c.n
    set_flag(w, _over(w, results, count, w.zero(vector_of("i1", _LANES)), looked), flag)
    unknown = [side for (side, _), known in zip(arrays, are_known, strict=True) if not known]
    read = sum(reach(c, side) for side in unknown) + count
    return Kernel(w.kernel_function(), 1, *w.beside, bytes_moved=dt.F32.item_bytes * read)


def _largest(w: Writer, c: Contraction, side: str, array: Value) -> Value:
    """The magnitude of a factor's largest number; a NaN if it has one."""
    first = element_address(w, array, w.int(first_read(c, side)), dt.F32)
    larger = partial(w.intrinsic, "llvm.umax", _CODES)
    most = _over(w, first, reach(c, side), w.zero(_CODES), larger)
    code = w.intrinsic("llvm.vector.reduce.umax", "i32", most, suffix=f"v{_LANES}i32")
    return w.cast("bitcast", code, "float")


def _over(
    w: Writer, array: Value, count: int, first: Value, body: Callable[[Value, Value], Value]
) -> Value:
    """What becomes of `first` by the codes of the magnitudes of all elements, a vector at a time;
    the last elements may come twice.
    """

    def sizes(position: Value) -> Value:
        codes = w.load(w.address(array, position, "i32"), _CODES, dt.F32.item_bytes)
        return w.binary("and", codes, w.int(0x7FFFFFFF, _CODES))

    def one(n: Value, state: list[Value]) -> list[Value]:
        return [body(sizes(times(w, n, _LANES)), state[0])]

    (result,) = loop(w, w.int(count // _LANES), [first], one)
    return body(sizes(w.int(count - _LANES)), result) if count % _LANES else result
