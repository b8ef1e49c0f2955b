"""erf: the error function.

|x| < 0.9 (f64: 1.05): x + x P(x^2). Beyond, 1 - erfc(|x|), whose second term is small, so that
little is asked of it: f32 erfc = e^p(x); f64 erfc = e^(-x^2) G(1/(|x|+1)). P, p, G by Remez, by
their share of the result: 2^-30 and 2^-33 (f32), 2^-56 and 2^-57 (f64). Where a register holds a
table f32 is one polynomial of sixteen or eight (pieces.py), at half the work.
"""

from __future__ import annotations

from hlo.backend.math import piece_tables, pieces
from hlo.backend.math.exponential import exp
from hlo.backend.math.term import Term, fast_two_sum, fmuladd, grown, horner, outlined, two_product

_P_F32 = (
    0.12837916612625122, -0.3761262893676758, 0.11283624172210693, -0.026855560019612312,
    0.005191753152757883, -0.0008039752719923854, 7.943100354168564e-05,
)  # fmt: skip
_LOG_ERFC = (
    0.0001506132393842563, -1.129381775856018, -0.6336634755134583, -0.10785788297653198,
    0.024774150922894478, -0.003993873484432697, 0.0003787700552493334, -1.129772044805577e-05,
    -7.382793114629749e-07,
)  # fmt: skip
_P_F64 = (
    0.1283791670955126, -0.37612638903184076, 0.11283791670969151, -0.02686617064753623,
    0.005223977647021193, -0.0008548328185805684, 0.00012055373613573784,
    -1.4926615741058944e-05, 1.6478115213820122e-06, -1.6552811067289758e-07,
    1.6340907477971227e-08, -2.0931586166280713e-09, 4.1242058209815707e-10,
    -7.553305316066003e-11, 7.0053520891876765e-12,
)  # fmt: skip
_G = (
    -6.409947349955336e-06, 0.5644454085135576, 0.5594931565732337, 0.3344746220152261,
    -0.6762750884353369, 1.390593412310169, -8.11127220298333, 22.852630708192745,
    -34.50972692623241, 26.672408930805393, -0.21262091495494023, -22.29507673012576,
    23.588619605619133, -11.449818473082594, 2.2935118270258124,
)  # fmt: skip


def erf(x: Term) -> Term:
    """Odd; +-inf -> +-1; below 0.95 ulp (f32), 2 ulp (f64)."""
    if pieces.has_tables(x, piece_tables.ERF[0].rows):
        return pieces.odd(x, piece_tables.ERF)
    return outlined("erf", [x], _erf_f64) if x.is_double else _erf_f32(x)


def _erf_f32(x: Term) -> Term:
    size = x.abs()
    small = size < 0.9
    y = small.select(size, 0.0)
    near = grown(size, horner(y * y, _P_F32))
    z = size.at_most(4.0)
    constant, linear, *others = _LOG_ERFC
    slope, dropped = fast_two_sum(z.const(linear), z * horner(z, others))
    product, lost = two_product(z, slope)
    lost = fmuladd(z, dropped, lost)
    exponent, rest = fast_two_sum(product, z.const(constant))
    tail = exp(exponent)
    far = 1.0 - fmuladd(tail, lost + rest, tail)
    return small.select(near, far).copysign(x)


def _erf_f64(x: Term) -> Term:
    size = x.abs()
    small = size < 1.05
    y = small.select(size, 0.0)
    near = grown(size, horner(y * y, _P_F64))
    z = size.at_most(6.0)
    tail = exp(-(z * z)) * horner(1.0 / (z + 1.0), _G)
    return small.select(near, 1.0 - tail).copysign(x)
