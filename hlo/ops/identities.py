"""Identities of associative ops: e with f(e, x) = x for every x, as functions of the type."""

from __future__ import annotations

import math

from hlo.ir.dtype import DType
from hlo.ops.table import OPS, Number


def identity(opcode: str, dtype: DType) -> Number | None:
    """The op's identity, None where it has none that is known."""
    row = OPS.get(opcode)
    return None if row is None or row.identity is None else row.identity(dtype)


def zero(dtype: DType) -> Number:
    """Of sums: -0 + x is x, a zero's sign included. Of bitwise or, of exclusive or."""
    if dtype.is_complex:
        return complex(-0.0, -0.0)
    if dtype.is_float:
        return -0.0
    return False if dtype.is_pred else 0


def one(dtype: DType) -> Number:
    """Of products; of complex ones but where a part is infinite or NaN."""
    if dtype.is_complex:
        return complex(1.0, 0.0)
    if dtype.is_float:
        return 1.0
    return True if dtype.is_pred else 1


def least(dtype: DType) -> Number:
    """Of maxima."""
    if dtype.is_float:
        return -math.inf
    return False if dtype.is_pred else dtype.int_range[0]


def greatest(dtype: DType) -> Number:
    """Of minima."""
    if dtype.is_float:
        return math.inf
    return True if dtype.is_pred else dtype.int_range[1]


def all_ones(dtype: DType) -> Number:
    """Of bitwise and."""
    if dtype.is_pred:
        return True
    return -1 if dtype.is_signed else dtype.int_range[1]
