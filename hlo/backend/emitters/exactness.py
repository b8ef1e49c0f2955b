"""Exactness: ops whose results need no rounding, since their type holds them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo.backend.ir.writer import Value
from hlo.backend.lanes.types import Lanes
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.table import Trait, has_trait


def is_exact(instruction: Instruction, operands: Sequence[Lanes], kinds: Sequence[DType]) -> bool:
    """Whether the op's result is of the type as it is computed in f32."""
    opcode, dtype = instruction.opcode, instruction.shape.dtype
    if has_trait(instruction, Trait.EXACT):
        return opcode != "negate" or _has_negatives(dtype)
    if opcode == "convert":
        is_short = not kinds[0].is_float and kinds[0].bits <= 8
        return kinds[0] is dtype or (is_short and dtype in (dt.BF16, dt.F16))
    if dtype is dt.BF16 and opcode in ("add", "multiply"):
        return _is_enlarged(opcode, *operands)
    return has_trait(instruction, Trait.EXACT_IN_HALVES) and dtype in (dt.BF16, dt.F16)


def _has_negatives(dtype: DType) -> bool:
    """Not of f8e8m0fnu, where -x is NaN, nor of the fnuz types, where -0 is 0."""
    form = dtype.float_format
    return form is None or (form.has_sign and form.nan != "negative-zero")


def _is_enlarged(opcode: str, x: Lanes, y: Lanes) -> bool:
    """x + x, or a product with +-1, 2, 4, ..: bf16's greatest numbers are f32's."""
    return x == y if opcode == "add" else _is_large_power(x) or _is_large_power(y)


def _is_large_power(lanes: Lanes) -> bool:
    assert isinstance(lanes, Value), "a real number"
    factor = lanes.element.number
    if factor is None:
        return False
    number = abs(factor)
    return 1.0 <= number < math.inf and math.frexp(number)[0] == 0.5
