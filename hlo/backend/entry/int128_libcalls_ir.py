"""Libcalls on integers of 128 bits, for processors where LLVM calls functions for them.

    __multi3, __ashlti3, __lshrti3, __ashrti3        a b, a << n, a >> n with zeros or the sign

Written in halves of 64 bits: shifts by 64, which put halves together and take them apart, are moves
of words on every target. Whole products of 64 bits come of four of 32.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from hlo.backend.ir.interface import prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word

_MULTIPLY = "__multi3"
_SHIFTS = {"__ashlti3": "shl", "__lshrti3": "lshr", "__ashrti3": "ashr"}
NAMES = (_MULTIPLY, *_SHIFTS)
_WIDE, _HALF = "i128", 64
_LOW = (1 << 32) - 1


def define(unit: Unit, names: Iterable[str]) -> None:
    """Some of NAMES."""
    for name in names:
        if name == _MULTIPLY:
            unit.define(prototype(_WIDE, name, _WIDE, _WIDE), _multiplied)
        else:
            unit.define(prototype(_WIDE, name, _WIDE, "i32"), partial(_shifted, _SHIFTS[name]))


def _halves(x: Word) -> tuple[Word, Word]:
    """The lower, the upper one."""
    return x.to("i64"), (x >> _HALF).to("i64")


def _whole(low: Word, high: Word) -> Word:
    return low.to(_WIDE) | (high.to(_WIDE) << _HALF)


def _multiplied(p: Procedure, a: Word, b: Word) -> None:
    (a_low, a_high), (b_low, b_high) = _halves(a), _halves(b)
    a0, a1, b0, b1 = a_low & _LOW, a_low >> 32, b_low & _LOW, b_low >> 32
    first, left, right = a0 * b0, a1 * b0, a0 * b1
    middle = (first >> 32) + (left & _LOW) + (right & _LOW)
    low = (first & _LOW) | (middle << 32)
    high = a1 * b1 + (left >> 32) + (right >> 32) + (middle >> 32)
    p.ret(_whole(low, high + a_low * b_high + a_high * b_low))


def _shifted(opcode: str, p: Procedure, x: Word, by: Word) -> None:
    low, high = _halves(x)
    count = by.to("i64")
    is_far, rest = count.at_least(_HALF), count & (_HALF - 1)
    back, is_none = (_HALF - rest) & (_HALF - 1), rest.eq(0)
    zero = p.word(0)
    if opcode == "shl":
        carried = is_none.select(zero, low >> back)
        near, far = (low << rest, (high << rest) | carried), (zero, low << rest)
    else:
        moved, carried = high.binary(opcode, rest), is_none.select(zero, high << back)
        filling = zero if opcode == "lshr" else high.binary("ashr", _HALF - 1)
        near, far = ((low >> rest) | carried, moved), (moved, filling)
    p.ret(_whole(*(is_far.select(f, n) for f, n in zip(far, near, strict=True))))
