"""AVX-512: masks, permutations of everything, exponents; with DQ, VL, VBMI, VNNI, BF16, FP16.

Every part of it is a fact of its own feature: none is taken for another's.
"""

from __future__ import annotations

from hlo.backend.ir.values import every_lane, lanes_of, listed, poison, scalar_of
from hlo.backend.ir.writer import Value, Writer, mangled, vector_of
from hlo.backend.isa.assembly import Assembly
from hlo.backend.isa.avx2 import Avx2
from hlo.backend.isa.dot_products import (
    DotProduct,
    pairs_of_bf16,
    pairs_of_s16,
    quads_of_8_bits,
)
from hlo.backend.isa.generic import Estimates, FloatParts, Gather, UpperHalves
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

BYTE_PERMUTATION = "llvm.x86.avx512.permvar.qi.512"

_LANES = 16
_WORDS, _FLOATS, _BYTES = "<16 x i32>", "<16 x float>", "<64 x i8>"
_BITS = {"float": 32, "double": 64, "i32": 32, "i64": 64}
_INTEGERS = {"float": "i32", "double": "i64"}
_SUFFIXES = {"float": "ps", "double": "pd", "i32": "d", "i64": "q"}
_CURRENT_ROUNDING = Value("4", "i32")
_PAIRS = pairs_of_s16(64, "llvm.x86.avx512.pmaddw.d.512")
_QUADS = quads_of_8_bits(64)
_VNNI = pairs_of_s16(64, "", "llvm.x86.avx512.vpdpwssd.512")


def _size(type: str) -> int:
    """Bits of a vector of what AVX-512 permutes and computes with; 0 for other types."""
    return lanes_of(type) * _BITS.get(scalar_of(type), 0)


class Avx512(Avx2):
    """Vectors of 64 bytes, and with VL all of it for shorter ones."""

    def _fits(self, type: str) -> bool:
        """Whether instructions take vectors of the type."""
        size = _size(type)
        return (size == 512 and self._has("avx512f")) or (
            size in (128, 256) and self._has("avx512vl")
        )

    # -- order of lanes ----------------------------------------------------------------------

    @property
    def permutes_bytes(self) -> bool:
        return self._has("avx512vbmi")

    @property
    def lookup_lanes(self) -> int:
        return _LANES if super().lookup_lanes and self._has("avx512f") else super().lookup_lanes

    @property
    def picked_at_once(self) -> int:
        return 2 if self.lookup_lanes and self.picks(_FLOATS) else super().picked_at_once

    def picks(self, type: str) -> bool:
        return self.machine.vector_bytes == 64 and self._picks(type)

    def _picks(self, type: str) -> bool:
        return _size(type) in (256, 512) and self._fits(type)

    def picked(self, w: Writer, source: tuple[Value, ...], index: Value) -> Value | None:
        first, *others = source
        if others and self._picks(first.type):
            name = f"llvm.x86.avx512.vpermi2var.{_SUFFIXES[first.scalar_type]}"
            suffix = str(_size(first.type))
            return w.intrinsic(name, first.type, first, index, others[0], suffix=suffix)
        if not others and first.type == _FLOATS and self._has("avx512f"):
            symbol = "llvm.x86.avx512.permvar.sf.512"
            return w.intrinsic(symbol, first.type, first, index, suffix="-")
        return super().picked(w, source, index)

    @property
    def gathers_words(self) -> bool:
        return self._has("avx512f")

    @property
    def masks_loads(self) -> bool:
        return super().masks_loads or self._has("avx512f")

    def masks_loads_of(self, bits: int) -> bool:
        return super().masks_loads_of(bits) or self._has("avx512bw")

    @property
    def folds(self) -> bool:
        return self._has("avx512f", "avx512vl")

    def quick_gather(self, lanes: int) -> Gather | None:
        """The codes that are looked up, and what is found, pass through permutations of bytes."""
        return _gathered if lanes == _LANES and self.permutes_bytes else None

    # -- floats ------------------------------------------------------------------------------

    @property
    def fuses(self) -> bool:
        return super().fuses or self._has("avx512f")

    def register_lanes(self, scalar: str) -> int:
        return 128 // _BITS[scalar] if self._has("avx512vl") else 1

    def float_parts(self, type: str) -> FloatParts | None:
        return _PARTS if self._fits(type) else None

    @property
    def estimates(self) -> Estimates | None:
        return _ESTIMATES if self._has("avx512f", "avx512vl") else None

    def subnormal_lanes(self, w: Writer, x: Value) -> Value | None:
        """vfpclass, whose bit 5 asks for subnormal numbers."""
        least = 128 // _BITS[scalar_of(x.type)]
        lanes = x.lanes
        if lanes < least and self._has("avx512vl"):  # the first lanes of a register
            type = vector_of(x.scalar_type, least)
            order = [n % lanes for n in range(least)]
            x = w.insert(poison(type), x, 0) if lanes == 1 else w.shuffle(x, None, order)
        if not self._fits(x.type) or not self._has("avx512dq"):
            return None
        name = f"llvm.x86.avx512.fpclass.{_SUFFIXES[x.scalar_type]}.{_size(x.type)}"
        type = vector_of("i1", x.lanes)
        found = w.intrinsic(name, type, x, w.int(1 << 5, "i32"), suffix="-")
        if lanes == x.lanes:
            return found
        return w.extract(found, 0) if lanes == 1 else w.shuffle(found, None, range(lanes))

    def extreme_number(self, w: Writer, x: Value, y: Value, *, is_maximum: bool) -> Value | None:
        """vrange's control: the sign as compared (4), the greater one (1)."""
        immediates = (5 if is_maximum else 4,)
        if not self._has("avx512dq"):
            return None
        if x.type in ("float", "double") and self._has("avx512vl"):
            # A scalar is the first lane of a register, whatever the others are.
            type = vector_of(x.type, 128 // _BITS[x.type])
            x, y = (w.insert(poison(type), v, 0) for v in (x, y))
            return w.extract(_masked(w, "range", x, y, immediates=immediates), 0)
        if not self._fits(x.type):
            return None
        return _masked(w, "range", x, y, immediates=immediates)

    @property
    def converts_long_integers(self) -> bool:
        return self._has("avx512dq", "avx512vl")

    @property
    def has_long_extremes(self) -> bool:
        return self._has("avx512f", "avx512vl")

    def nearest_integers(self, w: Writer, x: Value) -> Value | None:
        if not self._has("avx512dq"):
            return None
        if x.lanes > 1:
            return _nearest(w, x)
        # One lane of a vector register stays there: the scalar form goes by way of another.
        return w.extract(_nearest(w, w.splat(x, 128 // _BITS[x.type])), 0)

    def dot_product(self, lhs: DType, rhs: DType) -> DotProduct | None:
        size = self.machine.vector_bytes
        if (lhs, rhs) == (dt.BF16, dt.BF16):
            # A word of bf16 is two products: where so few begin in a cycle, FMAs do as many.
            cycles = self.machine.cycles
            is_fast = 2 * cycles.bf16_dots > cycles.operations
            serves = is_fast and (size == 64 or (size == 32 and self._has("avx512vl")))
            return pairs_of_bf16(size) if serves and self._has("avx512bf16") else None
        if (lhs, rhs) == (dt.U8, dt.S8) and size == 64:
            return _QUADS if self._has("avx512vnni", "avx512bw") else None
        if (lhs, rhs) != (dt.S16, dt.S16) or size != 64 or not self._has("avx512bw"):
            return super().dot_product(lhs, rhs)
        return _VNNI if self._has("avx512vnni") else _PAIRS

    def assembly(self, scalar: str) -> Assembly | None:
        return self._assembly("zmm", 64, scalar) or super().assembly(scalar)

    # -- narrow floats -----------------------------------------------------------------------

    @property
    def computes_halves(self) -> bool:
        return self._has("avx512fp16")

    def upper_halves(self, lanes: int) -> UpperHalves | None:
        return _UPPER_HALVES if lanes == _LANES and self.permutes_bytes else None

    def bf16_codes(self, w: Writer, x: Value, *, flushes: bool) -> Value | None:
        """vcvtneps2bf16, which flushes in every mode."""
        if not flushes or x.lanes == 1 or not self._has("avx512bf16"):
            return None
        short = w.cast("fptrunc", x, vector_of("bfloat", x.lanes))
        return w.cast("bitcast", short, vector_of("i16", x.lanes))

    def bf16_carried(self, w: Writer, bits: Value) -> Value:
        """A test, a blend, a sum; or with VNNI one op of logic, which leaves the odd bit beside
        0x7fff, and one that adds both halves of a word.
        """
        if bits.type != _WORDS or not self._has("avx512f"):
            return super().bf16_carried(w, bits)
        odd = w.binary("and", bits, w.int(0x10000, bits.type))
        if self._has("avx512vnni"):
            both, ones = w.binary("or", odd, w.int(0x7FFF, bits.type)), w.int(0x10001, bits.type)
            return _VNNI.multiply_add(w, bits, both, ones)
        is_odd = w.compare("icmp ne", odd, w.zero(bits.type))
        half = w.select(is_odd, w.int(0x8000, bits.type), w.int(0x7FFF, bits.type))
        return w.binary("add", bits, half)

    def bf16_quieted(self, w: Writer, codes: Value, source: Value) -> Value:
        """One vfixupimmps: its table answers classes 0 and 1 (quiet and signalling NaN) with 2 (the
        quiet source), the rest with 0.
        """
        if codes.type != _WORDS or not self._has("avx512f"):
            return super().bf16_quieted(w, codes, source)
        symbol = "llvm.x86.avx512.mask.fixupimm.ps.512"
        lanes = w.cast("bitcast", codes, _FLOATS)
        table = w.int(0x22, _WORDS)
        every = (Value("0", "i32"), Value("-1", "i16"), _CURRENT_ROUNDING)
        fixed = w.intrinsic(symbol, _FLOATS, lanes, source, table, *every, suffix="-")
        return w.cast("bitcast", fixed, _WORDS)


# -- exponents, ranges ------------------------------------------------------------------------


def _masked(
    w: Writer, name: str, x: Value, *operands: Value, immediates: tuple[int, ...] = ()
) -> Value:
    """A masked intrinsic with every lane on; 512-bit forms take a rounding argument."""
    size = _size(x.type)
    values = [x, *operands, *(w.int(n, "i32") for n in immediates)]
    values += [w.zero(x.type), Value("-1", f"i{max(8, x.lanes)}")]
    if size == 512:
        values.append(_CURRENT_ROUNDING)
    symbol = f"llvm.x86.avx512.mask.{name}.{_SUFFIXES[x.scalar_type]}.{size}"
    return w.intrinsic(symbol, x.type, *values, suffix="-")


class _Parts:
    """vscalef, vgetexp, vgetmant."""

    def scaled(self, w: Writer, x: Value, n: Value) -> Value:
        return _masked(w, "scalef", x, n)

    def exponent(self, w: Writer, x: Value) -> Value:
        return _masked(w, "getexp", x)

    def mantissa(self, w: Writer, x: Value, *, nan_below_zero: bool = False) -> Value:
        """Interval [3/4, 3/2) (3); the sign of x (0) or NaN for what is negative (8)."""
        return _masked(w, "getmant", x, immediates=(11 if nan_below_zero else 3,))


_PARTS = _Parts()


def _nearest(w: Writer, x: Value) -> Value:
    type = vector_of(_INTEGERS[x.scalar_type], x.lanes)
    return w.intrinsic("llvm.lrint", type, x, suffix=f"{mangled(type)}.{mangled(x.type)}")


# -- estimates --------------------------------------------------------------------------------


class _Estimates:
    """vrcp14, vrsqrt14. A vector's root and a division are 22 cycles (f64: 40) of the one divider;
    an estimate takes 2.
    """

    def reciprocal(self, w: Writer, x: Value) -> Value:
        return self._estimated(w, "rcp14", x)

    def reciprocal_root(self, w: Writer, x: Value) -> Value:
        return self._estimated(w, "rsqrt14", x)

    @staticmethod
    def _estimated(w: Writer, name: str, x: Value) -> Value:
        size = _BITS[x.scalar_type]
        wanted = max(1 << (x.lanes - 1).bit_length(), 128 // size)
        chunk = min(wanted, 512 // size)
        value = _widened(w, x, wanted)
        parts = [_estimate(w, name, _part(w, value, k, chunk)) for k in range(0, wanted, chunk)]
        whole = w.end_to_end(parts)
        return w.extract(whole, 0) if x.lanes == 1 else _part(w, whole, 0, x.lanes)


_ESTIMATES = _Estimates()


def _estimate(w: Writer, name: str, x: Value) -> Value:
    symbol = f"llvm.x86.avx512.{name}.{_SUFFIXES[x.scalar_type]}.{_size(x.type)}"
    every = Value("-1", f"i{max(8, x.lanes)}")
    return w.intrinsic(symbol, x.type, x, w.zero(x.type), every, suffix="-")


def _widened(w: Writer, value: Value, lanes: int) -> Value:
    """The same lanes and others behind them."""
    if value.lanes == lanes:
        return value
    if value.lanes == 1:
        return w.insert(poison(vector_of(value.type, lanes)), value, 0)
    own = value.lanes
    return w.shuffle(value, value, [min(k, own) for k in range(lanes)])


def _part(w: Writer, value: Value, first: int, count: int) -> Value:
    """`count` neighbouring lanes."""
    if value.lanes == count:
        return value
    return w.shuffle(value, value, range(first, first + count))


# -- words of tables, bytes of lanes ----------------------------------------------------------


def _gathered(w: Writer, table: Value, index: Value, step: int) -> Value:
    symbol = "llvm.x86.avx512.mask.gather.dpi.512"
    operands = (poison(_WORDS), table, index, every_lane(_LANES), w.int(step, "i32"))
    return w.intrinsic(symbol, _WORDS, *operands, suffix="-")


_SPREAD = tuple(n for k in range(_LANES) for n in (63, 63, 2 * k, 2 * k + 1))
_WIDENED = tuple(range(4 * _LANES))
_PACKED = tuple(4 * k + 2 + n for k in range(_LANES) for n in (0, 1)) * 2


class _UpperHalves:
    """vpermb. The shift and the widening move that it replaces are two instructions, the narrowing
    one three. Constants are written once: they stand in every load and store of a long kernel.
    """

    spread_order = listed("i8", _SPREAD)
    packed_order = listed("i8", _PACKED)

    def spread(self, w: Writer, codes: Value) -> Value:
        short = w.cast("bitcast", codes, "<32 x i8>")
        wide = w.shuffle(short, w.zero(short.type), _WIDENED)
        moved = self._permuted(w, wide, self.spread_order)
        return w.cast("bitcast", moved, _FLOATS)

    def packed(self, w: Writer, lanes: Value) -> Value:
        moved = self._permuted(w, w.cast("bitcast", lanes, _BYTES), self.packed_order)
        return w.cast("bitcast", w.shuffle(moved, None, range(32)), vector_of("i16", _LANES))

    @staticmethod
    def _permuted(w: Writer, value: Value, order: Value) -> Value:
        return w.intrinsic(BYTE_PERMUTATION, _BYTES, value, order, suffix="-")


_UPPER_HALVES = _UpperHalves()
