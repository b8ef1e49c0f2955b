"""sin, cos, tan for every finite argument, as functions of the module.

x = n pi/2 + r with |r| <= pi/4 (hlo/backend/math/quadrant.py), then sin r = r + r^3 S(r^2) and
cos r = 1 - r^2/2 + r^4 C(r^2) (Remez: 2^-37 and 2^-43 for f32, 2^-58 and 2^-64 for f64).
f32 is computed in double and rounded once: 0.51 ulp. f64 carries r in two parts: below 0.8 ulp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.backend.math.quadrant import reduced, reduced_in_double
from hlo.backend.math.term import Term, estrin, fast_two_sum, fmuladd, horner, outlined, residual

_S_SHORT = (
    -0.16666666641427033, 0.008333329362340373, -0.00019839327156326598, 2.7182374694861096e-06,
)  # fmt: skip
_C_SHORT = (
    0.041666666622477366, -0.0013888883722656276, 2.4799511773184904e-05, -2.7209548553324233e-07,
)  # fmt: skip
_S = (
    -0.16666666666666632, 0.008333333333322455, -0.0001984126982981342, 2.7557313687576612e-06,
    -2.5050756715165735e-08, 1.5896681911387359e-10,
)  # fmt: skip
_C = (
    0.0416666666666666, -0.0013888888888874441, 2.4801587289636314e-05, -2.755731438746956e-07,
    2.0875727058854596e-09, -1.1359802459793666e-11,
)  # fmt: skip


def sin(x: Term) -> Term:
    """Odd, keeps -0 and subnormals; infinities give NaN."""
    return outlined("sin", [x], _sin_f64 if x.is_double else _sin_f32)


def cos(x: Term) -> Term:
    """Even; infinities give NaN."""
    return outlined("cos", [x], _cos_f64 if x.is_double else _cos_f32)


def tan(x: Term) -> Term:
    """sin/cos; f32 0.51 ulp, f64 below 1.2 ulp."""
    return outlined("tan", [x], _tan_f64 if x.is_double else _tan_f32)


def _sin_f32(x: Term) -> Term:
    r, quadrant = reduced_in_double(x)
    s, c = _short(r)
    return _sine_of_quadrant(s, c, quadrant, x).to("float")


def _cos_f32(x: Term) -> Term:
    r, quadrant = reduced_in_double(x)
    s, c = _short(r)
    return _cosine_of_quadrant(s, c, quadrant).to("float")


def _tan_f32(x: Term) -> Term:
    r, quadrant = reduced_in_double(x)
    s, c = _short(r)
    odd = (quadrant & 1).ne(0)
    tangent = odd.select(-c, s) / odd.select(s, c)
    return _odd(tangent, x).to("float")


def _short(r: Term) -> tuple[Term, Term]:
    """Sine and cosine of r, precise enough for f32."""
    z = r * r
    s = fmuladd(r * z, horner(z, _S_SHORT), r)
    c = fmuladd(z * z, horner(z, _C_SHORT), fmuladd(z, -0.5, 1.0))
    return s, c


def _sin_f64(x: Term) -> Term:
    r, low, quadrant = reduced(x)
    (s, rest), (c, other) = _long(r, low)
    return _sine_of_quadrant(s + rest, c + other, quadrant, x)


def _cos_f64(x: Term) -> Term:
    r, low, quadrant = reduced(x)
    (s, rest), (c, other) = _long(r, low)
    return _cosine_of_quadrant(s + rest, c + other, quadrant)


def _tan_f64(x: Term) -> Term:
    """The quotient of the two-part sine and cosine, corrected by its remainder."""
    r, low, quadrant = reduced(x)
    s, c = (fast_two_sum(*parts) for parts in _long(r, low, estrin))
    odd = (quadrant & 1).ne(0)
    over, over_low = (odd.select(-b, a) for a, b in zip(s, c, strict=True))
    under, under_low = (odd.select(a, b) for a, b in zip(s, c, strict=True))
    quotient, inverse = over / under, 1.0 / under  # which waits for nothing
    rest = residual(over, quotient, under) + (over_low - quotient * under_low)
    return _odd(fmuladd(rest, inverse, quotient), x)


def _long(
    r: Term, low: Term, polynomial: Callable[[Term, Sequence[float]], Term] = horner
) -> tuple[tuple[Term, Term], tuple[Term, Term]]:
    """Sine and cosine of r + low, each as its leading part and what is to be added to it."""
    z = r * r
    half = z * 0.5
    s_rest = fmuladd(low, 1.0 - half, z * r * polynomial(z, _S))
    c = 1.0 - half
    c_rest = ((1.0 - c) - half) + fmuladd(z * z, polynomial(z, _C), -(r * low))
    return (r, s_rest), (c, c_rest)


def _sine_of_quadrant(s: Term, c: Term, quadrant: Term, x: Term) -> Term:
    """The sine of |x| with the sign of x: quadrants 0 to 3 are s, c, -s, -c."""
    value = (quadrant & 1).ne(0).select(c, s)
    return _odd(_negated_by_bit(value, quadrant << 62), x)


def _cosine_of_quadrant(s: Term, c: Term, quadrant: Term) -> Term:
    """c, -s, -c, s."""
    value = (quadrant & 1).ne(0).select(s, c)
    return _negated_by_bit(value, (quadrant + 1) << 62)


def _negated_by_bit(value: Term, bits: Term) -> Term:
    """The sign flipped where the top bit is set; the rest of `bits` is ignored."""
    return (value.bits ^ (bits & -(1 << 63))).real


def _odd(y: Term, x: Term) -> Term:
    """y(|x|) as y(x): the sign of x flips it. y may be wider than x."""
    wide = y.of(y.w.float(0.0, y.type)).copysign(x if x.type == y.type else x.to("double"))
    return (y.bits ^ wide.bits).real
