"""Subnormal check: whether a factor has such numbers, for instructions that read these as zero.

Everything is looked at that lies between the first and the last element that the product reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.control import ranged, set_flag, when
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, lanes_of, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.check_flag import CHECKED_AT_ONCE
from hlo.backend.kernels.contraction.problem.axes import Contraction, Operand, first_read, reach
from hlo.backend.kernels.contraction.problem.offsets import address_0
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.contraction.problem.subnormal import are_subnormal
from hlo.backend.lanes import masked
from hlo.ir import dtype as dt

ROUNDS = 8  # Vectors after which it is asked whether there was one.
_CODES = {dt.BF16: vector_of("i16", 32), dt.F32: vector_of("float", 16)}  # Of 64 bytes.


def subnormal_kernel(c: Contraction, side: str, target: Target) -> Kernel:
    """buffers: a factor of bf16 or f32; a byte that becomes 1 where some of it is subnormal;
    starts.
    """
    w = Writer()
    factor: Operand = getattr(c, side)
    item = factor.dtype.item_bytes
    size, type = reach(c, side), _CODES[factor.dtype]
    source, flag = (w.buffer_address(n) for n in range(2))
    source = address_0(w, source, factor, 2)
    source = element_address(w, source, w.int(first_read(c, side)), factor.dtype)
    lanes = lanes_of(type)
    step = lanes * ROUNDS

    def codes(first: Value, mask: Value | None) -> Value:
        at = element_address(w, source, first, factor.dtype)
        return masked.load(w, type, at, item, mask)

    def found(rows: Sequence[Value]) -> Value:
        if factor.dtype is dt.BF16:
            return are_subnormal(w, rows)
        masks = [target.isa.subnormal_lanes(w, row) for row in rows]
        return reduce(partial(w.binary, "or"), [mask for mask in masks if mask is not None])

    def at_step(n: Value) -> None:
        first = times(w, n, step)
        rows = [codes(add(w, first, w.int(k * lanes)), None) for k in range(ROUNDS)]
        set_flag(w, found(rows), flag)

    def at_rest() -> None:
        for first in range(size // step * step, size, lanes):
            left = size - first
            mask = masked.first_of(left, lanes) if left < lanes else None
            set_flag(w, found([codes(w.int(first), mask)]), flag)

    steps_of_unit = CHECKED_AT_ONCE // step
    steps = size // step
    units = max(1, -(-steps // steps_of_unit))
    begin = times(w, BEGIN, steps_of_unit)
    end = w.intrinsic("llvm.umin", "i64", times(w, END, steps_of_unit), w.int(steps))
    ranged(w, begin, end, at_step)
    if size % step:
        when(w, w.compare("icmp eq", END, w.int(units)), at_rest)
    return Kernel(w.kernel_function(), units, *w.beside, bytes_moved=item * size)
