"""Copying: memcpy and memset as functions of an object that leaves nothing to the C library.

Words of eight bytes, which begin anywhere, then the bytes that are left: kernels copy for
themselves what is worth more.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo.backend.ir.procedure import Procedure, Unit, prototype
from hlo.backend.ir.words import Word

_MEMCPY = prototype("ptr", "memcpy", "ptr", "ptr", "i64")
_MEMSET = prototype("ptr", "memset", "ptr", "i32", "i64")
NAMES = (_MEMCPY.symbol, _MEMSET.symbol)
_WORD, _EVERY_BYTE = 8, 0x0101010101010101


def define(unit: Unit, names: Iterable[str]) -> None:
    """Some of NAMES."""
    for name in names:
        if name == _MEMCPY.symbol:
            unit.define(_MEMCPY, _memcpy, attributes="nobuiltin")
        else:
            unit.define(_MEMSET, _memset, attributes="nobuiltin")


def _memcpy(p: Procedure, target: Word, source: Word, size: Word) -> None:
    words = size // _WORD
    with p.counted(words) as k:
        p.w.store(p.w.load(source.item("i64", k), "i64"), target.item("i64", k))
    whole = words * _WORD
    rest, left, given = size - whole, target.item("i8", whole), source.item("i8", whole)
    with p.counted(rest) as k:
        left.put(given.get("i8", k), k)
    p.ret(target)


def _memset(p: Procedure, target: Word, byte: Word, size: Word) -> None:
    one = byte.to("i8")
    every = one.to("i64") * _EVERY_BYTE
    words = size // _WORD
    with p.counted(words) as k:
        p.w.store(every, target.item("i64", k))
    whole = words * _WORD
    left = target.item("i8", whole)
    with p.counted(size - whole) as k:
        left.put(one, k)
    p.ret(target)
