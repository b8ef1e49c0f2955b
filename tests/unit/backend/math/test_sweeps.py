"""f32 functions within 1 ulp and f64 functions within 2 of the true value, wherever that is hard.

Here: every 16381st f32, searches of f64 and the worst operands that longer sweeps have found. All
f32 numbers, 6 minutes a function: pytest -m slow tests/unit/backend/math/test_sweeps.py
(or one function at a time: python -m tests.support.accuracy f32 host logistic).
"""

import numpy as np
import pytest

from tests.support.accuracy import (
    BINARY,
    FORMS,
    LIMITS,
    UNARY,
    compiled,
    errors_of,
    pair_errors,
    search_f64,
    search_pairs,
    sweep_f32,
)

pytest.importorskip("scipy")
needs_long_double = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60, reason="long double is double"
)
STRIDE = 16381  # a prime: mantissas of all kinds

# The worst operands of every sweep so far, of this code and of what it replaced.
WORST_F32 = {
    "exponential": (-5.848641872406006, -26.7080078125),
    "exponential-minus-one": (0.3843638, 0.3466602861881256, 0.38025665, 17.1396484375, 0.34700584,
                              0.3486118),
    "log": (1.063541293144226, 1.06396484375, 1.647216796875),
    "log-plus-one": (0.06378291547298431, 0.06254768, 0.41375732421875),
    "logistic": (-4.1572938, -5.199118614196777, -17.6776123046875, -4.531036376953),
    "tanh": (0.6290283203125, 0.3067169189453125, 8.77734375, 8.66455078125, 0.06205010414123535),
    "sine": (3.339467049976242e32, 2147483648.0, 3.4028234663852886e38),
    "cosine": (9.398111702396751e19, 3.2921313276078326e19, 2147483904.0),
    "tan": (1043986290573312.0, 4.04148737200449e29, 5.3e37),
    "cbrt": (7.298584531054846e36,),
    "erf": (0.13247971, 0.132720947265625, 3.5966339111328125, 0.9136734008789062, 0.9263648986816,
            0.9601320028305054, 0.9241781),
}  # fmt: skip
WORST_F64 = {
    "exponential": (-708.7445379402207,),
    "exponential-minus-one": (37.088021030943494, 0.3465737194294858),
    "log": (0.62849616996871,),
    "log-plus-one": (0.490152519771595,),
    "logistic": (-4.85024, -7.624369719950969, -0.22618656365684414, -480.00734239738324),
    "tanh": (0.2060323287, 0.21091746420696722, 18.715023984954733, 9.530876142243379),
    "sine": (1716651.8486413886,),
    "cosine": (1963541.7587077327,),
    "tan": (399.7413416072708,),
    "erf": (1.0522209446919206,),
    "asin": (-0.5000952493055438,),
    "acos": (-0.5000000115071578,),
    "sinh": (0.03121632287955486, 0.4141380313406657, 1.0524644611978842e214, 710.3),
    "cosh": (12.151413109727285,),
    "asinh": (0.5012325452611526,),
    "acosh": (1.00195, 1.0018922430027686, 1.001951370456852, 1.0309091199456688),
    "atanh": (0.22090756184890253,),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opcode", UNARY)
def test_f32(opcode: str, form: str) -> None:
    error, x = sweep_f32(opcode, form, STRIDE)
    assert error <= LIMITS["float"], f"{opcode}({x!r})"


@needs_long_double
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opcode", UNARY)
def test_f64(opcode: str, form: str) -> None:
    error, x = search_f64(opcode, form, 4096, 4)
    assert error <= LIMITS["double"], f"{opcode}({x!r})"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opcode", WORST_F32)
def test_worst_f32_of_earlier_sweeps(opcode: str, form: str) -> None:
    x = np.array(WORST_F32[opcode], np.float32)
    assert (errors_of(opcode, "float", form, x) <= LIMITS["float"]).all()


@needs_long_double
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opcode", WORST_F64)
def test_worst_f64_of_earlier_sweeps(opcode: str, form: str) -> None:
    x = np.array(WORST_F64[opcode])
    assert (errors_of(opcode, "double", form, x) <= LIMITS["double"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opcode", UNARY)
def test_every_f32(opcode: str, form: str) -> None:
    error, x = sweep_f32(opcode, form)
    assert error <= LIMITS["float"], f"{opcode}({x!r})"


@pytest.mark.slow
@needs_long_double
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opcode", UNARY)
def test_long_searches_of_f64(opcode: str, form: str) -> None:
    error, x = max(search_f64(opcode, form, 1 << 18, 12, seed) for seed in range(8))
    assert error <= LIMITS["double"], f"{opcode}({x!r})"


SCALARS = ["float", pytest.param("double", marks=needs_long_double)]
WORST_POWERS = ((0.7465677020279241, 2079.923692050979), (0.7494469369466265, 2338.3746415398305))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("opcode", BINARY)
def test_pairs(opcode: str, scalar: str, form: str) -> None:
    error, x, y = search_pairs(opcode, scalar, form, 2048, 4)
    assert error <= LIMITS[scalar], f"{opcode}({x!r}, {y!r})"


@needs_long_double
def test_worst_powers_of_earlier_searches() -> None:
    x, y = np.array(WORST_POWERS).T
    assert (pair_errors("power", "double", "host", x, y) <= 1.7).all()


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("opcode", BINARY)
def test_long_searches_of_pairs(opcode: str, scalar: str, form: str) -> None:
    error, x, y = max(search_pairs(opcode, scalar, form, 1 << 17, 12, seed) for seed in range(8))
    assert error <= LIMITS[scalar], f"{opcode}({x!r}, {y!r})"


@pytest.mark.parametrize("opcode", ["sine", "cosine", "tan"])
def test_large_angles_in_every_lane_count(opcode: str) -> None:
    """Lanes beside numbers of the quick reduction, and scalars, have the bits of full vectors."""
    rng = np.random.default_rng(2)
    x = (2.0 ** rng.uniform(-3, 127.9, 512)).astype(np.float32)
    x[::7] = np.array([np.inf, np.nan, -np.inf, 2.0**31, -(2.0**127)] * 15, np.float32)[:74]
    whole = compiled(opcode, "float", "host")(x)
    large = np.abs(x) >= 2.0**31
    alone = compiled(opcode, "float", "host")(x[large])
    np.testing.assert_array_equal(whole[large], alone)
    for lanes in (1, 4, 8):
        np.testing.assert_array_equal(compiled(opcode, "float", "host", lanes)(x), whole)
