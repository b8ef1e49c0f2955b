"""Flushed products: of factors with subnormal numbers, without the processor's assist for each.

    product as if subnormal numbers were zeros; where that may matter, and they have some, once more

A processor that leaves subnormal numbers to microcode (`Cycles.assist`) takes a hundred times as
long for each vector that such a factor multiplies: tails of softmaxes or Gaussians by the rows of a
matrix. With zeros for them a product takes what it takes without. Where results are not large
beside what they may miss (small_results.py), the same kernels make it once more with all numbers.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from hlo.analysis.underflow import underflowing
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import BEGIN, BUFFERS, END
from hlo.backend.ir.kernel import Kernel, KernelSequence
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.generic import FloatMode
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.sequence import ContractionSequence
from hlo.backend.kernels.contraction.small_results import can_be_told
from hlo.backend.loops.schedule import Plan
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction

_TYPE = vector_of("float", 16)  # of vectors that are looked at


def flushing_mode(
    sequence: ContractionSequence, dot: Instruction, c: Contraction
) -> FloatMode | None:
    """The mode in which the product is likely to gain; None: it is not."""
    target = sequence.target
    if target.is_small:
        return None
    if not can_be_told(c, sequence.at_most_two()):
        return None
    around = dot.computation
    if around is None or not any((o, ()) in underflowing(around) for o in dot.operands):
        return None
    if target.isa.subnormal_lanes(Writer(), Value("%x", _TYPE)) is None:
        return None
    return target.isa.float_mode


def with_flushed(sequence: ContractionSequence, c: Contraction, mode: FloatMode) -> KernelSequence:
    """The kernels of the product in that mode, and those that make it once more. What computes a
    factor runs before them: in that mode it would be another one.
    """
    factors = tuple(sequence.factors.values())
    for side in ("lhs", "rhs"):
        c = sequence.in_memory(c, side)
    sequence.factors = dict(zip((c.lhs.buffer, c.rhs.buffer), factors, strict=False))
    first = len(sequence.calls)
    made = sequence.finished(c)
    own = [call for call in sequence.calls[first:] if not call.is_early]
    if any(call.when is not None for call in own):
        if c.lhs.dtype is dt.BF16 or c.rhs.dtype is dt.BF16:
            return made  # Words, which take zeros for subnormal numbers already.
        own = [call for call in own if call.when is not None]  # of all that is said to be zero
    for n, call in enumerate(sequence.calls[first:], first):
        if call.kernel.flops and not call.is_early:  # a product, no check or copy
            kernel = _flushed(call.kernel, mode)
            sequence.target.shown(kernel, partial(Plan, ("with zeros for subnormal numbers",)))
            sequence.calls[n] = replace(call, kernel=kernel)
    small = sequence.flagged_small(c)
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
