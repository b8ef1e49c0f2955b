"""Complex functions at zeros, infinities, NaN, extremes and cuts, interpreted and compiled.

C99 Annex G, as Python's cmath has it, is the judge of values; where it leaves a choice, the two
engines still make the same.
"""

import cmath
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

import hlo
from hlo.interpreter.evaluate import evaluate
from hlo.parser.parse import parse

PARTS = (-math.inf, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, math.inf, math.nan)
VALUES = [complex(a, b) for a, b in itertools.product(PARTS, PARTS)]
FUNCTIONS: dict[str, Callable[[complex], complex]] = {
    "asin": cmath.asin, "acos": cmath.acos, "atanh": cmath.atanh, "asinh": cmath.asinh,
    "acosh": cmath.acosh, "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh,
    "sqrt": cmath.sqrt, "log": cmath.log, "exponential": cmath.exp,
}  # fmt: skip
UNARY = (*FUNCTIONS, "sine", "cosine", "tan", "log-plus-one", "exponential-minus-one", "logistic",
         "sign", "rsqrt", "abs", "negate", "real", "imag")  # fmt: skip
EXTREMES = {"c64": (1.5e-38, 3e38), "c128": (3e-308, 1.7e308)}
NUMPY = {"c64": np.complex64, "c128": np.complex128}
RTOL = {"c64": 3e-7, "c128": 2e-15}


def compiled(text: str, *arguments: np.ndarray) -> np.ndarray:
    result = hlo.compile(parse(text), cache=False, threads=1)(*arguments)
    assert isinstance(result, np.ndarray)
    return result


def interpreted(text: str, *arguments: np.ndarray) -> np.ndarray:
    result = evaluate(parse(text), *arguments)
    assert isinstance(result, np.ndarray)
    return result


def program(opcode: str, dtype: str, count: int, arity: int = 1) -> str:
    part = {"c64": "f32", "c128": "f64"}[dtype]
    result = part if opcode in ("abs", "real", "imag") else dtype
    given = "".join(f"  p{i} = {dtype}[{count}] parameter({i})\n" for i in range(arity))
    names = ", ".join(f"p{i}" for i in range(arity))
    return f"HloModule m\nENTRY e {{\n{given}  ROOT r = {result}[{count}] {opcode}({names})\n}}"


def agrees(actual: float, expected: float) -> bool:
    if math.isnan(expected) or math.isnan(actual):
        return math.isnan(expected) and math.isnan(actual)
    if math.isinf(expected) or expected == 0:
        return actual == expected and math.copysign(1, actual) == math.copysign(1, expected)
    return abs(actual - expected) <= 1e-14 * max(1.0, abs(expected))


def is_open(z: complex) -> bool:
    """Where Annex G leaves a sign, or a choice between 0, pi/2 and NaN, to the implementation."""
    return math.isnan(z.real) or math.isnan(z.imag) or (math.isinf(z.real) and math.isinf(z.imag))


@pytest.mark.parametrize("engine", [interpreted, compiled])
@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_special_values(opcode: str, engine: Callable[..., np.ndarray]) -> None:
    found = engine(program(opcode, "c128", len(VALUES)), np.array(VALUES))
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


def differing(ours: np.ndarray, theirs: np.ndarray, rtol: float) -> np.ndarray:
    """Elements with a part that is NaN, infinite or zero, or of another sign, in one of two only.

    Parts that are numbers may be as far apart as the whole numbers' size allows; subnormal ones
    have fewer digits.
    """
    wrong = np.zeros(ours.shape, np.bool_)
    with np.errstate(all="ignore"):
        for a, b in ((ours.real, theirs.real), (ours.imag, theirs.imag)):
            equal = (a == b) & ((a != 0) | (np.signbit(a) == np.signbit(b)))
            small = np.finfo(a.dtype).tiny
            near = np.abs(a - b) <= rtol * np.maximum(np.abs(ours), small)
            numbers = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
            wrong |= ~(equal | (np.isnan(a) & np.isnan(b)) | (numbers & near))
    return wrong


def grid(dtype: str) -> np.ndarray:
    tiny, huge = EXTREMES[dtype]
    parts = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1 + 2**-20, -1 + 2**-20, 1e-5, math.pi / 2,
             30.0, -100.0, 1e6, tiny, -tiny, huge, -huge,
             math.inf, -math.inf, math.nan]  # fmt: skip
    values = [complex(a, b) for a, b in itertools.product(parts, parts)]
    return np.array(values).astype(NUMPY[dtype])


def circles() -> np.ndarray:
    """Numbers near the unit circle and near -1, 0, 1, i, -i."""
    rng = np.random.default_rng(11)
    turns = np.exp(1j * rng.uniform(-np.pi, np.pi, 600))
    far = 10.0 ** rng.uniform(-14, 0, 600)
    ring = turns * (1 + far * rng.choice([-1, 1], 600))
    centres = np.array([0, 1, -1, 1j, -1j])[rng.integers(0, 5, 600)]
    return np.concatenate([ring, ring - 1, centres + far * turns])


@pytest.mark.parametrize("dtype", EXTREMES)
@pytest.mark.parametrize("opcode", UNARY)
def test_engines_agree_at_special_values(opcode: str, dtype: str) -> None:
    values = np.concatenate([grid(dtype), circles().astype(NUMPY[dtype])])
    text = program(opcode, dtype, values.size)
    ours, theirs = interpreted(text, values), compiled(text, values)
    wrong = differing(ours, theirs, RTOL[dtype])
    assert not wrong.any(), [*zip(values[wrong], ours[wrong], theirs[wrong], strict=True)][:3]


def pairs(dtype: str, parts: list[float]) -> tuple[np.ndarray, np.ndarray]:
    numbers = [complex(a, b) for a, b in itertools.product(parts, parts)]
    x, y = np.meshgrid(numbers, numbers)
    return x.ravel().astype(NUMPY[dtype]), y.ravel().astype(NUMPY[dtype])


@pytest.mark.parametrize("dtype", EXTREMES)
@pytest.mark.parametrize("opcode", ["add", "subtract", "multiply", "divide", "power"])
def test_engines_agree_on_special_pairs(opcode: str, dtype: str) -> None:
    x, y = pairs(dtype, [0.0, -0.0, 1.0, -1.0, 0.5, -3.0, math.inf, -math.inf, math.nan])
    text = program(opcode, dtype, x.size, 2)
    ours, theirs = interpreted(text, x, y), compiled(text, x, y)
    wrong = differing(ours, theirs, 4 * RTOL[dtype])
    assert not wrong.any(), [*zip(x[wrong], y[wrong], ours[wrong], theirs[wrong], strict=True)][:3]


@pytest.mark.parametrize("dtype", EXTREMES)
def test_quotients_of_extremes(dtype: str) -> None:
    tiny, huge = EXTREMES[dtype]
    x, y = pairs(dtype, [1.0, -3.0, tiny, huge, -huge])
    text = program("divide", dtype, x.size, 2)
    ours, theirs = interpreted(text, x, y), compiled(text, x, y)
    wrong = differing(ours + 0.0, theirs + 0.0, RTOL[dtype])  # a part that underflows: any zero
    assert not wrong.any(), [*zip(x[wrong], y[wrong], ours[wrong], theirs[wrong], strict=True)][:3]


def test_poles_of_logistic() -> None:
    z = np.array([2e-9 + 1j * (math.pi + 1e-9), 0.004006154020871074 - 3.1417973435444058j])
    found = compiled(program("logistic", "c128", 2), z)
    expected = interpreted(program("logistic", "c128", 2), z)
    assert np.all(np.abs(found - expected) <= 4e-16 * np.abs(expected))
