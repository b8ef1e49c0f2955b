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
from hlo.ir.dtype import DType

ROUNDS = 8  # Vectors after which it is asked whether there was one.
_CODES = {dt.BF16: vector_of("i16", 32), dt.F32: vector_of("float", 16)}  # Of 64 bytes.


def can_be_looked_at(target: Target) -> bool:
    """Whether one instruction says of a vector of f32 which of them are subnormal."""
    vector = Value("%x", _CODES[dt.F32])
    return target.isa.subnormal_lanes(Writer(), vector) is not None


def has_subnormals(w: Writer, source: Value, size: int, dtype: DType, target: Target) -> Value:
    """i1: whether some of so many elements is. Opens basic blocks for more than a few vectors."""
    look = _Look(w, source, size, dtype, target)
    if look.size <= look.step:
        return w.any_lane(look.found(0, look.size))
    flag = w.alloca("i8", 1)
    w.store(w.int(0, "i8"), flag, 1)
    ranged(w, w.int(0), w.int(look.steps), lambda n: set_flag(w, look.at_step(n), flag))
    if look.rest < look.size:
        set_flag(w, look.found(look.rest, look.size), flag)
    return w.compare("icmp ne", w.load(flag, "i8", 1), w.int(0, "i8"))


def first_address(w: Writer, c: Contraction, side: str, array: Value, first: int) -> Value:
    """Of the elements of a factor that a product reads. first: `address_0`."""
    factor: Operand = getattr(c, side)
    at = address_0(w, array, factor, first)
    return element_address(w, at, w.int(first_read(c, side)), factor.dtype)


def subnormal_kernel(c: Contraction, side: str, target: Target) -> Kernel:
    """buffers: a factor of bf16 or f32; a byte that becomes 1 where some of it is subnormal;
    starts.
    """
    w = Writer()
    factor: Operand = getattr(c, side)
    array, flag = (w.buffer_address(n) for n in range(2))
    source = first_address(w, c, side, array, 2)
    look = _Look(w, source, reach(c, side), factor.dtype, target)
    steps_of_unit = CHECKED_AT_ONCE // look.step
    units = max(1, -(-look.steps // steps_of_unit))
    begin = times(w, BEGIN, steps_of_unit)
    end = w.intrinsic("llvm.umin", "i64", times(w, END, steps_of_unit), w.int(look.steps))
    ranged(w, begin, end, lambda n: set_flag(w, look.at_step(n), flag))
    if look.rest < look.size:
        is_last = w.compare("icmp eq", END, w.int(units))
        when(w, is_last, lambda: set_flag(w, look.found(look.rest, look.size), flag))
    bytes_moved = factor.dtype.item_bytes * look.size
    return Kernel(w.kernel_function(), units, *w.beside, bytes_moved=bytes_moved)


class _Look:
    """What looks at so many elements from an address on."""

    def __init__(self, w: Writer, source: Value, size: int, dtype: DType, target: Target) -> None:
        self.w, self.source, self.target = w, source, target
        self.size, self.dtype, self.type = size, dtype, _CODES[dtype]
        self.lanes = lanes_of(self.type)
        self.step = self.lanes * ROUNDS
        self.steps = size // self.step
        self.rest = self.steps * self.step  # Where it begins.

    def at_step(self, n: Value) -> Value:
        """For each lane, whether some of step n's numbers there is subnormal."""
        w = self.w
        first = times(w, n, self.step)
        return self._found(
            [self._codes(add(w, first, w.int(k * self.lanes))) for k in range(ROUNDS)]
        )

    def found(self, begin: int, end: int) -> Value:
        """The same of elements between two."""
        rows = []
        for first in range(begin, end, self.lanes):
            left = end - first
            mask = masked.first_of(left, self.lanes) if left < self.lanes else None
            rows.append(self._codes(self.w.int(first), mask))
        return self._found(rows)

    def _codes(self, first: Value, mask: Value | None = None) -> Value:
        at = element_address(self.w, self.source, first, self.dtype)
        return masked.load(self.w, self.type, at, self.dtype.item_bytes, mask)

    def _found(self, rows: Sequence[Value]) -> Value:
        w = self.w
        if self.dtype is dt.BF16:
            return are_subnormal(w, rows)
        masks = [self.target.isa.subnormal_lanes(w, row) for row in rows]
        return reduce(partial(w.binary, "or"), [mask for mask in masks if mask is not None])
