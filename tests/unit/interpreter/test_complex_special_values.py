"""Complex functions at infinities, zeros and NaN: C99 Annex G, as Python's cmath has it."""

import cmath
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from hlo.interpreter.evaluate import evaluate
from hlo.parser.parse import parse

PARTS = (-math.inf, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, math.inf, math.nan)
VALUES = [complex(a, b) for a, b in itertools.product(PARTS, PARTS)]
FUNCTIONS: dict[str, Callable[[complex], complex]] = {
    "asin": cmath.asin, "acos": cmath.acos, "atanh": cmath.atanh, "asinh": cmath.asinh,
    "acosh": cmath.acosh, "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh,
}  # fmt: skip


def agrees(actual: float, expected: float) -> bool:
    if math.isnan(expected) or math.isnan(actual):
        return math.isnan(expected) and math.isnan(actual)
    if math.isinf(expected) or expected == 0:
        return actual == expected and math.copysign(1, actual) == math.copysign(1, expected)
    return abs(actual - expected) <= 1e-14 * max(1.0, abs(expected))


def is_open(z: complex) -> bool:
    """Where Annex G leaves a sign, or a choice between 0, pi/2 and NaN, to the implementation."""
    return math.isnan(z.real) or math.isnan(z.imag) or (math.isinf(z.real) and math.isinf(z.imag))


@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_special_values(opcode: str) -> None:
    shape = f"c128[{len(VALUES)}]"
    text = f"HloModule m\nENTRY e {{ p = {shape} parameter(0)\n ROOT r = {shape} {opcode}(p) }}"
    found = evaluate(parse(text), np.array(VALUES))
    assert isinstance(found, np.ndarray)
    for z, value in zip(VALUES, found.tolist(), strict=True):
        try:
            expected = FUNCTIONS[opcode](z)
        except ValueError:  # cmath raises where C gives a value
            continue
        if not is_open(z):
            assert agrees(value.real, expected.real), (z, value, expected)
            assert agrees(value.imag, expected.imag), (z, value, expected)
        else:
            nans = math.isnan(expected.real) and math.isnan(expected.imag)
            assert not nans or math.isnan(value.real) or math.isnan(value.imag), (z, value)
