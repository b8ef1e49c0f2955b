"""Complex numbers as pairs of double terms: magnitude, quotient, roots, e^z, log, power.

Branch cuts as C99's; special values as docs/semantics.md 3 and 4 list them. c64 comes here as
double, so that only c128 has to care for overflow in between.
"""

from __future__ import annotations

from functools import partial

from hlo.backend.math import exponential, logarithm, rounding
from hlo.backend.math.complex_term import Complex, choose
from hlo.backend.math.inverse_trigonometric import atan2
from hlo.backend.math.power import power as real_power
from hlo.backend.math.rare import unless_rare
from hlo.backend.math.roots import hypotenuse
from hlo.backend.math.scaling import times_power
from hlo.backend.math.term import Term, fma, two_product, two_sum
from hlo.backend.math.trigonometric import cos, sin

_INF = float("inf")
_LN2, _LN4 = 0.6931471805599453, 1.3862943611198906


def magnitude(z: Complex) -> Term:
    """|z| without overflow in between; NaN where a part is NaN."""
    return hypotenuse(z.real, z.imag)


def balanced(z: Complex) -> tuple[Complex, Term]:
    """z 4^-k, whose parts neither overflow nor lose bits in what follows, and k."""
    a, b = z.real.abs(), z.imag.abs()
    huge, tiny = (a > 2.0**1000) | (b > 2.0**1000), (a < 2.0**-900) & (b < 2.0**-900)
    k = huge.select(2.0, tiny.select(a.const(-100.0), 0.0))
    scale = huge.select(2.0**-4, tiny.select(a.const(2.0**200), 1.0))
    return Complex(z.real * scale, z.imag * scale), k


def sign(z: Complex) -> Complex:
    """z/|z|; 0 stays."""
    even, _ = balanced(z)
    size = magnitude(even)
    zero = z.real.eq(0.0) & z.imag.eq(0.0)
    return choose(zero, z, Complex(even.real / size, even.imag / size))


def divide(x: Complex, y: Complex) -> Complex:
    """Smith's algorithm (1962), then C99 Annex G.5.1's infinities where that is NaN + NaN i."""
    quotient = _quotient(x, y)
    rare = lost(quotient) | _is_extreme(x) | _is_extreme(y)
    return Complex(*unless_rare(rare, (quotient.real, quotient.imag), partial(_any_quotient, x, y)))


def _is_extreme(z: Complex) -> Term:
    """Where `balanced` scales, but for zeros."""
    a, b = z.real.abs(), z.imag.abs()
    size = (a < b).select(b, a)
    return (size > 2.0**1000) | (size < 2.0**-900) & (size > 0.0)


def _any_quotient(x: Complex, y: Complex) -> tuple[Term, Term]:
    (x, k), (y, j) = balanced(x), balanced(y)
    quotient = with_infinities(x, y, _quotient(x, y))
    up, down = (_two_to(k) * _two_to(k), 1.0 / _two_to(j) / _two_to(j))
    return quotient.real * up * down, quotient.imag * up * down


def _quotient(x: Complex, y: Complex) -> Complex:
    a, b, c, d = x.real, x.imag, y.real, y.imag
    swap = c.abs() < d.abs()
    small, large = swap.select(c, d), swap.select(d, c)
    ratio = small / large
    scale = large + small * ratio
    first, second = swap.select(b, a), swap.select(a, b)
    real = (first + second * ratio) / scale
    imag = swap.select(b * ratio - a, b - a * ratio) / scale
    return Complex(real, imag)


def lost(quotient: Complex) -> Term:
    """Where both parts are NaN."""
    return quotient.real.is_nan & quotient.imag.is_nan


def with_infinities(x: Complex, y: Complex, quotient: Complex) -> Complex:
    """C99 Annex G.5.1's results where that of x/y is NaN + NaN i."""
    a, b, c, d = x.real, x.imag, y.real, y.imag
    is_lost = lost(quotient)
    infinite_x, infinite_y = _infinite(a) | _infinite(b), _infinite(c) | _infinite(d)
    finite_x, finite_y = _finite(a) & _finite(b), _finite(c) & _finite(d)
    by_zero = is_lost & c.eq(0.0) & d.eq(0.0) & ~(a.is_nan & b.is_nan)
    infinity = c.const(_INF).copysign(c)
    a1, b1, c1, d1 = (_infinite(p).select(p.const(1.0), 0.0).copysign(p) for p in (a, b, c, d))
    outward = Complex((a1 * c + b1 * d) * _INF, (b1 * c - a1 * d) * _INF)
    inward = Complex((a * c1 + b * d1) * 0.0, (b * c1 - a * d1) * 0.0)
    result = choose(is_lost & infinite_y & finite_x, inward, quotient)
    result = choose(is_lost & infinite_x & finite_y, outward, result)
    return choose(by_zero, Complex(infinity * a, infinity * b), result)


def _infinite(x: Term) -> Term:
    return x.abs().eq(_INF)


def _finite(x: Term) -> Term:
    return x.abs() < _INF


def sqrt(z: Complex) -> Complex:
    """The root with a real part >= 0; a zero imaginary part says the side of the cut."""
    even, k = balanced(z)
    root = _balanced_sqrt(even)
    back = _two_to(k)
    return Complex(root.real * back, root.imag * back)


def _balanced_sqrt(z: Complex) -> Complex:
    a, b = z.real, z.imag
    size = _infinite(a).select(a.abs(), magnitude(z))  # beside an infinity, b may be NaN
    t = (a.abs() * 0.5 + size * 0.5).sqrt()
    other = b.abs() / (t + t)
    left = a.bits < 0
    root = Complex(left.select(other, t), left.select(t, other).copysign(b))
    root = choose(t.eq(0.0), Complex(t, b), root)
    return choose(_infinite(b), Complex(b.abs(), b), root)


def _two_to(k: Term) -> Term:
    """2^k of balanced's k."""
    return (k > 0.0).select(2.0**2, (k < 0.0).select(k.const(2.0**-100), 1.0))


def rsqrt(z: Complex) -> Complex:
    """conj(sqrt z)/|z|; at 0 infinite without direction, at infinity 0."""
    even, k = balanced(z)
    root, size = _balanced_sqrt(even), magnitude(even)
    back = 1.0 / _two_to(k)
    result = Complex(root.real / size * back, -root.imag / size * back)
    zero, nan = k.const(0.0), k.const(float("nan"))
    far = _infinite(z.real) | _infinite(z.imag)
    result = choose(far, Complex(zero, zero.copysign(-z.imag)), result)
    return choose(z.real.eq(0.0) & z.imag.eq(0.0), Complex(k.const(_INF), nan), result)


def exp(z: Complex) -> Complex:
    """e^a (cos b + i sin b); where e^a overflows its root is multiplied twice."""
    a, b = z.real, z.imag
    big = (a > 709.0) & (a < 1500.0)
    size = exponential.exp(big.select(a * 0.5, a))
    again = big.select(size, 1.0)
    real = scaled(a, size, cos(b)) * again
    imag = scaled(a, size, sin(b)) * again
    real = (a.eq(_INF) & ~_finite(b)).select(a, real)  # infinite, of whatever sign
    return Complex(real, b.eq(0.0).select(b, imag))


def scaled(a: Term, size: Term, part: Term) -> Term:
    """size * part, size = e^a: e^-inf wins over a part that is not a number, e^-1000 does not."""
    return (a.eq(-_INF) & ~_finite(part)).select(size, size * part)


def log(z: Complex) -> Complex:
    """ln|z| + i arg z; near |z| = 1 from |z|^2 - 1, which does not cancel."""
    a, b = z.real, z.imag
    return Complex(log_size(z, _sum_of_squares(a.const(-1.0), a, b)), atan2(b, a))


def log1p(z: Complex) -> Complex:
    """log(1 + z), accurate near 0 and near |1 + z| = 1."""
    a, b = z.real, z.imag
    one = a + 1.0
    return Complex(log_size(Complex(one, b), _sum_of_squares(a * 2.0, a, b)), atan2(b, one))


def _sum_of_squares(first: Term, a: Term, b: Term) -> Term:
    """first + a^2 + b^2 to 2^-53 of it down to 2^-100 of its parts, while nothing overflows."""
    p, p_rest = two_product(a, a)
    q, q_rest = two_product(b, b)
    partial, lost = two_sum(first, p)
    total, last = two_sum(partial, q)
    rest, far = two_sum(lost, last)
    squares, farther = two_sum(p_rest, q_rest)
    rest, farthest = two_sum(rest, squares)
    total, rest = two_sum(total, rest)
    return total + (rest + (farthest + (far + farther)))


def log_size(z: Complex, excess: Term) -> Term:
    """ln|z|, infinite beside any infinity; excess: |z|^2 - 1, as exactly as it is known."""
    even, k = balanced(z)
    size = magnitude(even)
    near = logarithm.log1p(excess) * 0.5
    far = logarithm.log(size) + k * _LN4
    close = k.eq(0.0) & (size > 0.6) & (size < 1.6)
    infinite = _infinite(z.real) | _infinite(z.imag)
    return infinite.select(size.const(_INF), close.select(near, far))


def power(z: Complex, w: Complex) -> Complex:
    """|z|^c e^(-d arg z) (cos q + i sin q), q = c arg z + d ln|z|, for w = c + di."""
    c, d = w.real, w.imag
    even, k = balanced(z)
    size, angle = magnitude(even), atan2(z.imag, z.real)
    size_log = logarithm.log(size) + k * _LN4
    q = c * angle + d.eq(0.0).select(0.0, d * size_log)
    # Where a factor may be beyond all numbers and their product is not: the root, squared.
    far = ~d.eq(0.0) & (((c * size_log).abs() > 700.0) | ((d * angle).abs() > 700.0))
    part = far.select(c.const(0.5), 1.0)
    turn, lost = two_product(-d * part, angle)
    scale = real_power(size, c * part) * _power_of_four(k, c * part) * _exp_of_two(turn, lost)
    scale = far.select(scale * scale, scale)
    general = Complex(scale * cos(q), q.eq(0.0).select(q, scale * sin(q)))
    zero, one, nan = c.const(0.0), c.const(1.0), c.const(float("nan"))
    real = d.eq(0.0)
    at_zero = z.real.eq(0.0) & z.imag.eq(0.0) & real
    at_infinity = size.eq(_INF) & real
    result = choose(at_infinity & (c < 0.0), Complex(zero, zero), general)
    result = choose(at_infinity & (c > 0.0), Complex(c.const(_INF), zero), result)
    result = choose(at_zero & (c < 0.0), Complex(nan, nan), result)
    result = choose(at_zero & (c > 0.0), Complex(zero, zero), result)
    identity = (c.eq(0.0) & real) | (z.real.eq(1.0) & z.imag.eq(0.0))
    return choose(identity, Complex(one, zero), result)


def _power_of_four(k: Term, c: Term) -> Term:
    """4^(k c) for balanced's k, 1 where that is 0: k c in two parts, and whole powers of two."""
    exponent, lost = two_product(k * 2.0, c.at_most(2.0**60).at_least(-(2.0**60)))
    bounded = exponent.at_most(2200.0).at_least(-2200.0)
    whole = rounding.nearest(bounded)
    rest = bounded.ne(exponent).select(0.0, (bounded - whole) + lost)
    value = times_power(exponential.exp(rest * _LN2), whole, whole.to("i64"))
    return k.eq(0.0).select(1.0, value)


def _exp_of_two(x: Term, low: Term) -> Term:
    """e^(x + low) for the rounding error `low` of x; 0 and infinity where x alone says so."""
    value = exponential.exp(x)
    return ((value > 0.0) & (value < _INF)).select(fma(value, low, value), value)
