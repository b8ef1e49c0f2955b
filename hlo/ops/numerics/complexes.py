"""Complex functions with C99's branch cuts and XLA's special values (docs/semantics.md 3, 4).

c64 is computed in c128, c128 in NumPy's clongdouble: wide enough in range, on x86, for the plain
formulas not to overflow in between.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo.ops.numerics.representation import Array

WIDE = {np.dtype(np.complex64): np.complex128, np.dtype(np.complex128): np.clongdouble}


def widened(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` of wider complex arrays, rounded to the operands' type."""

    def complex_function(*values: Array) -> Array:
        narrow = values[0].dtype
        result = function(*(v.astype(WIDE[narrow]) for v in values))
        part = np.empty(0, narrow).real.dtype
        return np.asarray(result).astype(part if np.isrealobj(result) else narrow)

    return complex_function


def pair(real: Array, imag: Array) -> Array:
    """real + i imag without arithmetic: inf and NaN in one part leave the other alone."""
    real, imag = np.broadcast_arrays(real, imag)
    wide = np.result_type(real.dtype, np.complex64)
    result = np.empty(real.shape, wide)
    result.real, result.imag = real, imag
    return result


def magnitude(z: Array) -> Array:
    """|z| without overflow; NaN when a part is NaN."""
    size = np.hypot(z.real, z.imag)
    return np.asarray(np.where(np.isnan(z.real) | np.isnan(z.imag), size.dtype.type(np.nan), size))


def negate(z: Array) -> Array:
    """Both signs flipped."""
    return pair(-z.real, -z.imag)


def sign(z: Array) -> Array:
    """z/|z|, 0 for 0."""
    size = magnitude(z)
    return np.where(z == 0, z, pair(z.real / size, z.imag / size))


def multiply(x: Array, y: Array) -> Array:
    """(ac-bd) + (ad+bc)i, without Annex G's repair."""
    a, b, c, d = x.real, x.imag, y.real, y.imag
    return pair(a * c - b * d, a * d + b * c).astype(x.dtype)


def divide(x: Array, y: Array) -> Array:
    """x/y with the infinities of C99 Annex G.5.1 put back where the plain quotient is NaN."""
    a, b, c, d = np.broadcast_arrays(x.real, x.imag, y.real, y.imag)
    real, imag = _plain_quotient(a, b, c, d)
    lost = np.isnan(real) & np.isnan(imag)
    by_zero = lost & (c == 0) & (d == 0) & ~(np.isnan(a) & np.isnan(b))
    infinity = np.copysign(real.dtype.type(np.inf), c)
    from_infinite = lost & (np.isinf(a) | np.isinf(b)) & np.isfinite(c) & np.isfinite(d)
    by_infinite = lost & (np.isinf(c) | np.isinf(d)) & np.isfinite(a) & np.isfinite(b)
    a1, b1, c1, d1 = (np.copysign(np.isinf(part).astype(part.dtype), part) for part in (a, b, c, d))
    cases = [by_zero, from_infinite, by_infinite]
    choices_real = [infinity * a, np.inf * (a1 * c + b1 * d), 0 * (a * c1 + b * d1)]
    choices_imag = [infinity * b, np.inf * (b1 * c - a1 * d), 0 * (b * c1 - a * d1)]
    return pair(np.select(cases, choices_real, real), np.select(cases, choices_imag, imag))


def _plain_quotient(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    """Smith's algorithm (1962): the divisor's larger part is divided out first."""
    swap = np.abs(c) < np.abs(d)
    small, large = np.where(swap, c, d), np.where(swap, d, c)
    ratio = small / large
    scale = large + small * ratio
    first, second = np.where(swap, b, a), np.where(swap, a, b)
    real = (first + second * ratio) / scale
    imag = np.where(swap, b * ratio - a, b - a * ratio) / scale
    return real, imag


def power(z: Array, w: Array) -> Array:
    """|z|^c e^(-d arg z) (cos q + i sin q), q = c arg z + d ln|z|, for w = c + di."""
    z, w = np.broadcast_arrays(z, w)
    c, d = w.real, w.imag
    size, angle = magnitude(z), np.arctan2(z.imag, z.real)
    q = c * angle + np.where(d == 0, c.dtype.type(0), d * np.log(size))
    grown, turned = np.power(size, c), np.exp(-d * angle)
    numbers = np.isfinite(grown) & np.isfinite(turned) & (grown != 0) & (turned != 0)
    lost = (d != 0) & ~numbers  # 0 times infinity, which together may be a number
    scale = np.where(lost, np.exp(c * np.log(size) - d * angle), grown * turned)
    general = pair(scale * np.cos(q), np.where(q == 0, q, scale * np.sin(q)))
    nan, real = c.dtype.type(np.nan), d == 0
    at_zero, at_infinity = (z == 0) & real, np.isinf(size) & real
    cases = (
        ((w == 0) | (z == 1), np.ones_like(z)),
        (at_zero & (c > 0), np.zeros_like(z)),
        (at_zero & (c < 0), pair(nan + c, nan + c)),
        (at_infinity & (c > 0), np.full_like(z, np.inf)),
        (at_infinity & (c < 0), np.zeros_like(z)),
    )
    return np.select([case for case, _ in cases], [value for _, value in cases], general)


def logarithm_plus_one(z: Array) -> Array:
    """log(1+z), accurate near 0 and where |1+z| is near 1."""
    a, b = z.real, z.imag
    near = np.log1p(_sum_of_squares(2 * a, a, b)) / 2
    far = np.log(pair(a + 1, b))
    size = np.abs(far.real)
    return pair(np.where(size < 0.5, near, far.real), far.imag)


def _sum_of_squares(first: Array, a: Array, b: Array) -> Array:
    """first + a^2 + b^2 with the rounding errors of its parts added at the end."""
    p, p_rest = _square(a)
    q, q_rest = _square(b)
    partial, rest = _sum(first, p)
    total, last = _sum(partial, q)
    return np.asarray(total + (rest + last + p_rest + q_rest))


def _square(x: Array) -> tuple[Array, Array]:
    """x^2 as rounded, and its error (Dekker)."""
    wide = x * (x.dtype.type(2) ** ((np.finfo(x.dtype).nmant + 2) // 2) + 1)
    high = wide - (wide - x)
    low = x - high
    product = x * x
    return product, low * low - ((product - high * high) - 2 * high * low)


def _sum(x: Array, y: Array) -> tuple[Array, Array]:
    """x + y as rounded, and its error (Knuth)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def reciprocal_root(z: Array) -> Array:
    """conj(sqrt z)/|z|; at 0 infinite without direction, at infinity 0."""
    root, size = np.sqrt(z), magnitude(z)
    infinite, zero = np.isinf(z.real) | np.isinf(z.imag), z == 0
    real = np.where(infinite, 0, np.where(zero, np.inf, root.real / size))
    imag = np.where(infinite, np.copysign(0, -z.imag), np.where(zero, np.nan, -root.imag / size))
    return pair(real, imag)


def exponential(z: Array) -> Array:
    """e^a (cos b + i sin b); the imaginary part is 0 where b is 0."""
    a, b = z.real, z.imag
    size = np.exp(a)
    real = np.where((a == np.inf) & ~np.isfinite(b), a, _scaled(a, size, np.cos(b)))
    return pair(real, np.where(b == 0, b, _scaled(a, size, np.sin(b))))


def _scaled(a: Array, size: Array, part: Array) -> Array:
    """size * part, size = e^a: e^-inf wins over a part that is not a number, e^-1000 does not."""
    return np.where((a == -np.inf) & ~np.isfinite(part), size, size * part)


def exponential_minus_one(z: Array) -> Array:
    """expm1(a) cos b - 2 sin(b/2)^2 + i e^a sin b."""
    a, b = z.real, z.imag
    grown = np.expm1(a)
    real = np.where(b == 0, grown, grown * np.cos(b) - 2 * np.sin(b / 2) ** 2)
    real = np.where(a == -np.inf, -1, np.where((a == np.inf) & ~np.isfinite(b), a, real))
    return pair(real, np.where(b == 0, b, _scaled(a, np.exp(a), np.sin(b))))


def logistic(z: Array) -> Array:
    """1/(1+exp(-z)), whose imaginary part has the sign of sin b where it vanishes.

    1 + e^-z = expm1(-a) cos b + 2 cos(b/2)^2 - i e^-a sin b, which does not cancel near the poles.
    """
    a, b = z.real, z.imag
    below = 1 + exponential(negate(z))
    near = np.expm1(-a) * np.cos(b) + 2 * np.cos(b / 2) ** 2
    value = divide(np.ones_like(z), pair(np.where(np.abs(a) < 1, near, below.real), below.imag))
    none = np.copysign(np.zeros_like(b), np.where(np.isfinite(b), np.sin(b), b))
    return pair(value.real, np.where(value.imag == 0, none, value.imag))


def hyperbolic_sine(z: Array) -> Array:
    """sinh a cos b + i cosh a sin b; a's infinity beside a b without a direction."""
    value = np.sinh(z)
    lost = np.isinf(z.real) & ~np.isfinite(z.imag)
    return pair(np.where(lost, z.real, value.real), value.imag)


def hyperbolic_cosine(z: Array) -> Array:
    """cosh a cos b + i sinh a sin b; a's zero beside a b without a direction."""
    value = np.cosh(z)
    lost = (z.real == 0) & ~np.isfinite(z.imag)
    return pair(value.real, np.where(lost, z.real, value.imag))


def sine(z: Array) -> Array:
    """-i sinh(iz)."""
    turned = hyperbolic_sine(pair(-z.imag, z.real))
    return pair(turned.imag, -turned.real)


def cosine(z: Array) -> Array:
    """cosh(iz)."""
    return hyperbolic_cosine(pair(-z.imag, z.real))


def tangent(z: Array) -> Array:
    """-i tanh(iz)."""
    turned = np.tanh(pair(-z.imag, z.real))
    return pair(turned.imag, -turned.real)


def arctangent2(y: Array, x: Array) -> Array:
    """-i log((x + iy)/sqrt(x^2 + y^2))."""
    turned = np.log(divide(x + pair(-y.imag, y.real), np.sqrt(multiply(x, x) + multiply(y, y))))
    return pair(turned.imag, -turned.real)
