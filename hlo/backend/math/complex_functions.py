"""Complex functions built from the real ones (pairs of double terms).

sinh, cosh, sin, cos by their real and imaginary parts; tanh and the inverse functions after Kahan,
"Branch cuts for complex elementary functions" (1987), which keep signs and accuracy at the cuts.
"""

from __future__ import annotations

from hlo.backend.math import exponential, hyperbolic, logarithm, trigonometric, two_parts
from hlo.backend.math.complex_arithmetic import (
    balanced,
    divide,
    exp,
    log,
    log_size,
    magnitude,
    scaled,
    sqrt,
)
from hlo.backend.math.complex_term import Complex, choose, outlined_pair
from hlo.backend.math.inverse_trigonometric import atan2
from hlo.backend.math.term import Term, fma, outlined

_INF = float("inf")
_HALF_PI = 1.5707963267948966
_LN2 = 0.6931471805599453
_FAR = 2.0**60


def expm1(z: Complex, *, exactly: bool = True) -> Complex:
    """expm1(a) cos b - 2 sin(b/2)^2 + i e^a sin b.

    The real part vanishes along e^a cos b = 1; there it is expm1(a) - 2 sin(b/2)^2 e^a, in parts
    that are good to 2^-60 of e^a. Doubles that hold f32 numbers can do without.
    """
    a, b = z.real, z.imag
    half = trigonometric.sin(b * 0.5)
    lost, grown = half * half * -2.0, exponential.expm1(a)
    real = fma(grown, trigonometric.cos(b), lost)
    if exactly:
        real = (a.abs() < _NEAR).select(outlined("complex.expm1", [a, b], _grown_real), real)
    real = b.eq(0.0).select(grown, a.eq(0.0).select(lost, real))
    real = (a.eq(_INF) & ~_finite(b)).select(a, a.eq(-_INF).select(a.const(-1.0), real))
    imag = scaled(a, exponential.exp(a), trigonometric.sin(b))
    return Complex(real, b.eq(0.0).select(b, imag))


_NEAR = 4.0  # |a| below which parts that cancel are summed in two parts


def _grown_real(a: Term, b: Term) -> Term:
    """e^a cos b - 1."""
    grown = _bounded_expm1(a)
    sine, _ = two_parts.half_angle_squares(b)
    return _less_twice(grown, sine, grown)


def _lowered_real(a: Term, b: Term) -> Term:
    """1 + e^-a cos b."""
    grown = _bounded_expm1(-a)
    _, cosine = two_parts.half_angle_squares(b)
    return -_less_twice(grown, cosine, grown)


def _bounded_expm1(a: Term) -> two_parts.Pair:
    return two_parts.expm1((a.abs() < _NEAR).select(a, 0.0))


def _less_twice(x: two_parts.Pair, square: two_parts.Pair, grown: two_parts.Pair) -> Term:
    """x - 2 square (1 + grown)."""
    whole = two_parts.total((grown[0].const(1.0), grown[0].const(0.0)), grown)
    high, low = two_parts.product(square, whole)
    result, rest = two_parts.total(x, (high * -2.0, low * -2.0))
    return result + rest


def logistic(z: Complex, *, exactly: bool = True) -> Complex:
    """1/(1 + e^-z), whose imaginary part has the sign of sin b where it vanishes.

    1 + e^-z = expm1(-a) cos b + 2 cos(b/2)^2 - i e^-a sin b, which does not cancel near the poles;
    where the real part vanishes it is 2 cos(b/2)^2 e^-a - expm1(-a), in parts as expm1's.
    """
    one = Complex(z.real.const(1.0), z.real.const(0.0))
    below = one + exp(-z)
    if exactly:
        near = outlined("complex.logistic", [z.real, z.imag], _lowered_real)
    else:
        half = trigonometric.cos(z.imag * 0.5)
        near = fma(exponential.expm1(-z.real), trigonometric.cos(z.imag), half * half * 2.0)
    close = z.real.abs() < (_NEAR if exactly else 1.0)
    value = divide(one, Complex(close.select(near, below.real), below.imag))
    return Complex(value.real, value.imag.eq(0.0).select(_zero_like(z.imag), value.imag))


def _zero_like(b: Term) -> Term:
    """A zero of the sign of sin b; of b where b is no finite number."""
    return b.const(0.0).copysign(_finite(b).select(trigonometric.sin(b), b))


def sinh(z: Complex) -> Complex:
    """sinh a cos b + i cosh a sin b."""
    a, b = z.real, z.imag
    sinh_a, cosh_a, lacking = _sinh_cosh(a)
    real = _product(sinh_a, trigonometric.cos(b)) * lacking
    real = (a.abs().eq(_INF) & ~_finite(b)).select(a, real)  # infinite, of whatever sign
    return Complex(real, _product(cosh_a, trigonometric.sin(b)) * lacking)


def cosh(z: Complex) -> Complex:
    """cosh a cos b + i sinh a sin b."""
    a, b = z.real, z.imag
    sinh_a, cosh_a, lacking = _sinh_cosh(a)
    real = _product(cosh_a, trigonometric.cos(b)) * lacking
    real = (a.abs().eq(_INF) & ~_finite(b)).select(a.abs(), real)
    return Complex(real, _product(sinh_a, trigonometric.sin(b)) * lacking)


def _sinh_cosh(a: Term) -> tuple[Term, Term, Term]:
    """sinh a, cosh a, and a factor that both still lack where e^a overflows: e^|a|/2 = h h/2."""
    size = a.abs()
    big = (size > 700.0) & (size < 1500.0)
    half = exponential.exp(big.select(size * 0.5, 0.0))
    sinh_a = big.select(half.copysign(a) * 0.5, hyperbolic.sinh(a))
    cosh_a = big.select(half * 0.5, hyperbolic.cosh(a))
    return sinh_a, cosh_a, half


def _product(size: Term, part: Term) -> Term:
    """size * part, where an exact zero stays one beside an infinity or NaN."""
    zero = part.eq(0.0) | size.eq(0.0)
    x, y = (zero.select(_unit_where_wild(f), f) for f in (size, part))
    return x * y


def _unit_where_wild(x: Term) -> Term:
    unit = x.is_nan.select(x.const(1.0), x.const(1.0).copysign(x))
    return _finite(x).select(x, unit)


def _finite(x: Term) -> Term:
    return x.abs() < _INF


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
    far = Complex(a.const(1.0).copysign(a), t / u * 4.0 * tail)
    result = choose(large, far, near)
    lost = ~_finite(b) & _finite(a)
    real = a.eq(0.0).select(a, lost.select(float("nan"), result.real))
    vanishing = tail.eq(0.0).select(b.const(0.0).copysign(_finite(b).select(t, b)), result.imag)
    imag = lost.select(float("nan"), vanishing)
    return Complex(real, b.eq(0.0).select(b, imag))


def asin(z: Complex) -> Complex:
    """atan2(x, Re(m p)) + i asinh(Im(conj(m) p)), m = sqrt(1 - z), p = sqrt(1 + z)."""
    m, p = _root(_one_minus(z)), _root(_one_plus(z))
    real = atan2(z.real, m.real * p.real - m.imag * p.imag)
    imag = hyperbolic.asinh(m.real * p.imag - m.imag * p.real)
    far = Complex(atan2(z.real, z.imag.abs()), _log_twice(z).copysign(z.imag))
    result = choose(_is_far(z), far, Complex(real, imag))
    return Complex(z.real.eq(0.0).select(z.real, result.real), result.imag)


def acos(z: Complex) -> Complex:
    """2 atan2(Re m, Re p) + i asinh(Im(conj(p) m))."""
    m, p = _root(_one_minus(z)), _root(_one_plus(z))
    real = atan2(m.real, p.real) * 2.0
    imag = hyperbolic.asinh(p.real * m.imag - p.imag * m.real)
    far = Complex(atan2(z.imag.abs(), z.real), _log_twice(z).copysign(-z.imag))
    result = choose(_is_far(z), far, Complex(real, imag))
    return Complex(z.real.eq(0.0).select(_HALF_PI, result.real), result.imag)


def asinh(z: Complex) -> Complex:
    """-i asin(iz)."""
    return asin(z.times_i()).over_i()


def acosh(z: Complex) -> Complex:
    """asinh(Re(conj(m) p)) + 2i atan2(Im m, Re p), m = sqrt(z - 1), p = sqrt(z + 1)."""
    m, p = _root(Complex(z.real - 1.0, z.imag)), _root(_one_plus(z))
    real = hyperbolic.asinh(m.real * p.real + m.imag * p.imag)
    far = Complex(_log_twice(z), atan2(z.imag, z.real))
    result = choose(_is_far(z), far, Complex(real, atan2(m.imag, p.real) * 2.0))
    upright = z.real.const(_HALF_PI).copysign(z.imag)
    return Complex(result.real, z.real.eq(0.0).select(upright, result.imag))


def atanh(z: Complex) -> Complex:
    """log1p(4a/((1-a)^2 + b^2))/4 + i atan2(2b, (1-a)(1+a) - b^2)/2, odd in a.

    Next to 1 the quotient is beyond all numbers: there ln(2/|1-z|)/2; far away a/|z|^2.
    """
    a, b = z.real.abs(), z.imag
    under = 1.0 - a
    distance = fma(under, under, b * b)
    pole = distance < 2.0**-900
    gap = Complex(under, b)
    real = logarithm.log1p(pole.select(0.0, a * 4.0 / distance)) * 0.25
    real = pole.select((_LN2 - log_size(gap, under)) * 0.5, real)
    far, (even, k) = _is_far(z), balanced(z)
    size = magnitude(even)
    back = (k > 0.0).select(k.const(2.0**-4), 1.0)
    real = far.select(even.real.abs() / size / size * back, real)
    imag = atan2(b * 2.0, fma(under, a + 1.0, -(b * b))) * 0.5
    infinite = a.eq(_INF) | b.abs().eq(_INF)
    known = infinite | (far & ~a.is_nan)
    imag = known.select(b.const(_HALF_PI).copysign(b), imag)
    real = infinite.select(0.0, real)
    return Complex(a.eq(0.0).select(a, real).copysign(z.real), b.is_nan.select(b, imag))


def arctangent2(y: Complex, x: Complex) -> Complex:
    """-i log((x + iy)/sqrt(x^2 + y^2)), both scaled alike so that no square overflows."""
    parts = [p.abs() for p in (y.real, y.imag, x.real, x.imag)]
    huge = parts[0] > 2.0**500
    tiny = parts[0] < 2.0**-500
    for p in parts[1:]:
        huge, tiny = huge | (p > 2.0**500), tiny & (p < 2.0**-500)
    scale = huge.select(2.0**-600, tiny.select(parts[0].const(2.0**600), 1.0))
    x, y = (Complex(z.real * scale, z.imag * scale) for z in (x, y))
    quotient = outlined_pair("divide", [x + y.times_i(), _root(x * x + y * y)], divide)
    return outlined_pair("log", [quotient], log).over_i()


def _root(z: Complex) -> Complex:
    """The square root as a function of its own, of which there are several in a formula."""
    return outlined_pair("sqrt", [z], sqrt)


def _is_far(z: Complex) -> Term:
    """Where z^2 + 1 and z^2 - 1 are z^2 to the last place, or a part is infinite.

    There the inverse functions follow the direction and ln 2|z|, as in C99.
    """
    return (z.real.abs() > _FAR) | (z.imag.abs() > _FAR)


def _log_twice(z: Complex) -> Term:
    """ln(2|z|) for large z."""
    return log_size(z, z.real) + _LN2


def _one_minus(z: Complex) -> Complex:
    return Complex(1.0 - z.real, -z.imag)


def _one_plus(z: Complex) -> Complex:
    return Complex(z.real + 1.0, z.imag)
