"""Mask guards: what a run has to find of values for scores that a mask hides to count for nothing.

Guard --held--> pred[]: whether it holds of all elements of its value
"""

from __future__ import annotations

import numpy as np

from hlo.analysis.scores.column_facts import FAR, ORDINARY, Guard, What
from hlo.ir.computation import Computation
from hlo.ir.dtype import PRED, DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant, number_of, spread

LEAST_DIVISOR, LEAST_LOGARITHM = 2.0**-ORDINARY, -512.0


def held(guard: Guard, value: Instruction, all_of: Computation) -> Instruction:
    """pred[]: whether a guard holds of a value, in the place of its own."""
    most = {What.BOUNDED: 2.0**guard.number, What.FAR: -FAR}.get(guard.what, 2.0**ORDINARY)
    compared = [_compared(value, "LE", most, is_size=guard.what in _OF_SIZE)]
    if guard.what is What.DIVISOR:
        compared.append(_compared(value, "GE", LEAST_DIVISOR, is_size=True))
    if guard.what is What.NOT_BELOW:
        compared.append(_compared(value, "GE", LEAST_LOGARITHM))
    if guard.what is What.ABOVE:
        compared.append(_compared(value, "GE", _far_above(guard.number, value.shape.dtype)))
    every = compared[0] if len(compared) == 1 else make(value, "and", *compared)
    if not every.shape.dims:
        return every
    true = make_constant(value, Literal(Shape.array(PRED, ()), np.array(True)))
    dims = tuple(range(every.shape.rank))
    return make(value, "reduce", every, true, dimensions=dims, to_apply=all_of)


_OF_SIZE = frozenset({What.BOUNDED, What.DIVISOR})


def _compared(
    value: Instruction, direction: str, number: float, *, is_size: bool = False
) -> Instruction:
    left = make(value, "abs", value) if is_size else value
    right = spread(value, number_of(value, number, value.shape.dtype), value.shape)
    return make(value, "compare", left, right, direction=direction)


def _far_above(number: float, dtype: DType) -> float:
    """A number of a type that is 2048 above another one, or the next above that."""
    if number == -np.inf:
        return -(2.0**ORDINARY)
    kind = np.dtype(dtype.numpy)
    wanted = number + 2048.0
    found = np.array(wanted).astype(kind)
    while float(found) < wanted or float(found) <= number:
        wide = abs(float(found)) * 2.0**-6
        found = np.array(float(found) + max(wide, 1.0)).astype(kind)
    return float(found)
