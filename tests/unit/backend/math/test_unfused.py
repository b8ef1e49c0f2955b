"""Products in two parts and roundings to integers where no instruction makes them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from hlo.backend.isa.target import Target
from hlo.backend.math import rounding
from hlo.backend.math.term import Term, fma, grown, near_one, residual, two_product
from hlo.machine import NAMED
from tests.support.lanes_jit import lanes_function
from tests.unit.backend.entry.test_float_libcalls_ir import SPECIAL, away

TARGET = Target(NAMED["x86-64"])  # neither fuses nor rounds
KINDS = {"float": (np.float32, 8), "double": (np.float64, 4)}
ROUNDINGS = {
    rounding.floor: np.floor, rounding.ceil: np.ceil, rounding.truncated: np.trunc,
    rounding.nearest: np.rint, rounding.away: away,
}  # fmt: skip


def run(
    function: Callable[..., tuple[Term, ...]], scalar: str, arity: int, results: int = 1
) -> Callable[..., list[np.ndarray]]:
    def body(w, target, values):  # type: ignore[no-untyped-def]
        return [t.value for t in function(*(Term(w, target, v) for v in values))]

    lanes = KINDS[scalar][1]
    return lanes_function(body, [scalar] * arity, [scalar] * results, lanes=lanes, target=TARGET)


def drawn(scalar: str, count: int, seed: int, spread: float = 8.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(count) * 2.0 ** rng.uniform(-spread, spread, count)
    return x.astype(KINDS[scalar][0])


@pytest.mark.parametrize("scalar", KINDS)
def test_a_product_in_two_parts(scalar: str) -> None:
    x, y = drawn(scalar, 400, 1), drawn(scalar, 400, 2)
    for high, low, a, b in zip(*run(two_product, scalar, 2, 2)(x, y), x, y, strict=True):
        exact = Fraction(float(a)) * Fraction(float(b))
        found = Fraction(float(high)) + Fraction(float(low))
        assert high == a * b
        assert found == exact if scalar == "float" else abs(found - exact) < abs(exact) / 2**103


@pytest.mark.parametrize("scalar", KINDS)
def test_sums_are_rounded_once(scalar: str) -> None:
    """But for 2^-20 of a last place, and of doubles 2^-103 of what cancels."""
    kind = KINDS[scalar][0]
    x, y, z = (drawn(scalar, 400, k) for k in (3, 4, 5))
    near = (x * y).astype(kind)  # which cancels
    results = {
        "fma": (run(lambda a, b, c: (fma(a, b, c),), scalar, 3)(x, y, z)[0], x, y, z),
        "cancelled": (run(lambda a, b, c: (fma(a, b, -c),), scalar, 3)(x, y, near)[0], x, y, -near),
        "residual": (run(lambda a, b, c: (residual(c, a, b),), scalar, 3)(x, y, near)[0],
                     -x, y, near),
        "grown": (run(lambda a, b: (grown(a, b),), scalar, 2)(x, y)[0], x, y, x),
    }  # fmt: skip
    for name, (found, *operands) in results.items():
        for got, a, b, c in zip(found, *operands, strict=True):
            exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
            unit = Fraction(float(np.spacing(abs(got))))
            most = unit * Fraction(501, 1000)
            if scalar == "double":
                most += abs(Fraction(float(c))) / 2**103
            assert abs(Fraction(float(got)) - exact) <= most, name


@pytest.mark.parametrize("scalar", KINDS)
def test_subnormal_results_are_rounded_once(scalar: str) -> None:
    kind = KINDS[scalar][0]
    least = np.finfo(kind).smallest_subnormal
    x = (np.arange(1, 401) * least).astype(kind)
    y = drawn(scalar, 400, 6, 1.0)
    (found,) = run(lambda a, b: (grown(a, b),), scalar, 2)(x, y)
    for got, a, b in zip(found, x, y, strict=True):
        exact = Fraction(float(a)) * (1 + Fraction(float(b)))
        assert abs(Fraction(float(got)) - exact) <= Fraction(float(least)) * Fraction(501, 1000)


@pytest.mark.parametrize("scalar", KINDS)
def test_numbers_near_one(scalar: str) -> None:
    rng = np.random.default_rng(7)
    kind = KINDS[scalar][0]
    r, q = rng.uniform(-0.35, 0.35, 400).astype(kind), rng.uniform(0, 1, 400).astype(kind)
    for got, a, b in zip(*run(lambda x, y: (near_one(x, y),), scalar, 2)(r, q), r, q, strict=True):
        a, b = Fraction(float(a)), Fraction(float(b))
        error = abs(Fraction(float(got)) - (1 + a * (1 + a * b)))
        assert error < Fraction(float(np.spacing(got))) * Fraction(6, 10)


@pytest.mark.parametrize("scalar", KINDS)
@pytest.mark.parametrize("function", ROUNDINGS, ids=lambda f: f.__name__)
def test_roundings(function: Callable[[Term], Term], scalar: str) -> None:
    kind = KINDS[scalar][0]
    halves = np.arange(-500, 500) / 2
    edges = [2.0**p + d for p in (22, 23, 24, 51, 52, 53) for d in (-1.5, -1, -0.5, 0, 0.5, 1)]
    x = np.concatenate([SPECIAL, halves, edges, np.negative(edges), drawn(scalar, 999, 8, 60.0)])
    x = x.astype(kind)
    (found,) = run(lambda a: (function(a),), scalar, 1)(x)
    wanted = np.array([ROUNDINGS[function](v) for v in x], kind)
    is_number = ~np.isnan(x)
    assert (found[is_number].tobytes(), np.isnan(found[~is_number]).all()) == (
        wanted[is_number].tobytes(), True
    )  # fmt: skip
