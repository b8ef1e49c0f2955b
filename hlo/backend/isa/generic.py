"""Generic: the questions about instructions, and what is answered where LLVM's own have to do.

    machine --select.isa_of--> Isa: a question --> what its instructions give, or that none does

A question says what is wanted. Its answer is a yes or no, a Value whose instruction was written, or
a group of instructions of one use (FloatParts, Estimates, ..); None: the caller has another way.
An instruction set answers what it does better and leaves the rest to the one that it extends.
Who asks does not learn which feature it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.assembly import Assembly
from hlo.backend.isa.dot_products import DotProduct
from hlo.ir.dtype import DType
from hlo.machine import Machine

if TYPE_CHECKING:
    from hlo.backend.isa.amx import TileProduct

WORD_BITS = 32  # The narrowest elements that loads with masks of words know.
Gather = Callable[[Writer, Value, Value, int], Value]  # address, index lanes, bytes of a step


class FloatParts(Protocol):
    """A float's power of two taken off and put back, on whole vectors."""

    def scaled(self, w: Writer, x: Value, n: Value) -> Value:
        """x 2^n for whole n, rounded once, overflow and subnormals right."""

    def exponent(self, w: Writer, x: Value) -> Value:
        """floor(log2 |x|) as floats; -inf for 0, inf for infinity, NaN for NaN."""

    def mantissa(self, w: Writer, x: Value, *, nan_below_zero: bool = False) -> Value:
        """|x| scaled into [0.75, 1.5), with the sign of x; 1 for 0 and infinity."""


class Estimates(Protocol):
    """1/x and 1/sqrt(x) but for 2^-14 of it, the same bits in lanes of any number."""

    def reciprocal(self, w: Writer, x: Value) -> Value:
        """1/x; +-0 -> +-inf, +-inf -> +-0."""

    def reciprocal_root(self, w: Writer, x: Value) -> Value:
        """1/sqrt(x); +-0 -> +-inf, inf -> 0, NaN below 0; subnormals are right."""


class UpperHalves(Protocol):
    """bf16 codes <--> the upper halves of f32 lanes, in one step."""

    def spread(self, w: Writer, codes: Value) -> Value:
        """f32 lanes of codes."""

    def packed(self, w: Writer, lanes: Value) -> Value:
        """Codes of f32 lanes, whatever their lower halves hold."""


class FloatMode(Protocol):
    """The thread's floating-point mode, in 32 bits of memory. usual: as threads begin; flushing:
    the bits by which subnormal results and operands are zeros; met: those that an operation sets,
    for good, which has met a subnormal operand or lost bits of a subnormal result; 0: none.
    """

    usual: int
    flushing: int
    met: int

    def save(self, w: Writer, slot: Value) -> None:
        """The mode to memory."""

    def set(self, w: Writer, slot: Value) -> None:
        """The mode from memory."""


class Isa:
    """A machine's instructions."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def _has(self, *features: str) -> bool:
        return self.machine.features.issuperset(features)

    # -- order of lanes ----------------------------------------------------------------------

    @property
    def permutes_bytes(self) -> bool:
        """Whether one instruction takes any bytes of two vectors to any places."""
        return False

    @property
    def lookup_lanes(self) -> int:
        """f32 lanes of the longest vector whose indices `picked` takes; 0: it takes none."""
        return 0

    @property
    def picked_at_once(self) -> int:
        """Registers of so many f32 that one `picked` takes in a cycle; 0: none does."""
        return 0

    def looks_up(self, rows: int, entries: int) -> bool:
        """Whether `picked` from rows of f32 numbers beats the longer formula that they save."""
        return False

    def picks(self, type: str) -> bool:
        """Whether `picked` orders two vectors of the type better than shuffles do, whose order LLVM
        sees.
        """
        return False

    def picked(self, w: Writer, source: tuple[Value, ...], index: Value) -> Value | None:
        """Lane k is lane index[k] of one vector or of several, one after the other, counted modulo
        their number. index: integers as wide as the lanes, in a register.
        """
        return None

    @property
    def gathers_words(self) -> bool:
        """Whether gathering words beats a load for each lane, and gathering what is narrower does
        not.
        """
        return False

    @property
    def masks_loads(self) -> bool:
        """Whether one instruction loads those words of a vector that a mask lets through."""
        return False

    def masks_loads_of(self, bits: int) -> bool:
        """The same for elements of so many bits."""
        return self.masks_loads and bits >= WORD_BITS

    def quick_gather(self, lanes: int) -> Gather | None:
        """Words at an address and index lanes times 1, 2 or 4 bytes; None where looking a function
        up so takes as long as computing it.
        """
        return None

    @property
    def folds(self) -> bool:
        """Whether one instruction does two bitwise operations, or rotates, or selects its result by
        a mask, each of which LLVM's IR has as several.
        """
        return False

    # -- floats ------------------------------------------------------------------------------

    @property
    def fuses(self) -> bool:
        """Whether a product and a sum are one instruction, rounded once."""
        return False

    @property
    def rounds(self) -> bool:
        """Whether an instruction rounds floats to whole ones, in each of the usual ways."""
        return False

    @property
    def divides_slowly(self) -> bool:
        """Whether a division of vectors takes longer than a dozen operations that fuse."""
        return False

    def register_lanes(self, scalar: str) -> int:
        """Lanes of the vector in which `float_parts` wants one number; 1: it stays as it is."""
        return 1

    def float_parts(self, type: str) -> FloatParts | None:
        """Exponents and mantissas of vectors of the type."""
        return None

    @property
    def estimates(self) -> Estimates | None:
        """Reciprocals to start Newton's steps from."""
        return None

    def subnormal_lanes(self, w: Writer, x: Value) -> Value | None:
        """For each lane of a vector of floats, whether it is subnormal and not zero: by one
        instruction. Lanes that fill no register stand in the mask again and again.
        """
        return None

    @property
    def has_extremes(self) -> bool:
        """Whether LLVM's maximum and minimum, NaN where either is one, are an instruction each."""
        return False

    @property
    def keeps_second(self) -> bool:
        """Whether the greater and the lesser of floats are an instruction that gives its second
        operand where both are zeros or one is a NaN.
        """
        return False

    def extreme_number(self, w: Writer, x: Value, y: Value, *, is_maximum: bool) -> Value | None:
        """The greater or the lesser lane, +0 above -0; where one is a NaN, anything."""
        return None

    def nearest_integers(self, w: Writer, x: Value) -> Value | None:
        """Floats rounded, ties to even, as integers of the same width, in which they have room."""
        return None

    @property
    def converts_long_integers(self) -> bool:
        """Whether vectors of 64-bit integers become doubles in an instruction, and are shifted with
        their signs in one.
        """
        return False

    @property
    def has_long_extremes(self) -> bool:
        """Whether the lesser and the greater of 64-bit integers are an instruction each."""
        return False

    @property
    def saturates(self) -> bool:
        """Whether floats become integers in one instruction that saturates and gives 0 for NaN."""
        return False

    # -- narrow floats -----------------------------------------------------------------------

    @property
    def converts_halves(self) -> bool:
        """Whether f16 and f32 are converted by an instruction, which makes NaNs quiet ones."""
        return False

    @property
    def computes_halves(self) -> bool:
        """Whether f16 lanes are added, subtracted and multiplied as they are."""
        return False

    def upper_halves(self, lanes: int) -> UpperHalves | None:
        """How bf16 codes become so many f32 lanes, and back."""
        return None

    def bf16_codes(self, w: Writer, x: Value, *, flushes: bool) -> Value | None:
        """bf16 codes of f32 lanes, rounded to nearest even, NaNs made quiet. flushes: in programs
        where subnormal numbers are zeros.
        """
        return None

    def bf16_carried(self, w: Writer, bits: Value) -> Value:
        """The codes of f32 lanes whose upper halves are those of the lanes rounded to bf16, for
        numbers: 0x7fff more, one more where the bit that stays is odd.
        """
        words = bits.type
        odd = w.binary("and", w.binary("lshr", bits, w.int(16, words)), w.int(1, words))
        return w.binary("add", w.binary("add", bits, w.int(0x7FFF, words)), odd)

    def bf16_quieted(self, w: Writer, codes: Value, source: Value) -> Value:
        """The code of the source's NaN, made quiet, where it has one; `codes` elsewhere."""
        words = codes.type
        bits = w.cast("bitcast", source, words)
        quiet = w.binary("or", bits, w.int(0x400000, words))
        return w.select(w.compare("fcmp uno", source, source), quiet, codes)

    # -- products of tiles -------------------------------------------------------------------

    def tile_product(self, lhs: DType, rhs: DType) -> TileProduct | None:
        """Tiles that multiply elements of these types."""
        return None

    def dot_product(self, lhs: DType, rhs: DType) -> DotProduct | None:
        """Products of words of these elements, in this order, in vectors of the size that kernels
        use.
        """
        return None

    def square_product(self, lhs: DType, rhs: DType) -> DotProduct | None:
        """The same of two rows by two columns at once."""
        return None

    def assembly(self, scalar: str) -> Assembly | None:
        """What a kernel may be written in instead of LLVM's language, for vectors of the type."""
        return None

    # -- memory, threads, modes --------------------------------------------------------------

    def fence_streams(self, w: Writer) -> None:
        """Stores past the cache arrive before anything that is written later."""

    def pause(self, w: Writer) -> None:
        """A moment for others, in a loop that waits."""

    @property
    def float_mode(self) -> FloatMode | None:
        """How the thread's floating-point mode is read and set."""
        return None
