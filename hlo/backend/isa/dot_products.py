"""Dot products of words: instructions that multiply the elements of 32-bit words and add them up.

A lane of a sum (s32 or f32) takes the products of two or four elements that lie in one word of each
factor, from x86's PMADDWD on. Intel's manual, volume 2: PMADDWD, VPDPWSSD, VPDPBUSD (whose first
factor is unsigned and whose sums wrap), VPDPBSSD, VPDPWUUD and their like, VDPBF16PS. Arm's
Architecture Reference Manual for A-profile (DDI 0487, C7): SDOT, UDOT, USDOT, whose sums wrap,
BFDOT. Both instructions on bf16 read subnormal numbers as zero, and give zero for such sums. BFDOT
does so where FPCR.EBF is 0, and sums two products before it adds the sum, each time rounding to
odd: that errs by less than one unit of the last place, and a word's one such addition by no more
than two additions rounded to nearest.

SMMLA, UMMLA, USMMLA and BFMMLA multiply words of 64 bits of two rows by those of two columns: a
vector of their sums is a square of 2 x 2, row after row. BFMMLA does what BFDOT does on the first
halves of the words, then on the second ones. Two vectors of squares side by side hold what two rows
of four sums do; `in_rows` makes the one of the other.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.assembly import Assembly
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

_REGISTERS = {32: "ymm", 64: "zmm"}
_HALVES = ((0, 1, 4, 5), (2, 3, 6, 7))  # Of two vectors: the lower ones, the upper ones.


# What makes an assembler take AVX-VNNI's encoding: without it, it takes AVX-512's, which processors
# with the one and not the other do not have.
VEX = "{vex} "


class DotProduct(Struct, frozen=True):
    """An instruction that multiplies words element by element and adds the products up.

    element, other: of lhs's words, and of rhs's where they differ. word_bits: of a word.
    sums: LLVM's type of one. intrinsic: LLVM's name of the instruction, on operands of this type.
    adds: whether it adds to a sum itself.
    assembly: what tiles of such sums may be written in.
    is_turned: whether the instruction takes rhs first.
    aside: registers that tiles leave to words on their way, where the instruction takes these from
    vectors alone.
    rows: of lhs that a product takes at once, and columns for each of its lanes that are as many.
    """

    element: DType
    sums: str
    intrinsic: str
    operand: str
    adds: bool
    assembly: Assembly | None = None
    other: DType | None = None
    is_turned: bool = False
    aside: int = 0
    rows: int = 1
    word_bits: int = 32

    @property
    def turned(self) -> DotProduct:
        """The same with lhs and rhs exchanged."""
        assembly = self.assembly and replace(self.assembly, is_turned=not self.assembly.is_turned)
        return replace(
            self,
            element=self.other or self.element,
            other=self.other and self.element,
            assembly=assembly,
            is_turned=not self.is_turned,
        )

    @property
    def elements(self) -> tuple[DType, DType]:
        """Of lhs's words, of rhs's."""
        return self.element, self.other or self.element

    @property
    def group(self) -> int:
        """Elements in a word."""
        return self.word_bits // self.element.bits

    @property
    def word(self) -> DType:
        """The type of whose numbers there is one for each word, of as many bits."""
        if self.word_bits == 64:
            return dt.S64
        return dt.F32 if self.sums == "float" else dt.S32

    def multiply_add(self, w: Writer, total: Value, a: Value, b: Value) -> Value:
        """total + the products of the elements of a's and b's words."""
        a, b = (w.cast("bitcast", x, self.operand) for x in ((b, a) if self.is_turned else (a, b)))
        if self.adds:
            return w.intrinsic(self.intrinsic, total.type, total, a, b, suffix="-")
        return w.binary("add", total, w.intrinsic(self.intrinsic, total.type, a, b, suffix="-"))

    def in_rows(self, w: Writer, left: Value, right: Value) -> tuple[Value, Value]:
        """Two rows of sums from squares side by side."""
        first, second = ((0, 2, 4, 6), (1, 3, 5, 7)) if self.is_turned else _HALVES
        return w.shuffle(left, right, first), w.shuffle(left, right, second)

    def in_squares(self, w: Writer, first: Value, second: Value) -> tuple[Value, Value]:
        """Squares side by side from two rows of sums."""
        left, right = ((0, 4, 1, 5), (2, 6, 3, 7)) if self.is_turned else _HALVES
        return w.shuffle(first, second, left), w.shuffle(first, second, right)


def pairs_of_s16(
    vector_bytes: int, multiply: str, accumulate: str = "", prefix: str = ""
) -> DotProduct:
    """Pairs of s16 in vectors of a width; by an instruction that adds as well, or by two."""
    assembly, product = None, f"{prefix}vpdpwssd"
    if accumulate:
        assembly = Assembly(_REGISTERS[vector_bytes], "s", product=product, sum="vpaddd")
    operand = f"<{vector_bytes // 2} x i16>"
    return DotProduct(dt.S16, "i32", accumulate or multiply, operand, bool(accumulate), assembly)


def quads_of_8_bits(vector_bytes: int, prefix: str = "") -> DotProduct:
    """Quads of u8 by quads of s8 in vectors of a width."""
    product = f"{prefix}vpdpbusd"
    intrinsic = f"llvm.x86.avx512.vpdpbusd.{8 * vector_bytes}"
    operand = f"<{vector_bytes} x i8>"
    wide = _REGISTERS[vector_bytes]
    assembly = Assembly(wide, "s", product=product, sum="vpaddd", is_ordered=True)
    return DotProduct(dt.U8, "i32", intrinsic, operand, True, assembly, other=dt.S8)


def words_of_kinds(lhs: DType, rhs: DType) -> DotProduct:
    """Quads of 8 bits or pairs of 16 bits in vectors of 32 bytes, signed or unsigned each, by
    AVX-VNNI-INT8 or AVX-VNNI-INT16.
    """
    kinds = "".join("s" if element.is_signed else "u" for element in (lhs, rhs))
    name, other = f"vpdp{'b' if lhs.bits == 8 else 'w'}{kinds}d", rhs if lhs is not rhs else None
    operand = f"<{256 // lhs.bits} x i{lhs.bits}>"
    assembly = Assembly("ymm", "s", product=name, sum="vpaddd", is_ordered=other is not None)
    return DotProduct(lhs, "i32", f"llvm.x86.avx2.{name}.256", operand, True, assembly, other)


def pairs_of_bf16(vector_bytes: int) -> DotProduct:
    """Pairs of bf16 in vectors of a width."""
    intrinsic = f"llvm.x86.avx512bf16.dpbf16ps.{8 * vector_bytes}"
    operand = f"<{vector_bytes // 2} x bfloat>"
    assembly = Assembly(_REGISTERS[vector_bytes], "s", product="vdpbf16ps")
    return DotProduct(dt.BF16, "float", intrinsic, operand, True, assembly)


# Of 32: LLVM loads the words of several rows ahead. Tiles that leave fewer have their sums moved
# from register to register in every step: 4.1 instructions for each product, and 1.9 for these.
_NEON_ASIDE = 2


def neon_quads(lhs: DType, rhs: DType) -> DotProduct:
    """Quads of 8 bits in vectors of 16 bytes: both signed, both unsigned, or u8 by s8."""
    mixed = "us" if lhs is not rhs else lhs.name[0]
    intrinsic = f"llvm.aarch64.neon.{mixed}dot.v4i32.v16i8"
    other = rhs if lhs is not rhs else None
    return DotProduct(lhs, "i32", intrinsic, "<16 x i8>", True, other=other, aside=_NEON_ASIDE)


def neon_pairs_of_bf16() -> DotProduct:
    """Pairs of bf16 in vectors of 16 bytes."""
    intrinsic = "llvm.aarch64.neon.bfdot.v4f32.v8bf16"
    return DotProduct(dt.BF16, "float", intrinsic, "<8 x bfloat>", True, aside=_NEON_ASIDE)


def neon_squares(lhs: DType, rhs: DType) -> DotProduct:
    """Words of eight 8-bit integers, or of four bf16: two rows by two columns."""
    other = rhs if lhs is not rhs else None
    if lhs is dt.BF16:
        name, sums, operand = "bfmmla", "float", "<8 x bfloat>"
    else:
        name = f"{'us' if other else lhs.name[0]}mmla.v4i32.v16i8"
        sums, operand = "i32", "<16 x i8>"
    return DotProduct(
        lhs, sums, f"llvm.aarch64.neon.{name}", operand, True,
        other=other, aside=_NEON_ASIDE, rows=2, word_bits=64,
    )  # fmt: skip
