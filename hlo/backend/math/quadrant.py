"""Range reduction of sin, cos and tan: |x| = n pi/2 + r, |r| <= pi/4, for every finite x.

Up to a bound: Cody and Waite, n pi/2 subtracted in parts of pi/2. Beyond, behind a branch, for f64
with longer parts and products in two numbers up to a second bound, then Payne and Hanek (1983), x
times the bits of 2/pi that matter: for f32 in doubles whose products are exact, for f64 lane by
lane in integers.
n is wanted modulo 4 only: it comes as integer lanes of the double's width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from hlo.backend.ir.functions import Function
from hlo.backend.ir.named import Named
from hlo.backend.ir.records import Arithmetic, Instruction, Phi
from hlo.backend.ir.values import every_lane, poison
from hlo.backend.ir.writer import Value, Writer, float_bits, vector_of
from hlo.backend.math.rare import unless_rare
from hlo.backend.math.scaling import FORMATS
from hlo.backend.math.term import (
    Term,
    fast_two_sum,
    fmuladd,
    residual,
    two_product,
    two_sum,
)
from hlo.process.once import once

_MAGIC = FORMATS["double"].magic
_TWO_OVER_PI = 2 / math.pi
# pi/2 = the sum of three parts; n times the first two is exact for n < 2^20 (33 bits each).
_PARTS = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_HALF_PI, _HALF_PI_LOW = math.pi / 2, 6.123233995736766036e-17
# The same of 53 bits each: 160 bits, of which n < 2^40 leaves 120 behind the point.
_LONG_PARTS = (_HALF_PI, _HALF_PI_LOW, -1.4973849048591698e-33)
_BOUND_F64 = 2.0**20
_BOUND_OF_LONG_PARTS = 2.0**40
_BOUND_F32 = 2.0**31

Reduction = Callable[[Term], list[Term]]  # |x| beyond the bound to the results


def reduced_in_double(x: Term) -> tuple[Term, Term]:
    """r as double lanes and n, for float lanes: a double has 29 bits to spare."""
    size = x.abs().to("double")
    shifted = fmuladd(size, _TWO_OVER_PI, _MAGIC)
    n = shifted - _MAGIC
    r = fmuladd(n, -_HALF_PI_LOW, residual(size, n, _HALF_PI))
    r, quadrant = _with_large(size, _BOUND_F32, (r, shifted.bits), _by_three_products)
    return r, quadrant


def reduced(x: Term) -> tuple[Term, Term, Term]:
    """r as a sum of two doubles, and n, for double lanes."""
    size = x.abs()
    shifted = fmuladd(size, _TWO_OVER_PI, _MAGIC)
    n = shifted - _MAGIC
    first, second, third = _PARTS
    high, rest = two_sum(fmuladd(n, -first, size), n * -second)
    r, low = fast_two_sum(high, fmuladd(n, -third, rest))
    r, low, quadrant = _with_large(size, _BOUND_F64, (r, low, shifted.bits), _by_long_parts)
    return r, low, quadrant


def _with_large(
    size: Term, bound: float, results: tuple[Term, ...], reduction: Reduction
) -> list[Term]:
    """The results, those of lanes beyond the bound replaced; only in an outlined function."""
    large = (size >= bound) & (size < float("inf"))

    def replaced() -> list[Term]:
        exact = reduction(large.select(size, bound))
        return [large.select(e, r) for e, r in zip(exact, results, strict=True)]

    return unless_rare(large, results, replaced)


# -- numbers of f32 ------------------------------------------------------------------------------

_TABLE = "hlo.two_over_pi.parts"
_PART_BITS = 29  # times 24 of x: a double
_ROW = 4  # numbers apart, of which three count


def _by_three_products(size: Term) -> list[Term]:
    """r and n of f32 numbers >= 2^31 in double lanes.

    x times the bits of 2/pi from where on the product is not a multiple of 4: 29 of them, 29 more,
    and 53 more. The first two products are exact, and the first less n is.
    """
    first, second, third = _parts_of_two_over_pi(size)
    leading, following = size * first, size * second
    shifted = (leading + following) + _MAGIC
    n = shifted - _MAGIC
    fraction = fmuladd(size, third, (leading - n) + following)
    return [fraction * _HALF_PI, shifted.bits]


def _parts_of_two_over_pi(size: Term) -> list[Term]:
    """The three parts that a number's exponent asks for."""
    w = size.w
    numbers = _rows()
    table = ", ".join(f"double {float_bits(v, 'double')}" for v in numbers)
    w.enter_data(_TABLE, f"@{_TABLE} = internal constant [{len(numbers)} x double] [{table}]")
    row = ((size.bits >> 52) - (1023 + _FIRST_EXPONENT)) * _ROW
    return [_loaded(row + k, size) for k in range(3)]


def _loaded(index: Term, like: Term) -> Term:
    """The table's numbers at these places."""
    w, lanes = index.w, index.lanes
    if lanes == 1:
        return like.of(
            w.load(w.address(Value(f"@{_TABLE}", "ptr"), index.value, "double"), "double")
        )
    places = w.offset("getelementptr", Value(f"@{_TABLE}", "ptr"), index.value, "double")
    symbol = f"llvm.masked.gather.v{lanes}f64.v{lanes}p0"
    operands = (places, w.int(8, "i32"), every_lane(lanes), poison(like.type))
    return like.of(w.intrinsic(symbol, like.type, *operands, suffix="-"))


_FIRST_EXPONENT, _LAST_EXPONENT = 31, 127


@once
def _rows() -> tuple[float, ...]:
    """A row per exponent E of x, a multiple of 2^(E-23): bits of 2/pi below 2^(25-E)."""
    places = 512
    scaled = (1 << (2 * places + 1)) // _pi(places)
    numbers = []
    for exponent in range(_FIRST_EXPONENT, _LAST_EXPONENT + 1):
        end = places + 25 - exponent
        rest = scaled & ((1 << end) - 1)
        for bits in (_PART_BITS, _PART_BITS, 53):
            end -= bits
            numbers.append(math.ldexp(float(rest >> end), end - places))
            rest &= (1 << end) - 1
        numbers.append(0.0)
    return tuple(numbers)


# -- numbers of f64 ------------------------------------------------------------------------------


def _by_long_parts(size: Term) -> list[Term]:
    """The three results: no double below the bound is nearer to a multiple of pi/2 than 2^-60, and
    what is left is off by 2^-119. sin of such numbers takes 0.08 of the time (AVX2, Zen 3).
    """
    shifted = fmuladd(size, _TWO_OVER_PI, _MAGIC)
    n = shifted - _MAGIC
    first, second, third = (n.const(part) for part in _LONG_PARTS)
    whole, rest = two_product(n, first)
    following, last = two_product(n, second)
    high, lost = two_sum(size - whole, -rest)
    high, lost_again = two_sum(high, -following)
    r, low = two_sum(high, (lost + lost_again) - fmuladd(n, third, last))
    return _with_large(size, _BOUND_OF_LONG_PARTS, (r, low, shifted.bits), _lane_by_lane)


def _lane_by_lane(size: Term) -> list[Term]:
    """The three results, lane after lane through the scalar function."""
    w = size.w
    _define_payne_hanek(w)
    if size.lanes == 1:
        return [size.of(part) for part in _parts(w, size.value)]
    before, head, done = (w.new_label(name) for name in ("before", "head", "done"))
    w.branch(before)
    w.label(before)
    w.branch(head)
    w.label(head)
    lane, following = w.fresh("lane"), w.fresh("lane")
    number, after = Value(lane, "i64"), Value(following, "i64")
    w.phi("i64", (w.int(0), before), (after, head), name=lane, is_tight=True)
    place = len(w.records)
    x = w.assign(Instruction, "double", "extractelement", size.value, number)
    merged = []
    for part in _parts(w, x):
        state = Value(w.fresh("p"), vector_of(part.type, size.lanes))
        later = w.assign(Instruction, state.type, "insertelement", state, part, number)
        phi = Phi(state.text, state.type, "phi", (poison(state.type), later), is_tight=True)
        phi.blocks = (before, head)
        w.records.insert(place, phi)
        merged.append(size.of(later))
    w.append(Arithmetic(following, "i64", "add", (number, w.int(1))))
    more = w.assign(Arithmetic, "i1", "icmp slt", after, w.int(size.lanes))
    w.branch_if(more, head, done)
    w.label(done)
    return merged


def _parts(w: Writer, x: Value) -> list[Value]:
    """The scalar function's three results."""
    triple = w.call(_SYMBOL, x, type=_TRIPLE)
    return [w.extract_value(triple, i, k) for i, k in enumerate(("double", "double", "i64"))]


_SYMBOL, _BITS = "hlo.payne_hanek", "hlo.payne_hanek.bits"
_TRIPLE = "{double, double, i64}"
_X = Value("%x", "double")
_IMPLICIT = 1 << 52  # the bit of a mantissa that is not written


def _define_payne_hanek(w: Writer) -> None:
    """Put the scalar function and its table of 2/pi into the module."""
    words = two_over_pi_words()
    table = ", ".join(f"i64 {word}" for word in words)
    w.enter_data(_BITS, f"@{_BITS} = internal constant [{len(words)} x i64] [{table}]")
    inner = Writer()
    _payne_hanek(inner, _X)
    w.globals[_SYMBOL] = Function(
        parameters=(_X,),
        records=inner.records,
        result=_TRIPLE,
        symbol=_SYMBOL,
        attributes="nounwind",
        linkage="internal",
        ends_line=False,
    )
    w.declare("i64", "llvm.fshl.i64", ["i64", "i64", "i64"])
    w.declare("i128", "llvm.ctlz.i128", ["i128", "i1"])
    w.declare("double", "llvm.fma.f64", ["double", "double", "double"])


def _payne_hanek(w: Writer, x: Value) -> None:
    """x = m 2^E; of 2/pi only the bits from 2^(1-E) on count modulo 4: the window (v0, v1, v2)
    starts there, and the 192 low bits of m * window are x 2/pi / 4 modulo 1. f: its distance from
    the nearest quadrant, normalised by the leading zeros so that two doubles hold 106 bits of it.
    """
    n = Named(w)
    m64, m, window = _mantissa_and_window(n, x)
    q, f = _product(n, m64, m, window)
    is_negative = n.compare("negative", "icmp slt", f, w.int(0, "i128"))
    minus = n.binary("minus", "sub", w.int(0, "i128"), f)
    a = n.select("a", is_negative, minus, f)
    high, low = _times_half_pi(n, *_doubles(n, a))
    minus_high, minus_low = n.unary("nh", "fneg", high), n.unary("nl", "fneg", low)
    whole = poison(_TRIPLE)
    parts = (
        n.select("oh", is_negative, minus_high, high),
        n.select("ol", is_negative, minus_low, low),
        q,
    )
    for place, part in enumerate(parts):
        operands = (whole, part)
        whole = w.append(Instruction(f"%r{place}", _TRIPLE, "insertvalue", operands, f", {place}"))
    w.ret(whole)


def _mantissa_and_window(n: Named, x: Value) -> tuple[Value, Value, list[Value]]:
    """The mantissa's 53 bits, in i64 and in i128, and three words of 2/pi that begin where the
    exponent says.
    """
    w = n.w
    b = n.cast("b", "bitcast", x, "i64")
    e = n.binary("e", "lshr", b, w.int(52))
    fraction = n.binary("fraction", "and", b, w.int(_IMPLICIT - 1))
    m64 = n.binary("m64", "or", fraction, w.int(_IMPLICIT))
    m = n.cast("m", "zext", m64, "i128")
    start = n.binary("start", "sub", e, w.int(1013))
    word = n.binary("word", "lshr", start, w.int(6))
    shift = n.binary("shift", "and", start, w.int(63))
    first = n.address("a0", Value(f"@{_BITS}", "ptr"), word, "i64")
    places = [first, *(n.address(f"a{k}", first, w.int(k), "i64") for k in (1, 2, 3))]
    words = [n.load(f"w{k}", "i64", place) for k, place in enumerate(places)]
    pairs = enumerate(itertools.pairwise(words))
    window = [n.call(f"v{k}", "i64", "llvm.fshl.i64", *pair, shift) for k, pair in pairs]
    return m64, m, window


def _product(n: Named, m64: Value, m: Value, window: list[Value]) -> tuple[Value, Value]:
    """The nearest quadrant of mantissa times window, and the signed distance from it."""
    w, (v0, v1, v2) = n.w, window
    bits64 = w.int(64, "i128")
    v1_wide, v2_wide = n.cast("v1w", "zext", v1, "i128"), n.cast("v2w", "zext", v2, "i128")
    p0 = n.binary("p0", "mul", m64, v0)
    p1, p2 = n.binary("p1", "mul", m, v1_wide), n.binary("p2", "mul", m, v2_wide)
    s = n.binary("s", "add", p1, n.binary("p2h", "lshr", p2, bits64))
    p0_high = n.binary("p0s", "shl", n.cast("p0w", "zext", p0, "i128"), bits64)
    v = n.binary("v", "add", p0_high, s)
    high = n.cast("hi", "trunc", n.binary("vh", "lshr", v, bits64), "i64")
    near = n.binary("near", "add", high, w.int(1 << 61))
    q = n.binary("q", "lshr", near, w.int(62))
    return q, n.binary("f", "shl", v, w.int(2, "i128"))


def _doubles(n: Named, a: Value) -> tuple[Value, Value]:
    """A fraction of 128 bits as the sum of two doubles."""
    w = n.w
    zeros = n.call("zeros", "i128", "llvm.ctlz.i128", a, Value("false", "i1"))
    normal = n.binary("normal", "shl", a, zeros)
    top = n.cast("top", "trunc", n.binary("th", "lshr", normal, w.int(64, "i128")), "i64")
    bottom = n.cast("bottom", "trunc", normal, "i64")
    high = n.binary("high", "and", top, w.int(-(1 << 11)))
    low = n.call("low", "i64", "llvm.fshl.i64", top, bottom, w.int(53))
    high, low = n.cast("dh", "uitofp", high, "double"), n.cast("dl", "uitofp", low, "double")
    exponent = n.binary("zs", "sub", w.int(959), n.cast("z", "trunc", zeros, "i64"))
    scale_bits = n.binary("zb", "shl", exponent, w.int(52))
    scale = n.cast("scale", "bitcast", scale_bits, "double")
    first = n.binary("fh", "fmul", high, scale)
    scaled = n.binary("dls", "fmul", low, w.float(2.0**-53, "double"))
    return first, n.binary("fl", "fmul", scaled, scale)


def _times_half_pi(n: Named, high: Value, low: Value) -> tuple[Value, Value]:
    """pi/2 times a sum of two doubles, as one."""
    half_pi, half_pi_low = (n.w.float(v, "double") for v in (_HALF_PI, _HALF_PI_LOW))

    def fused(name: str, a: Value, b: Value, c: Value) -> Value:
        return n.call(name, "double", "llvm.fma.f64", a, b, c)

    product = n.binary("rh", "fmul", high, half_pi)
    error = fused("er", high, half_pi, n.unary("mrh", "fneg", product))
    error = fused("e1", high, half_pi_low, error)
    return product, fused("rl", low, half_pi, error)


@once
def two_over_pi_words() -> tuple[int, ...]:
    """The bits of 2/pi in 64-bit words behind one word of zeros, the most significant first."""
    bits = 64 * 19
    scaled = (1 << (2 * bits + 65)) // _pi(bits + 64)
    words = [scaled >> shift & (1 << 64) - 1 for shift in range(bits - 64, -1, -64)]
    return (0, *words)


def _pi(bits: int) -> int:
    """pi 2^bits, by Machin's formula with guard bits."""
    one = 1 << (bits + 32)

    def arctan_inverse(n: int) -> int:
        total = power = one // n
        k, sign = 3, -1
        while power:
            power //= n * n
            total += sign * (power // k)
            k, sign = k + 2, -sign
        return total

    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239)) >> 32
