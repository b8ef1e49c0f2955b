"""Flushed products: of factors with subnormal numbers, without the processor's assist for each.

    product as if subnormal numbers were zeros; where that may matter, once more

A processor that leaves subnormal numbers to microcode (`Cycles.assist`) takes a hundred times as
long for each vector that such a factor multiplies: tails of softmaxes or Gaussians by the rows of a
matrix. With zeros for them a product takes what it takes without. Where results are not large
beside what they may miss (small_results.py), and there was something to miss, it is made once more
with all numbers, of scaled factors (scaled_factors.py) or on doubles.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from hlo.analysis.bounded_powers import is_at_most_two
from hlo.analysis.tails import tails
from hlo.backend.ir.control import set_flag
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import BEGIN, BUFFERS, END
from hlo.backend.ir.kernel import NONE_KNOWN, Kernel, KernelCall, KernelSequence
from hlo.backend.ir.writer import Writer
from hlo.backend.isa.generic import FloatMode
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import Contraction, dot_contraction
from hlo.backend.kernels.contraction.problem.result import no_epilogue
from hlo.backend.kernels.contraction.scaled_factors import (
    Region,
    regions,
    rescaled_kernel,
    scaled_kernel,
)
from hlo.backend.kernels.contraction.sequence import ContractionSequence
from hlo.backend.kernels.contraction.small_results import can_be_told
from hlo.backend.kernels.contraction.words.subnormal_check import can_be_looked_at
from hlo.backend.loops.schedule import Plan
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction

_MOST_COPIED = 1 << 26  # Bytes of scaled factors, which have their place whether it is used or not.


def flushes(dot: Instruction, around: Computation, target: Target) -> bool:
    """Whether a dot, in a computation or a fusion of it, is likely to gain."""
    if not target.waits_for_subnormals or target.is_small:
        return False
    found = tails(around)
    if not any((o, ()) in found for o in dot.operands):
        return False
    if not can_be_looked_at(target):
        return False
    bounded = [n for n, o in enumerate(dot.operands) if is_at_most_two(o)]
    return can_be_told(dot_contraction(dot), bounded)


def with_flushed(sequence: ContractionSequence, c: Contraction, mode: FloatMode) -> KernelSequence:
    """The kernels of the product in that mode, and those that make it once more. What computes a
    factor runs before them: in that mode it would be another one.
    """
    factors = tuple(sequence.factors.values())
    for side in ("lhs", "rhs"):
        c = sequence.in_memory(c, side)
    sequence.factors = dict(zip((c.lhs.buffer, c.rhs.buffer), factors, strict=False))
    lost = sequence.cleared()
    first = len(sequence.calls)
    made = sequence.finished(c)
    own = [call for call in sequence.calls[first:] if not call.is_early]
    if any(call.when is not None for call in own):
        if c.lhs.dtype is dt.BF16 or c.rhs.dtype is dt.BF16:
            return made  # Words, which take zeros for subnormal numbers already.
        own = [call for call in own if call.when is not None]  # of all that is said to be zero
    for n, call in enumerate(sequence.calls[first:], first):
        if call.kernel.flops and not call.is_early:  # a product, no check or copy
            kernel = _flushed(call.kernel, mode, len(call.buffers))
            sequence.target.shown(kernel, partial(Plan, ("with zeros for subnormal numbers",)))
            sequence.calls[n] = replace(call, kernel=kernel, buffers=(*call.buffers, lost))
    small, maxima = sequence.flagged_small(c)
    again, first = sequence.cleared(), len(sequence.calls)
    sides = [("lhs", c.lhs.buffer), ("rhs", c.rhs.buffer)]
    sequence.copy_flag(sequence.flagged(c, sides, before=lost), again)
    sequence.only_if(small, first)
    first = len(sequence.calls)
    sequence.calls += _once_more(sequence, c, own, maxima)
    sequence.only_if(again, first)
    return sequence.made()


def _once_more(
    sequence: ContractionSequence, c: Contraction, own: list[KernelCall], maxima: int
) -> list[KernelCall]:
    """The product of all numbers. own: the calls of it, which are slow."""
    if c.bounded_side:
        return own
    if min(c.m, c.n) == 1:  # A matrix would be copied to be read once.
        return _on_doubles(sequence, c)
    return _scaled(sequence, c, own, maxima) or own


def _scaled(
    sequence: ContractionSequence, c: Contraction, own: list[KernelCall], maxima: int
) -> list[KernelCall] | None:
    """The product's own calls, with factors that are scaled before and results after; None where
    factors cannot be.
    """
    arrays = regions(c)
    if arrays is None or sequence.prepared:
        return None
    for call in sequence.calls:
        if call.is_early:  # A factor's elements in another order, and zeros between them.
            made = [b for b in call.buffers if b not in arrays]
            if len(call.buffers) != 2 or len(made) != 1:
                return None
            (source,) = (b for b in call.buffers if b in arrays)
            size = sequence.bytes_at(made[0]) // dt.F32.item_bytes
            arrays[made[0]] = Region(arrays[source].number, 0, size)
    sources = dict.fromkeys(b for call in own for b in call.buffers if b in arrays)
    if sum(arrays[source].copy_bytes for source in sources) > _MOST_COPIED:
        return None
    first = len(sequence.calls)
    copies: dict[int, int] = {}
    for source in sources:
        copies[source] = sequence.temporary(arrays[source].copy_bytes)
        shown = partial(Plan, ("scaled: a factor by a power of two",))
        sequence.call(scaled_kernel(arrays[source]), shown, source, copies[source], maxima)
    for call in own:
        buffers = tuple(copies.get(buffer, buffer) for buffer in call.buffers)
        sequence.calls.append(replace(call, buffers=buffers))
    shown = partial(Plan, ("scaled: the results, back",))
    sequence.call(rescaled_kernel(c), shown, c.out_buffer, maxima)
    calls = sequence.calls[first:]
    del sequence.calls[first:]
    return calls


def _on_doubles(sequence: ContractionSequence, c: Contraction) -> list[KernelCall]:
    """The product with sums of doubles, of which none is subnormal, rounded once."""
    target = replace(sequence.target, on_doubles=True)
    other = ContractionSequence(target, no_epilogue, sequence.buffers, NONE_KNOWN)
    other.temporaries = sequence.temporaries
    other.finished(c)
    return other.calls


def _flushed(kernel: Kernel, mode: FloatMode, count: int) -> Kernel:
    """The kernel, called in that mode. Behind its `count` buffers is a byte that becomes 1 where a
    product or sum was not zero and is one now.
    """
    w = Writer()
    lost, table = w.buffer_address(count), BUFFERS
    if kernel.scratch_bytes:  # whose address is behind the buffers
        table = w.alloca(f"[{count + 1} x ptr]", 8)
        for n in range(count + 1):
            address = w.buffer_address(n if n < count else n + 1)
            w.store(address, w.address(table, w.int(n), "ptr"), 8)
    usual, own = w.alloca("i32", 4), w.alloca("i32", 4)
    mode.save(w, usual)
    before = w.binary("and", w.load(usual, "i32", 4), w.int(~mode.met, "i32"))
    w.store(w.binary("or", before, w.int(mode.flushing, "i32")), own, 4)
    mode.set(w, own)
    w.call_declared(symbol(kernel), table, BEGIN, END)
    mode.save(w, own)
    mode.set(w, usual)
    met = w.binary("and", w.load(own, "i32", 4), w.int(mode.met, "i32"))
    set_flag(w, w.compare("icmp ne", met, w.int(0, "i32")), lost)
    function = w.kernel_function()
    declarations, globals_ = w.beside
    parts = (*kernel.functions, replace(kernel, functions=()))
    return replace(
        kernel, function=function, declarations=declarations, globals=globals_, functions=parts,
        is_glue=True,
    )  # fmt: skip
