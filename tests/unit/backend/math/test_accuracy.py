"""Errors of the mathematical functions in units of the last place, on both instruction sets."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from hlo.backend.emitters.table import EMITTERS
from hlo.backend.isa.target import Target
from hlo.backend.linking.toolchain import host_target
from hlo.backend.math.term import Term
from hlo.machine import NAMED
from tests.support.lanes_jit import lanes_function, plain_target

WIDE = {"float": np.float64, "double": np.longdouble}
NARROW = {"float": np.float32, "double": np.float64}
LANES = {"float": 16, "double": 8}
TARGETS = {
    "host": host_target, "plain": plain_target, "unfused": lambda: Target(NAMED["x86-64-v2"])
}  # fmt: skip
LONG_DOUBLE_IS_WIDER = np.finfo(np.longdouble).nmant > 60
needs_long_double = pytest.mark.skipif(not LONG_DOUBLE_IS_WIDER, reason="long double is double")


def logistic(x):
    return 1 / (1 + np.exp(-x))


def reciprocal_root(x):
    return 1 / np.sqrt(x)


def erf(x):
    """Good to 1 ulp of double only."""
    return np.vectorize(math.erf, otypes=[x.dtype])(x.astype(np.float64))


ANGLES = [(-10, 10), (-1e5, 1e5), (1e15, 1e30)]

# opcode: reference, budget in ulp for (float, double), ranges for (float, double)
UNARY: dict[str, tuple[Callable, tuple[float, float], list, list]] = {
    "exponential": (np.exp, (0.95, 0.95), [(-103, 88.7), (-1, 1)], [(-745, 709.7), (-1, 1)]),
    "exponential-minus-one": (np.expm1, (1.0, 1.2), [(-20, 88), (-1, 1)], [(-40, 709), (-1, 1)]),
    "log": (np.log, (0.9, 1), [(0, 4), (0.5, 2)], [(0, 4), (0.5, 2)]),
    "log-plus-one": (np.log1p, (0.9, 1), [(-1, 4), (-0.1, 0.1)], [(-1, 4), (-0.1, 0.1)]),
    "logistic": (logistic, (1.0, 1.0), [(-87, 20), (-1, 1)], [(-700, 40), (-1, 1)]),
    "tanh": (np.tanh, (0.95, 1.6), [(-10, 10), (-1, 1)], [(-20, 20), (-1, 1)]),
    "sine": (np.sin, (0.51, 0.8), ANGLES, ANGLES[:2]),
    "cosine": (np.cos, (0.51, 0.8), ANGLES, ANGLES[:2]),
    "tan": (np.tan, (0.51, 1), ANGLES, ANGLES[:2]),
    "rsqrt": (reciprocal_root, (0.52, 0.52), [(0, 10), (0, 1e38)], [(0, 10), (0, 1e300)]),
    "cbrt": (np.cbrt, (0.51, 0.52), [(-10, 10), (-1e38, 1e38)], [(-10, 10), (-1e300, 1e300)]),
    "erf": (erf, (0.95, 2.2), [(-5, 5), (-1, 1)], [(-6, 6), (-1, 1)]),
    "asin": (np.arcsin, (0.51, 1.8), [(-1, 1)], [(-1, 1)]),
    "acos": (np.arccos, (0.51, 1), [(-1, 1)], [(-1, 1)]),
    "sinh": (np.sinh, (0.51, 1.9), [(-3, 3), (-88, 88)], [(-3, 3), (-710, 710)]),
    "cosh": (np.cosh, (0.51, 1.2), [(-3, 3), (-88, 88)], [(-3, 3), (-710, 710)]),
    "asinh": (np.arcsinh, (0.51, 1.8), [(-10, 10), (-1e30, 1e30)], [(-10, 10), (-1e300, 1e300)]),
    "acosh": (np.arccosh, (0.51, 1.7), [(1, 10), (1, 1e30)], [(1, 10), (1, 1e300)]),
    "atanh": (np.arctanh, (0.51, 1.8), [(-1, 1)], [(-1, 1)]),
}  # fmt: skip
SPECIAL = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 1, -1, 0.5, -0.5, 2, -2, 1e-45, -1e-45, 1e-40, 1e-38,
    3e38, -3e38, 88.7, -87.4, -103.9, -104.1, 1e-310, -5e-324, 1e308, 709.7, -745.1, -746, 3.5,
]  # fmt: skip


def compiled(opcode: str, scalar: str, target: Target, lanes: int, arity: int = 1) -> Callable:
    def body(w, t, values):
        return [EMITTERS[opcode].real(*(Term(w, t, v) for v in values)).value]

    run = lanes_function(body, [scalar] * arity, [scalar], lanes=lanes, target=target)
    return lambda *x: run(*x)[0]


def error_in_ulp(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Against a wider reference; infinite where a special value differs."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        unit = np.spacing(np.abs(rounded)).astype(want.dtype)
        error = np.abs(got.astype(want.dtype) - want) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    finite = np.isfinite(rounded) & np.isfinite(got)
    return np.where(finite, error, np.where(same, 0, np.inf))


def samples(scalar: str, low: float, high: float, seed: str) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    return rng.uniform(low, high, 1 << 14).astype(NARROW[scalar])


def any_bits(scalar: str, seed: str) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    return np.frombuffer(rng.bytes(8 << 13), NARROW[scalar]).copy()


def check_unary(opcode: str, scalar: str, target: Target) -> None:
    reference, budgets, *ranges = UNARY[opcode]
    column = scalar == "double"
    budget = budgets[column]
    function = compiled(opcode, scalar, target, LANES[scalar])
    inputs = [samples(scalar, *r, opcode) for r in ranges[column]]
    with np.errstate(all="ignore"):
        inputs.append(np.array(SPECIAL, NARROW[scalar]))
    if scalar == "float":
        inputs.append(any_bits(scalar, opcode))
    for x in inputs:
        with np.errstate(all="ignore"):
            want = reference(x.astype(WIDE[scalar]))
        got = function(x)
        error = error_in_ulp(got, want)
        worst = int(np.argmax(error))
        assert error[worst] <= budget, f"{opcode}({x[worst]!r}) = {got[worst]!r}, not {want[worst]}"
        zero = (got == 0) & (want == 0)
        assert (np.signbit(got) == np.signbit(want))[zero].all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("opcode", UNARY)
def test_unary_f32(opcode: str, target: str) -> None:
    check_unary(opcode, "float", TARGETS[target]())


@needs_long_double
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("opcode", UNARY)
def test_unary_f64(opcode: str, target: str) -> None:
    check_unary(opcode, "double", TARGETS[target]())


# By tables as long as an instruction set permutes, or by none.
BY_TABLES = {(opcode, "float") for opcode in ("log", "log-plus-one", "tanh", "erf")}


@pytest.mark.parametrize("scalar", ["float", "double"])
@pytest.mark.parametrize("opcode", UNARY)
def test_every_lane_count_and_instruction_set_gives_the_same_bits(opcode: str, scalar: str) -> None:
    x = np.concatenate([samples(scalar, -5, 5, opcode), any_bits(scalar, opcode)])[::7]
    first = compiled(opcode, scalar, host_target(), LANES[scalar])(x)
    for lanes in (1, 4):
        np.testing.assert_array_equal(compiled(opcode, scalar, host_target(), lanes)(x), first)
    if (opcode, scalar) in BY_TABLES:
        first = compiled(opcode, scalar, plain_target(), 1)(x)
    for lanes in (4, LANES[scalar]):
        np.testing.assert_array_equal(compiled(opcode, scalar, plain_target(), lanes)(x), first)


BINARY: dict[str, tuple[Callable, float, float]] = {
    "power": (np.power, 0.52, 0.7),
    "atan2": (np.arctan2, 0.51, 1),
    "remainder": (np.fmod, 0, 0),
}


def binary_inputs(opcode: str, scalar: str) -> list[tuple[np.ndarray, np.ndarray]]:
    dtype = NARROW[scalar]
    with np.errstate(all="ignore"):
        grid = np.array([*SPECIAL, 3, -3, 7, 2.0**53, 2.0**53 + 2], dtype)
    pairs = [tuple(a.ravel() for a in np.meshgrid(grid, grid))]
    pairs.append((samples(scalar, -10, 10, "x"), samples(scalar, -10, 10, "y")))
    pairs.append((np.round(samples(scalar, -99, 99, "x")), np.round(samples(scalar, -9, 9, "y"))))
    pairs.append((samples(scalar, 0.01, 100, "x"), samples(scalar, -20, 20, "y")))
    pairs.append((samples(scalar, 0.9, 1.1, "x"), samples(scalar, -800, 800, "y")))
    if opcode != "atan2":  # whose tiny quotients of subnormals are only good to an ulp
        pairs.append((any_bits(scalar, "x"), any_bits(scalar, "y")))
    return pairs


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("scalar", ["float", pytest.param("double", marks=needs_long_double)])
@pytest.mark.parametrize("opcode", BINARY)
def test_binary(opcode: str, scalar: str, target: str) -> None:
    reference, *budgets = BINARY[opcode]
    function = compiled(opcode, scalar, TARGETS[target](), LANES[scalar], 2)
    for x, y in binary_inputs(opcode, scalar):
        with np.errstate(all="ignore"):
            want = reference(x.astype(WIDE[scalar]), y.astype(WIDE[scalar]))
            got = function(x, y)
        error = error_in_ulp(got, want)
        worst = int(np.argmax(error))
        pair = f"{x[worst]!r}, {y[worst]!r}"
        text = f"{opcode}({pair}) = {got[worst]!r}, not {want[worst]}"
        assert error[worst] <= budgets[scalar == "double"], text
        known = ~np.isnan(got)
        assert (np.signbit(got) == np.signbit(want))[known].all()


# x, then sin x, cos x, tan x to more digits than a double holds (mpmath, 1300 bits).
LARGE = [
    (6381956970095103 * 2.0**797, 1.0, -4.68716592425462761e-19, -2.13348538575370384e18),
    (1.7976931348623157e308, 0.00496195478918406179, -0.999987689426559937, -0.0049620158744448949),
    (1e22, -0.852200849767188802, 0.523214785395138945, -1.62877822560689888),
    (1048576.0, 0.330493140021734672, 0.943808393901311984, 0.350169740126609033),
    # Below 2^40 the nearest to multiples of pi/2 (continued fractions), and on both sides of it.
    (14461176.67027838, -1.0, -1.69850382989860038e-18, 5.88753456069451008e17),
    (28922353.34055676, 3.39700765979720076e-18, -1.0, -3.39700765979720076e-18),
    (1099511627775.9999, -0.405593435747673647, -0.914053589719113657, 0.443730477413596169),
    (1099511627776.0, -0.405705011532828730, -0.914004071991556977, 0.443876590887416045),
]


@pytest.mark.parametrize("kind", ["host", "unfused"])
@pytest.mark.parametrize("lanes", [1, 8])
def test_huge_arguments_are_reduced_with_all_bits_of_pi(lanes: int, kind: str) -> None:
    x = np.array([row[0] for row in LARGE])
    for column, opcode in enumerate(("sine", "cosine", "tan"), 1):
        got = compiled(opcode, "double", TARGETS[kind](), lanes)(x)
        want = np.array([row[column] for row in LARGE])
        np.testing.assert_allclose(got, want, rtol=3e-16)
        np.testing.assert_array_equal(compiled(opcode, "double", TARGETS[kind](), lanes)(-x),
                                      got if opcode == "cosine" else -got)  # fmt: skip


def test_masked_inputs_of_exp_give_plain_zeros() -> None:
    x = np.array([-1e9, -math.inf, -104.5, -3e38] * 4, np.float32)
    assert not compiled("exponential", "float", host_target(), 16)(x).any()
