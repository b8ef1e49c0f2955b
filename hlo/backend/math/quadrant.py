"""Range reduction of sin, cos and tan: |x| = n pi/2 + r, |r| <= pi/4, for every finite x.

Up to a bound: Cody and Waite, n pi/2 subtracted in parts of pi/2. Beyond, behind a branch: Payne
and Hanek (1983), x times the bits of 2/pi that matter, for f32 in doubles whose products are exact,
for f64 lane by lane in integers.
n is wanted modulo 4 only: it comes as integer lanes of the double's width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hlo.backend.ir.functions import OpaqueFunction
from hlo.backend.ir.records import Arithmetic, Instruction, Phi
from hlo.backend.ir.values import every_lane, poison
from hlo.backend.ir.writer import Value, Writer, float_bits, vector_of
from hlo.backend.math.scaling import FORMATS
from hlo.backend.math.term import Term, fast_two_sum, fma, two_sum
from hlo.once import once

_MAGIC = FORMATS["double"].magic
_TWO_OVER_PI = 2 / math.pi
# pi/2 = the sum of three parts; n times the first two is exact for n < 2^20 (33 bits each).
_PARTS = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_HALF_PI, _HALF_PI_LOW = math.pi / 2, 6.123233995736766036e-17
_BOUND_F64 = 2.0**20
_BOUND_F32 = 2.0**31

Reduction = Callable[[Term], list[Term]]  # |x| beyond the bound to the results


def reduced_in_double(x: Term) -> tuple[Term, Term]:
    """r as double lanes and n, for float lanes: a double has 29 bits to spare."""
    size = x.abs().to("double")
    shifted = fma(size, _TWO_OVER_PI, _MAGIC)
    n = shifted - _MAGIC
    r = fma(n, -_HALF_PI_LOW, fma(n, -_HALF_PI, size))
    r, quadrant = _with_large(size, _BOUND_F32, (r, shifted.bits), _by_three_products)
    return r, quadrant


def reduced(x: Term) -> tuple[Term, Term, Term]:
    """r as a sum of two doubles, and n, for double lanes."""
    size = x.abs()
    shifted = fma(size, _TWO_OVER_PI, _MAGIC)
    n = shifted - _MAGIC
    first, second, third = _PARTS
    high, rest = two_sum(fma(n, -first, size), n * -second)
    r, low = fast_two_sum(high, fma(n, -third, rest))
    r, low, quadrant = _with_large(size, _BOUND_F64, (r, low, shifted.bits), _lane_by_lane)
    return r, low, quadrant


def _with_large(
    size: Term, bound: float, results: tuple[Term, ...], reduction: Reduction
) -> list[Term]:
    """The results, those of lanes beyond the bound replaced; only in an outlined function."""
    w = size.w
    large = (size >= bound) & (size < float("inf"))
    before, slow, after = (w.new_label(name) for name in ("before", "slow", "after"))
    found = large.any()
    w.branch(before)
    w.label(before)
    w.branch_if(found.value, slow, after)
    w.label(slow)
    known = w.scope()
    exact = reduction(large.select(size, bound))
    patched = [large.select(e, r) for e, r in zip(exact, results, strict=True)]
    last = w.new_label("patched")
    w.branch(last)
    w.label(last)
    w.branch(after)
    w.label(after)
    w.restore(known)
    merged = []
    for fast, slower in zip(results, patched, strict=True):
        ways = (fast.value, before), (slower.value, last)
        merged.append(fast.of(w.phi(fast.type, *ways, is_tight=True).value))
    return merged


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
    fraction = fma(size, third, (leading - n) + following)
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


_SYMBOL = "hlo.payne_hanek"
_TRIPLE = "{double, double, i64}"


def _define_payne_hanek(w: Writer) -> None:
    """Put the scalar function and its table of 2/pi into the module."""
    words = two_over_pi_words()
    table = ", ".join(f"i64 {word}" for word in words)
    name = f"{_SYMBOL}.bits"
    w.enter_data(name, f"@{name} = internal constant [{len(words)} x i64] [{table}]")
    half_pi, low = (float_bits(v, "double") for v in (_HALF_PI, _HALF_PI_LOW))
    text = _PAYNE_HANEK.replace("HALF_PI_LOW", low).replace("HALF_PI", half_pi)
    w.globals[_SYMBOL] = OpaqueFunction(
        parameters=(Value("%x", "double"),),
        body=text.replace("@BITS", f"@{name}"),
        result=_TRIPLE,
        symbol=_SYMBOL,
        attributes="nounwind",
        linkage="internal",
        ends_line=False,
    )
    w.declare("i64", "llvm.fshl.i64", ["i64", "i64", "i64"])
    w.declare("i128", "llvm.ctlz.i128", ["i128", "i1"])
    w.declare("double", "llvm.fma.f64", ["double", "double", "double"])


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


# x = m 2^E; of 2/pi only the bits from 2^(1-E) on count modulo 4: the window (v0, v1, v2) starts
# there, and the 192 low bits of m * window are x 2/pi / 4 modulo 1. f: its distance from the
# nearest quadrant, normalised by the leading zeros so that two doubles hold 106 bits of it.
_PAYNE_HANEK = """\
  %b = bitcast double %x to i64
  %e = lshr i64 %b, 52
  %fraction = and i64 %b, 4503599627370495
  %m64 = or i64 %fraction, 4503599627370496
  %m = zext i64 %m64 to i128
  %start = sub i64 %e, 1013
  %word = lshr i64 %start, 6
  %shift = and i64 %start, 63
  %a0 = getelementptr i64, ptr @BITS, i64 %word
  %a1 = getelementptr i64, ptr %a0, i64 1
  %a2 = getelementptr i64, ptr %a0, i64 2
  %a3 = getelementptr i64, ptr %a0, i64 3
  %w0 = load i64, ptr %a0
  %w1 = load i64, ptr %a1
  %w2 = load i64, ptr %a2
  %w3 = load i64, ptr %a3
  %v0 = call i64 @llvm.fshl.i64(i64 %w0, i64 %w1, i64 %shift)
  %v1 = call i64 @llvm.fshl.i64(i64 %w1, i64 %w2, i64 %shift)
  %v2 = call i64 @llvm.fshl.i64(i64 %w2, i64 %w3, i64 %shift)
  %v1w = zext i64 %v1 to i128
  %v2w = zext i64 %v2 to i128
  %p0 = mul i64 %m64, %v0
  %p1 = mul i128 %m, %v1w
  %p2 = mul i128 %m, %v2w
  %p2h = lshr i128 %p2, 64
  %s = add i128 %p1, %p2h
  %p0w = zext i64 %p0 to i128
  %p0s = shl i128 %p0w, 64
  %v = add i128 %p0s, %s
  %vh = lshr i128 %v, 64
  %hi = trunc i128 %vh to i64
  %near = add i64 %hi, 2305843009213693952
  %q = lshr i64 %near, 62
  %f = shl i128 %v, 2
  %negative = icmp slt i128 %f, 0
  %minus = sub i128 0, %f
  %a = select i1 %negative, i128 %minus, i128 %f
  %zeros = call i128 @llvm.ctlz.i128(i128 %a, i1 false)
  %normal = shl i128 %a, %zeros
  %th = lshr i128 %normal, 64
  %top = trunc i128 %th to i64
  %bottom = trunc i128 %normal to i64
  %high = and i64 %top, -2048
  %low = call i64 @llvm.fshl.i64(i64 %top, i64 %bottom, i64 53)
  %dh = uitofp i64 %high to double
  %dl = uitofp i64 %low to double
  %z = trunc i128 %zeros to i64
  %zs = sub i64 959, %z
  %zb = shl i64 %zs, 52
  %scale = bitcast i64 %zb to double
  %fh = fmul double %dh, %scale
  %dls = fmul double %dl, 0x3CA0000000000000
  %fl = fmul double %dls, %scale
  %rh = fmul double %fh, HALF_PI
  %mrh = fneg double %rh
  %er = call double @llvm.fma.f64(double %fh, double HALF_PI, double %mrh)
  %e1 = call double @llvm.fma.f64(double %fh, double HALF_PI_LOW, double %er)
  %rl = call double @llvm.fma.f64(double %fl, double HALF_PI, double %e1)
  %nh = fneg double %rh
  %nl = fneg double %rl
  %oh = select i1 %negative, double %nh, double %rh
  %ol = select i1 %negative, double %nl, double %rl
  %r0 = insertvalue {double, double, i64} poison, double %oh, 0
  %r1 = insertvalue {double, double, i64} %r0, double %ol, 1
  %r2 = insertvalue {double, double, i64} %r1, i64 %q, 2
  ret {double, double, i64} %r2"""
