"""Complex functions to a hundred digits, for parts that cancel: by Python's decimal numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np

_DIGITS = 100
_LEAST = Decimal(10) ** -(_DIGITS + 20)
Pair = tuple[Decimal, Decimal]


@lru_cache(maxsize=1)
def _pi() -> Decimal:
    """By Machin's formula."""

    def arctan_inverse(n: int) -> Decimal:
        total = power = Decimal(1) / n
        k, sign = 3, -1
        while power > _LEAST:
            power /= n * n
            total += sign * power / k
            k, sign = k + 2, -sign
        return total

    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


def sine_cosine(x: Decimal) -> Pair:
    n = (2 * x / _pi()).to_integral_value()
    r = x - n * _pi() / 2
    sums, term = [Decimal(1), r], r  # the cosine's series and the sine's
    for k in range(2, 200):
        term = term * r / k
        sums[k % 2] += -term if k // 2 % 2 else term
    square = sums[1]
    c = sums[0]
    return ((square, c), (c, -square), (-square, -c), (-c, square))[int(n) % 4]


def angle(y: Decimal, x: Decimal) -> Decimal:
    """atan2 by Newton's method."""
    result, size = Decimal(math.atan2(y, x)), (x * x + y * y).sqrt()
    for _ in range(3):
        s, c = sine_cosine(result)
        result += (y * c - x * s) / size
    return result


def exponential_minus_one(a: Decimal, b: Decimal) -> Pair:
    s, c = sine_cosine(b)
    return a.exp() * c - 1, a.exp() * s


def logistic(a: Decimal, b: Decimal) -> Pair:
    s, c = sine_cosine(-b)
    x, y = 1 + (-a).exp() * c, (-a).exp() * s
    return x / (x * x + y * y), -y / (x * x + y * y)


def log(a: Decimal, b: Decimal) -> Pair:
    return (a * a + b * b).ln() / 2, angle(b, a)


def log_plus_one(a: Decimal, b: Decimal) -> Pair:
    return log(a + 1, b)


def real_power(a: Decimal, b: Decimal, exponent: Decimal) -> Pair:
    size, turn = log(a, b)
    s, c = sine_cosine(exponent * turn)
    grown = (exponent * size).exp()
    return grown * c, grown * s


def part_errors(function: Callable[..., Pair], got: np.ndarray, *operands: np.ndarray) -> list:
    """Per element the errors of both parts, and what a unit of their last places is."""
    errors = []
    with localcontext(prec=_DIGITS, Emin=-999999, Emax=999999):
        for value, *numbers in zip(got, *operands, strict=True):
            want = function(*(Decimal(float(n)) for n in numbers))
            parts = (value.real, value.imag)
            errors.append([
                (float(abs(Decimal(float(p)) - w)), float(np.spacing(abs(float(w)))))
                for p, w in zip(parts, want, strict=True)
            ])  # fmt: skip
    return errors
