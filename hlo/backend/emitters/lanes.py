"""The forms in which emitters compute, where they differ from the lanes that kernels pass around.

Integers of fewer than 8 bits come and go as LLVM's own iN (lanes/types.py) and are computed
with as i8, sign- or zero-extended: no machine has nibble lanes.
"""

from __future__ import annotations

from hlo.backend.math.term import Term
from hlo.errors import HloError
from hlo.ir.dtype import DType


def opened(x: Term, dtype: DType) -> Term:
    """Lanes of a kernel as lanes to compute with."""
    if dtype.is_integral and dtype.bits < 8:
        return x.to("i8", signed=dtype.is_signed)
    return x


def closed(x: Term, dtype: DType) -> Term:
    """The inverse; wraps integers of fewer than 8 bits."""
    if dtype.is_integral and dtype.bits < 8:
        return x.to(f"i{dtype.bits}")
    return x


def unsupported(opcode: str, dtype: DType) -> HloError:
    """The error for an element type that an opcode does not take."""
    return HloError("unsupported", f"{opcode} is not defined for {dtype}")
