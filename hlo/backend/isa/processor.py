"""Processor: what an x86-64 processor has, as LLVM IR, and which of several machines it is.

    hlo_processor                     a word of the library: the features' bits, once they are known
    hlo_find_processor() -> the word  asks by cpuid and xgetbv, and stores it

All objects of a library share the word: it is written as a whole, with the same value by whoever
writes it. Bits are never given to other features, new ones come behind: an object of another
version finds too few at most. Sources: Intel's manual, volume 2, CPUID; volume 1, 13.2 and 15.2
(XGETBV, which registers the system keeps); AMD's manual, volume 3, appendix E.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from hlo.backend.ir.interface import Field, Prototype, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.records import Instruction
from hlo.backend.ir.values import Value
from hlo.backend.ir.words import Word
from hlo.backend.isa.amx import SYSTEM_CALL
from hlo.backend.isa.assembly import InlineAssembly
from hlo.process.tile_permission import PERMISSION_CALL

WORD = "hlo_processor"
_WORD = Field(0)
_FIND = prototype("i64", "hlo_find_processor")
KNOWN = 1 << 62  # of the word: it has been found
# Where a feature's bit is: the leaf and the part of it, the register (eax, ebx, ecx, edx), the bit.
_EAX, _EBX, _ECX, _EDX = range(4)
_FIRST, _MORE, _LAST, _AMD = (1, 0), (7, 0), (7, 1), (0x80000001, 0)
_PLACES = {
    "sse3": (_FIRST, _ECX, 0), "ssse3": (_FIRST, _ECX, 9), "fma": (_FIRST, _ECX, 12),
    "cx16": (_FIRST, _ECX, 13), "sse4.1": (_FIRST, _ECX, 19), "sse4.2": (_FIRST, _ECX, 20),
    "movbe": (_FIRST, _ECX, 22), "popcnt": (_FIRST, _ECX, 23), "xsave": (_FIRST, _ECX, 27),
    "avx": (_FIRST, _ECX, 28), "f16c": (_FIRST, _ECX, 29), "sahf": (_AMD, _ECX, 0),
    "lzcnt": (_AMD, _ECX, 5), "bmi": (_MORE, _EBX, 3), "avx2": (_MORE, _EBX, 5),
    "bmi2": (_MORE, _EBX, 8), "avx512f": (_MORE, _EBX, 16), "avx512dq": (_MORE, _EBX, 17),
    "avx512ifma": (_MORE, _EBX, 21), "avx512cd": (_MORE, _EBX, 28), "avx512bw": (_MORE, _EBX, 30),
    "avx512vl": (_MORE, _EBX, 31), "avx512vbmi": (_MORE, _ECX, 1), "avx512vbmi2": (_MORE, _ECX, 6),
    "avx512vnni": (_MORE, _ECX, 11), "avx512bitalg": (_MORE, _ECX, 12),
    "avx512vpopcntdq": (_MORE, _ECX, 14), "amx-bf16": (_MORE, _EDX, 22),
    "avx512fp16": (_MORE, _EDX, 23), "amx-tile": (_MORE, _EDX, 24), "amx-int8": (_MORE, _EDX, 25),
    "avxvnni": (_LAST, _EAX, 4), "avx512bf16": (_LAST, _EAX, 5),
    "amx-fp16": (_LAST, _EAX, 21), "avxvnniint8": (_LAST, _EDX, 4),
    "avxvnniint16": (_LAST, _EDX, 10),
}  # fmt: skip
_BITS = {feature: 1 << number for number, feature in enumerate(_PLACES)}
# What every processor of 64 bits has.
_ALWAYS = frozenset({"cmov", "cx8", "fxsr", "mmx", "sse", "sse2"})
# Bits of XCR0, the registers that the system keeps: of 32 bytes; of 64 and masks; tiles.
_KEPT = (("avx512", 0xE6), ("amx", 0x60000), ("avx", 0x6), ("f", 0x6))  # f16c and fma: of avx
_SYSTEM_SAVES = 1 << 27  # of ecx: xgetbv may be asked


class Level(Struct, frozen=True):
    """One of the machines that an object has code for: its function, and features that it uses."""

    function: Prototype
    features: frozenset[str]


def unknown(features: frozenset[str]) -> frozenset[str]:
    """Of a machine's features those that the word has no bit for."""
    return features - _ALWAYS - _BITS.keys()


def mask(features: frozenset[str]) -> int:
    """The bits of the word that a machine's features are."""
    return sum(_BITS[feature] for feature in features - _ALWAYS)


def define(unit: Unit, *, asks_linux: bool) -> None:
    """The word and what finds it. asks_linux: for tiles, which Linux gives to who asks."""
    unit.data(WORD, "linkonce_odr hidden global i64 0, align 8")
    find = partial(_find, asks_linux=asks_linux)
    unit.define(_FIND, find, attributes="noinline cold")


def choose(p: Procedure, levels: Sequence[Level], *arguments: Word) -> None:
    """Run the last level's function that this processor has all of, and give what it gives; goes on
    where there is none."""
    word = p.symbol(WORD)
    known = p.join("i64")
    kept = word.load(_WORD, "monotonic")
    known.go_if(kept.ne(0), kept)
    (bits,) = known.here(p.call(_FIND))
    for level in reversed(levels):
        needed = mask(level.features)
        with p.when((bits & needed).eq(needed)):
            p.ret(p.call(level.function, *arguments))


def _find(p: Procedure, *, asks_linux: bool) -> None:
    """Each leaf that there is; then what the system does not keep is taken away."""
    zero = p.word(0, "i32")
    found = p.word(KNOWN)
    largest = _asked(p, zero, zero)[_EAX]
    largest_amd = _asked(p, p.word(0x80000000, "i32"), zero)[_EAX]
    first = _asked(p, p.word(1, "i32"), zero)
    found = found | _bits(p, _FIRST, first)
    has_more = largest.at_least(7)
    more = _asked(p, has_more.select(p.word(7, "i32"), zero), zero)
    has_last = has_more & more[_EAX].ne(0)
    last = _asked(p, p.word(7, "i32"), p.word(1, "i32"))
    amd = _asked(p, p.word(0x80000001, "i32"), zero)
    for leaf, registers, is_there in (
        (_MORE, more, has_more),
        (_LAST, last, has_last),
        (_AMD, amd, largest_amd.at_least(0x80000001)),
    ):
        found = found | is_there.select(_bits(p, leaf, registers), p.word(0))
    found = _without(found, _unkept(p, first[_ECX]))
    if asks_linux:
        found = _without(found, _unpermitted(p, found))
    p.symbol(WORD).store(_WORD, found, "monotonic")
    p.ret(found)


def _without(found: Word, bits: Word) -> Word:
    return found & bits.binary("xor", -1)


def _bits(p: Procedure, leaf: tuple[int, int], registers: Sequence[Word]) -> Word:
    """The word's bits of one leaf's registers."""
    found = p.word(0)
    for feature, (own, register, bit) in _PLACES.items():
        if own == leaf:
            is_set = (registers[register] & (1 << bit)).ne(0)
            found = found | is_set.select(p.word(_BITS[feature]), p.word(0))
    return found


def _unkept(p: Procedure, ecx: Word) -> Word:
    """Bits of features whose registers the system does not keep."""
    kept = p.join("i64")
    kept.go_if((ecx & _SYSTEM_SAVES).eq(0), p.word(0))
    code = ("xorl %ecx, %ecx", "xgetbv")
    low, _ = _assembled(p, code, "={ax},={dx},~{cx},~{dirflag},~{fpsr},~{flags}", 2)
    (registers,) = kept.here(low.to("i64"))
    without = p.word(0)
    for begins, needed in _KEPT:
        own = sum(bit for feature, bit in _BITS.items() if _kept_by(feature) == begins)
        is_kept = (registers & needed).eq(needed)
        without = without | is_kept.select(p.word(0), p.word(own))
    return without


def _kept_by(feature: str) -> str:
    """The row of _KEPT that a feature is of; empty: of none."""
    return next((begins for begins, _ in _KEPT if feature.startswith(begins)), "")


def _unpermitted(p: Procedure, found: Word) -> Word:
    """Bits of tiles, where the system does not give them."""
    tiles = sum(bit for feature, bit in _BITS.items() if _kept_by(feature) == "amx")
    asked = p.join("i64")
    asked.go_if((found & tiles).eq(0), p.word(0))
    number, function, state = PERMISSION_CALL
    operands = [p.word(n) for n in (number, function, state)]
    (status,) = _assembled(p, ("syscall",), SYSTEM_CALL, 1, *operands, type="i64")
    (without,) = asked.here(status.eq(0).select(p.word(0), p.word(tiles)))
    return without


def _asked(p: Procedure, leaf: Word, part: Word) -> list[Word]:
    """eax, ebx, ecx, edx of a leaf."""
    places = "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"
    return _assembled(p, ("cpuid",), places, 4, leaf, part)


def _assembled(
    p: Procedure,
    code: tuple[str, ...],
    places: str,
    count: int,
    *operands: Value,
    type: str = "i32",
) -> list[Word]:
    """What registers hold behind instructions. places: LLVM's constraints."""
    w, name = p.w, p.w.fresh()
    whole = f"{{ {', '.join([type] * count)} }}" if count > 1 else type
    w.append(InlineAssembly(name, whole, "call", operands, code=code, constraints=places))
    made = Word(name, whole, w)
    if count == 1:
        return [made]
    found = []
    for number in range(count):
        part = w.fresh()
        w.records.append(Instruction(part, type, "extractvalue", (made,), f", {number}"))
        found.append(Word(part, type, w))
    return found
