"""Accuracy and edge cases of the NumPy arithmetic, against Python's own numbers."""

import math
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.dtype import ARRAY_TYPES, DType
from hlo.ops.numerics import integers, reals
from hlo.ops.numerics.conversion import converted
from hlo.ops.numerics.representation import codes, from_codes, rounded, rounded_to_odd
from hlo.ops.table import OPS, Trait

INTEGRAL = [t for t in ARRAY_TYPES if t.is_integral]
NARROW = [t for t in ARRAY_TYPES if t.is_float and t.bits <= 16]
KNOWN = {
    "exponential": math.exp, "exponential-minus-one": math.expm1, "log": math.log,
    "log-plus-one": math.log1p, "sine": math.sin, "cosine": math.cos, "tan": math.tan,
    "tanh": math.tanh, "sqrt": math.sqrt, "cbrt": math.cbrt, "erf": math.erf,
    "sinh": math.sinh, "cosh": math.cosh, "asinh": math.asinh, "asin": math.asin,
    "acos": math.acos, "atanh": math.atanh,
}  # fmt: skip


def every_code(dtype: DType) -> np.ndarray:
    word = np.uint8 if dtype.bits <= 8 else np.uint16
    return from_codes(np.arange(1 << dtype.bits, dtype=np.uint32).astype(word), dtype)


def as_int(value: int, dtype: DType) -> int:
    """value modulo 2**bits, in dtype's range."""
    value %= 1 << dtype.bits
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def edge_integers(dtype: DType) -> list[int]:
    low, high = dtype.int_range
    wanted = {low, low + 1, high, high - 1, high // 3, 0, 1}
    return sorted(v for v in wanted if low <= v <= high)


def as_array(values: list[int], dtype: DType) -> np.ndarray:
    return (
        np.array(values, object)
        .astype(np.int64 if dtype.is_signed else np.uint64)
        .astype(dtype.numpy)
    )


def truncated(x: int, y: int) -> int:
    return -(abs(x) // abs(y)) if (x < 0) != (y < 0) else abs(x) // abs(y)


@pytest.mark.parametrize("dtype", INTEGRAL, ids=str)
def test_integer_arithmetic_is_modular(dtype: DType) -> None:
    values = edge_integers(dtype)
    x = as_array([a for a in values for _ in values], dtype)
    y = as_array(values * len(values), dtype)
    pairs = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    ones = dtype.int_range[1] if dtype.is_unsigned else -1
    expected = {
        "add": [as_int(a + b, dtype) for a, b in pairs],
        "subtract": [as_int(a - b, dtype) for a, b in pairs],
        "multiply": [as_int(a * b, dtype) for a, b in pairs],
        "divide": [as_int(truncated(a, b), dtype) if b else ones for a, b in pairs],
        "remainder": [a - b * truncated(a, b) if b else a for a, b in pairs],
        "mulhi": [as_int((a * b) >> dtype.bits, dtype) for a, b in pairs],
        "maximum": [max(p) for p in pairs],
        "and": [as_int(a & b, dtype) for a, b in pairs],
        "shift-left": [as_int(a << b, dtype) if 0 <= b < dtype.bits else 0 for a, b in pairs],
    }
    for opcode, wanted in expected.items():
        found = OPS[opcode].evaluate(x, y)
        assert found.dtype == dtype.numpy
        assert [int(v) for v in found] == wanted, opcode


@pytest.mark.parametrize("dtype", INTEGRAL, ids=str)
def test_bits_of_integers_round_trip(dtype: DType) -> None:
    values = as_array(edge_integers(dtype), dtype)
    assert (from_codes(codes(values), dtype) == values).all()
    counted = [int(v) for v in integers.population_count(values)]
    mask = (1 << dtype.bits) - 1
    assert counted == [as_int((int(v) & mask).bit_count(), dtype) for v in values]


@pytest.mark.parametrize("opcode", sorted(KNOWN))
def test_functions_of_f64_are_accurate(opcode: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-0.99, 0.99, 400)
    if opcode in ("log", "sqrt"):
        x = np.abs(x) * 50
    elif opcode not in ("asin", "acos", "atanh"):
        x = np.append(x, rng.uniform(-0.9, 20, 200))
    expected = np.array([KNOWN[opcode](float(v)) for v in x])
    distance = np.abs(OPS[opcode].evaluate(x) - expected) / np.spacing(np.abs(expected))
    assert float(distance.max()) <= 2.0  # glibc's own f64 tanh, sinh and cbrt are off by one or two


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_addition_rounds_once(dtype: DType) -> None:
    rng = np.random.default_rng(5)
    values = rng.choice(every_code(dtype), (2, 300))
    x, y = (v[np.isfinite(values.astype(np.float32)).all(0)] for v in values)
    exact = x.astype(np.float64) + y.astype(np.float64)
    assert (codes(OPS["add"].evaluate(x, y)) == codes(rounded(exact, dtype))).all()


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_rounding_from_f64_is_to_the_nearest(dtype: DType) -> None:
    if dtype.is_scale:
        pytest.skip("rounds half up in the exponent: tests/ops/convert.hlo")
    finite = np.unique(every_code(dtype).astype(np.float32))
    finite = finite[np.isfinite(finite)].astype(np.float64)
    rng = np.random.default_rng(6)
    x = rng.uniform(finite[1], finite[-2], 500) * 10.0 ** rng.integers(-6, 1, 500)
    found = rounded(x, dtype).astype(np.float64)
    best = np.abs(finite[None, :] - x[:, None]).min(1)
    assert (np.abs(found - x) == best).all()


def test_round_to_odd_keeps_what_a_second_rounding_needs() -> None:
    x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8 - 2.0**-40, 1 + 2.0**-8, 1e300, -1e300])
    with np.errstate(over="ignore"):
        odd = rounded_to_odd(x)
    assert (rounded(odd[:3], dt.BF16).astype(np.float64) == [1.0078125, 1.0, 1.0]).all()
    assert np.isfinite(odd).all()


@pytest.mark.parametrize("target", [t for t in INTEGRAL if t.bits >= 8], ids=str)
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_float_to_integer_saturates_exactly(source: type, target: DType) -> None:
    low, high = target.int_range
    rng = np.random.default_rng(8)
    near = np.array([low, high, 0], np.float64).astype(source)
    steps = np.concatenate([np.nextafter(near, source(s)) for s in (-np.inf, np.inf)])
    x = np.concatenate([near, steps, rng.standard_normal(50).astype(source) * source(high)])
    expected = [min(max(math.trunc(Fraction(float(v))), low), high) for v in x]
    assert [int(v) for v in converted(x, target)] == expected


def test_erf_of_every_f16_is_correctly_rounded() -> None:
    x = every_code(dt.F16)
    x = x[np.isfinite(x)]
    expected = np.array([math.erf(float(v)) for v in x]).astype(np.float32).astype(np.float16)
    assert (OPS["erf"].evaluate(x) == expected).all()


def test_total_order_sorts_the_codes() -> None:
    x = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan], ml_dtypes.bfloat16)
    assert (np.diff(reals.total_order(x).astype(np.int64)) > 0).all()


FLOAT_OPS = sorted(
    opcode
    for opcode, row in OPS.items()
    if row.traits & Trait.ELEMENTWISE and row.arity in (1, 2) and not row.takes_shape
    and opcode not in ("compare", "reduce-precision", "copy")
)  # fmt: skip


@pytest.mark.parametrize("opcode", FLOAT_OPS)
def test_no_warning_escapes(opcode: str) -> None:
    row = OPS[opcode]
    for dtype in ARRAY_TYPES:
        values = every_code(dtype) if dtype.bits <= 8 and not dtype.is_pred else _edges(dtype)
        arguments = (values, values[::-1].copy())[: row.arity]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                row.evaluate(*arguments)
            except Violation:
                continue  # the row takes no such type


def _edges(dtype: DType) -> np.ndarray:
    if dtype.is_pred:
        return np.array([True, False])
    if dtype.is_integral:
        return np.array([*dtype.int_range, 0, 1], dtype.numpy)
    if dtype.bits == 16:
        return every_code(dtype)
    with np.errstate(all="ignore"):
        parts = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, 3e38, -1e300])
        real = parts.astype(dtype.component.numpy)
        return (real + 1j * real[::-1]).astype(dtype.numpy) if dtype.is_complex else real
