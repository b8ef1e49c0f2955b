"""Subnormal check: whether a factor has such numbers, for instructions that read these as zero.

Everything is looked at that lies between the first and the last element that the product reads.
"""

from __future__ import annotations

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.control import ranged, set_flag, when
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.kernels.contraction.problem.axes import Contraction, Operand, first_read, reach
from hlo.backend.kernels.contraction.problem.offsets import address_0
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.contraction.problem.subnormal import are_subnormal
from hlo.backend.lanes import masked
from hlo.ir import dtype as dt

LANES = 32  # Numbers of a vector of 64 bytes.
ROUNDS = 8  # Vectors after which it is asked whether there was one.
CHUNK = 1 << 14  # Numbers that a unit checks.


def subnormal_kernel(c: Contraction, side: str) -> Kernel:
    """buffers: a factor of bf16; a byte that becomes 1 where some of it is subnormal; starts."""
    w = Writer()
    factor: Operand = getattr(c, side)
    assert factor.dtype is dt.BF16, "the numbers are known by their upper eight bits"
    size = reach(c, side)
    source, flag = (w.buffer_address(n) for n in range(2))
    source = address_0(w, source, factor, 2)
    source = element_address(w, source, w.int(first_read(c, side)), factor.dtype)
    type = vector_of("i16", LANES)
    step = LANES * ROUNDS

    def codes(first: Value, mask: Value | None) -> Value:
        at = element_address(w, source, first, factor.dtype)
        return masked.load(w, type, at, 2, mask)

    def at_step(n: Value) -> None:
        first = times(w, n, step)
        rows = [codes(add(w, first, w.int(k * LANES)), None) for k in range(ROUNDS)]
        set_flag(w, are_subnormal(w, rows), flag)

    def at_rest() -> None:
        for first in range(size // step * step, size, LANES):
            left = size - first
            mask = masked.first_of(left, LANES) if left < LANES else None
            set_flag(w, are_subnormal(w, [codes(w.int(first), mask)]), flag)

    steps_of_unit = CHUNK // step
    steps = size // step
    units = max(1, -(-steps // steps_of_unit))
    begin = times(w, BEGIN, steps_of_unit)
    end = w.intrinsic("llvm.umin", "i64", times(w, END, steps_of_unit), w.int(steps))
    ranged(w, begin, end, at_step)
    if size % step:
        when(w, w.compare("icmp eq", END, w.int(units)), at_rest)
    return Kernel(w.kernel_function(), units, *w.beside, bytes_moved=2 * size)
