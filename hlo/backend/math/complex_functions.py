"""Complex functions built from the real ones (pairs of double terms).

sinh, cosh, sin, cos by their real and imaginary parts; tanh and the inverse functions after Kahan,
"Branch cuts for complex elementary functions" (1987), which keep signs and accuracy at the cuts.
"""

from __future__ import annotations

from hlo.backend.math import exponential, hyperbolic, logarithm, trigonometric
from hlo.backend.math.complex_arithmetic import Complex, choose, divide, exp, log, sqrt
from hlo.backend.math.inverse_trigonometric import atan2
from hlo.backend.math.term import Term, fma

_INF = float("inf")


def expm1(z: Complex) -> Complex:
    """expm1(a) cos b - 2 sin(b/2)^2 + i e^a sin b."""
    a, b = z.real, z.imag
    half = trigonometric.sin(b * 0.5)
    real = fma(exponential.expm1(a), trigonometric.cos(b), half * half * -2.0)
    imag = exponential.exp(a) * trigonometric.sin(b)
    return Complex(real, b.eq(0.0).select(b, imag))


def logistic(z: Complex) -> Complex:
    """1/(1 + e^-z)."""
    one = Complex(z.real.const(1.0), z.real.const(0.0))
    return divide(one, one + exp(-z))


def sinh(z: Complex) -> Complex:
    """sinh a cos b + i cosh a sin b."""
    a, b = z.real, z.imag
    real = _product(hyperbolic.sinh(a), trigonometric.cos(b))
    return Complex(real, _product(hyperbolic.cosh(a), trigonometric.sin(b)))


def cosh(z: Complex) -> Complex:
    """cosh a cos b + i sinh a sin b."""
    a, b = z.real, z.imag
    real = _product(hyperbolic.cosh(a), trigonometric.cos(b))
    return Complex(real, _product(hyperbolic.sinh(a), trigonometric.sin(b)))


def _product(size: Term, part: Term) -> Term:
    """size * part, where an exact zero stays one beside an infinity or NaN."""
    zero = part.eq(0.0) | size.eq(0.0)
    x, y = (zero.select(_unit_where_wild(f), f) for f in (size, part))
    return x * y


def _unit_where_wild(x: Term) -> Term:
    return (x.abs() < _INF).select(x, x.const(1.0).copysign(x))


def sin(z: Complex) -> Complex:
    """-i sinh(iz)."""
    return sinh(z.times_i()).over_i()


def cos(z: Complex) -> Complex:
    """cosh(iz)."""
    return cosh(z.times_i())


def tan(z: Complex) -> Complex:
    """-i tanh(iz)."""
    return tanh(z.times_i()).over_i()


def tanh(z: Complex) -> Complex:
    """With t = tan b, u = 1 + t^2, s = sinh a: (u s sqrt(1+s^2) + i t) / (1 + u s^2)."""
    a, b = z.real, z.imag
    large = a.abs() > 22.0
    t = trigonometric.tan(b)
    u = fma(t, t, 1.0)
    s = hyperbolic.sinh(large.select(0.0, a))
    scale = fma(u * s, s, 1.0)
    near = Complex(u * s * fma(s, s, 1.0).sqrt() / scale, t / scale)
    tail = exponential.exp(a.abs() * -2.0)
    far = Complex(a.const(1.0).copysign(a), tail.eq(0.0).select(0.0, t / u * 4.0 * tail))
    result = choose(large, far, near)
    real = a.eq(0.0).select(a, result.real)
    return Complex(real, b.eq(0.0).select(b, result.imag))


def asin(z: Complex) -> Complex:
    """atan2(x, Re(m p)) + i asinh(Im(conj(m) p)), m = sqrt(1 - z), p = sqrt(1 + z)."""
    m, p = sqrt(_one_minus(z)), sqrt(_one_plus(z))
    real = atan2(z.real, m.real * p.real - m.imag * p.imag)
    imag = hyperbolic.asinh(m.real * p.imag - m.imag * p.real)
    far = Complex(atan2(z.real, z.imag.abs()), z.real.const(_INF).copysign(z.imag))
    return choose(_is_infinite(z), far, Complex(real, imag))


def acos(z: Complex) -> Complex:
    """2 atan2(Re m, Re p) + i asinh(Im(conj(p) m))."""
    m, p = sqrt(_one_minus(z)), sqrt(_one_plus(z))
    real = atan2(m.real, p.real) * 2.0
    imag = hyperbolic.asinh(p.real * m.imag - p.imag * m.real)
    far = Complex(atan2(z.imag.abs(), z.real), z.real.const(_INF).copysign(-z.imag))
    return choose(_is_infinite(z), far, Complex(real, imag))


def asinh(z: Complex) -> Complex:
    """-i asin(iz)."""
    return asin(z.times_i()).over_i()


def acosh(z: Complex) -> Complex:
    """asinh(Re(conj(m) p)) + 2i atan2(Im m, Re p), m = sqrt(z - 1), p = sqrt(z + 1)."""
    m, p = sqrt(Complex(z.real - 1.0, z.imag)), sqrt(_one_plus(z))
    real = hyperbolic.asinh(m.real * p.real + m.imag * p.imag)
    far = Complex(z.real.const(_INF), atan2(z.imag, z.real))
    return choose(_is_infinite(z), far, Complex(real, atan2(m.imag, p.real) * 2.0))


def atanh(z: Complex) -> Complex:
    """log1p(4a/((1-a)^2 + b^2))/4 + i atan2(2b, (1-a)(1+a) - b^2)/2, odd in a."""
    a, b = z.real.abs(), z.imag
    under = 1.0 - a
    distance = fma(under, under, b * b)
    real = logarithm.log1p(distance.eq(_INF).select(0.0, a * 4.0 / distance)) * 0.25
    imag = atan2(b * 2.0, fma(under, a + 1.0, -(b * b))) * 0.5
    infinite = a.eq(_INF) | b.abs().eq(_INF)
    upright = b.const(1.5707963267948966).copysign(b)
    return Complex(real.copysign(z.real), infinite.select(upright, imag))


def arctangent2(y: Complex, x: Complex) -> Complex:
    """-i log((x + iy)/sqrt(x^2 + y^2))."""
    return log(divide(x + y.times_i(), sqrt(x * x + y * y))).over_i()


def _is_infinite(z: Complex) -> Term:
    """Whether a part is: there the inverse functions follow the direction alone, as in C99."""
    return z.real.abs().eq(_INF) | z.imag.abs().eq(_INF)


def _one_minus(z: Complex) -> Complex:
    return Complex(1.0 - z.real, -z.imag)


def _one_plus(z: Complex) -> Complex:
    return Complex(z.real + 1.0, z.imag)
