"""NEON: 64-bit Arm's vectors of 16 bytes; with FP16, BF16, DotProd, I8MM.

Many questions have their best answer in what LLVM makes of its own instructions: bf16's upper
halves are shll and shrn or uzp2, a NaN's code is fcmeq, orr and bit, maximum is fmax (nobody asks
for `extreme_number` then), orders of lanes are zip, uzp, trn or ext. Nothing here gathers, masks
memory or takes exponents off. A division or a root of a vector takes 2 to 10 cycles: products that
divide exactly take as long, and `estimates` from frecpe or frsqrte (8 bits and Newton's steps) make
|x| of complex numbers no faster on Neoverse cores and four times slower on Apple's.

Sources: Arm's Architecture Reference Manual for A-profile (DDI 0487: C7 for instructions, FPCR,
ISB) and Programmer's Guide for ARMv8-A (DEN0024A 13.2.4, non-temporal pairs); what LLVM makes of
its own instructions is seen in assembly, and cycles are of its models of Neoverse and Apple cores.
"""

from __future__ import annotations

from hlo.backend.ir.values import lanes_of, scalar_of
from hlo.backend.ir.writer import Value, Writer, mangled, vector_of
from hlo.backend.isa.dot_products import DotProduct, neon_pairs_of_bf16, neon_quads, neon_squares
from hlo.backend.isa.generic import FloatMode, Isa
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

_LANES = 4
_FLOATS, _BYTES = "<4 x float>", "<16 x i8>"
_BITS = {"float": 32, "double": 64}
_INTEGERS = {"float": "i32", "double": "i64"}
# The features that multiply two rows by two columns of these elements.
_SQUARES = {
    (dt.BF16, dt.BF16): "bf16",
    (dt.S8, dt.S8): "i8mm",
    (dt.U8, dt.U8): "i8mm",
    (dt.U8, dt.S8): "i8mm",
}


class _Control:
    """FPCR, of whose 64 bits the upper half is not used. FZ is bit 24: subnormal operands and
    results of f32 and f64 are zeros.
    """

    usual = 0
    flushing = 1 << 24
    met = 0  # FPSR has them.

    def save(self, w: Writer, slot: Value) -> None:
        bits = w.call_declared("llvm.aarch64.get.fpcr", type="i64")
        w.store(w.cast("trunc", bits, "i32"), slot, 4)

    def set(self, w: Writer, slot: Value) -> None:
        bits = w.cast("zext", w.load(slot, "i32", 4), "i64")
        w.call_declared("llvm.aarch64.set.fpcr", bits)


_CONTROL = _Control()


class Neon(Isa):
    """Vectors of 16 bytes."""

    # -- order of lanes ----------------------------------------------------------------------

    @property
    def permutes_bytes(self) -> bool:
        """tbl, from 32 bytes in two registers."""
        return self._has("neon")

    @property
    def lookup_lanes(self) -> int:
        return _LANES if self._has("neon") else 0

    def looks_up(self, rows: int, entries: int) -> bool:
        """tbl from four registers takes 1.5 to 2 cycles of Neoverse cores: erf, of 7 rows, takes
        0.6 of its formula's time. Rows that fill all registers (tanh's 8), or are twice as long
        (the logarithm's), take as long as the formula, or longer.
        """
        registers = rows * -(-entries // _LANES)
        return self._has("neon") and entries <= 4 * _LANES and registers < self.machine.registers

    def picked(self, w: Writer, source: tuple[Value, ...], index: Value) -> Value | None:
        """tbl, from 64 bytes in four registers."""
        if len(source) != 4 or source[0].type != _FLOATS or not self._has("neon"):
            return None
        words = index.type
        number = w.binary("and", index, w.int(4 * _LANES - 1, words))
        first = w.binary("mul", number, w.int(0x04040404, words))
        order = w.cast("bitcast", w.binary("add", first, w.int(0x03020100, words)), _BYTES)
        table = (w.cast("bitcast", part, _BYTES) for part in source)
        found = w.intrinsic("llvm.aarch64.neon.tbl4", _BYTES, *table, order)
        return w.cast("bitcast", found, _FLOATS)

    # -- floats ------------------------------------------------------------------------------

    @property
    def fuses(self) -> bool:
        """fmla, fmadd."""
        return self._has("neon")

    @property
    def rounds(self) -> bool:
        """frintn, frintm, frintp, frintz, frinta."""
        return self._has("neon")

    @property
    def has_extremes(self) -> bool:
        """fmax, fmin: a NaN where either is one, +0 above -0."""
        return self._has("neon")

    @property
    def converts_long_integers(self) -> bool:
        return self._has("neon")

    def nearest_integers(self, w: Writer, x: Value) -> Value | None:
        """fcvtns: LLVM makes two instructions of llvm.lrint and of rounding with converting."""
        size = lanes_of(x.type) * _BITS[scalar_of(x.type)]
        if size > 128 or not self._has("neon"):
            return None
        type = vector_of(_INTEGERS[x.scalar_type], x.lanes)
        suffix = f"{mangled(type)}.{mangled(x.type)}"
        return w.intrinsic("llvm.aarch64.neon.fcvtns", type, x, suffix=suffix)

    @property
    def saturates(self) -> bool:
        """fcvtzs, fcvtzu."""
        return self._has("neon")

    # -- narrow floats -----------------------------------------------------------------------

    @property
    def converts_halves(self) -> bool:
        """fcvtl, fcvtn."""
        return self._has("neon")

    @property
    def computes_halves(self) -> bool:
        """FEAT_FP16. Subnormal numbers are right in every mode: FPCR.FZ16 is left alone."""
        return self._has("fullfp16")

    def bf16_codes(self, w: Writer, x: Value, *, flushes: bool) -> Value | None:
        """bfcvtn, bfcvt, which flush where FPCR.FZ says so, and make NaNs quiet ones."""
        if not self._has("bf16"):
            return None
        short = w.cast("fptrunc", x, vector_of("bfloat", x.lanes))
        return w.cast("bitcast", short, vector_of("i16", x.lanes))

    def bf16_carried(self, w: Writer, bits: Value) -> Value:
        """cmtst, whose lanes are -1 where the bit is set; the sum is one with a shift that narrows
        (addhn).
        """
        words = bits.type
        bit = w.binary("and", bits, w.int(0x10000, words))
        is_odd = w.cast("sext", w.compare("icmp ne", bit, w.zero(words)), words)
        return w.binary("add", w.binary("sub", bits, is_odd), w.int(0x7FFF, words))

    # -- products of words -------------------------------------------------------------------

    def dot_product(self, lhs: DType, rhs: DType) -> DotProduct | None:
        """sdot, udot; usdot, of FEAT_I8MM; bfdot."""
        if (lhs, rhs) == (dt.BF16, dt.BF16):
            return neon_pairs_of_bf16() if self._has("bf16") else None
        if (lhs, rhs) in ((dt.S8, dt.S8), (dt.U8, dt.U8)):
            return neon_quads(lhs, rhs) if self._has("dotprod") else None
        if (lhs, rhs) == (dt.U8, dt.S8):
            return neon_quads(lhs, rhs) if self._has("i8mm") else None
        return None

    def square_product(self, lhs: DType, rhs: DType) -> DotProduct | None:
        """smmla, ummla, usmmla of FEAT_I8MM; bfmmla."""
        needed = _SQUARES.get((lhs, rhs))
        return neon_squares(lhs, rhs) if needed and self._has(needed) else None

    # -- memory, threads, modes --------------------------------------------------------------

    def fence_streams(self, w: Writer) -> None:
        """Non-temporal pairs relax the order of memory: a barrier, before others are told."""
        w.emit("fence release")

    def pause(self, w: Writer) -> None:
        """isb sy: as long as x86's pause on Neoverse cores, where `yield` takes no time at all
        (github.com/rust-lang/rust/pull/84725).
        """
        w.call_declared("llvm.aarch64.isb", w.int(15, "i32"))

    @property
    def float_mode(self) -> FloatMode | None:
        return _CONTROL
