"""Copying: memcpy and memset as functions of an object that leaves nothing to the C library.

Words of eight bytes, which begin anywhere, then the bytes that are left: kernels copy for
themselves what is worth more.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo.backend.ir.interface import prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word

_MEMCPY, _MEMSET = NAMES = ("memcpy", "memset")
_WORD, _EVERY_BYTE = 8, 0x0101010101010101


def define(unit: Unit, names: Iterable[str], size: str) -> None:
    """Some of NAMES. size: C's size_t there."""
    for name in names:
        second, body = ("ptr", _memcpy) if name == _MEMCPY else ("i32", _memset)
        unit.define(prototype("ptr", name, "ptr", second, size), body, attributes="nobuiltin")


def _memcpy(p: Procedure, target: Word, source: Word, bytes: Word) -> None:
    size = _counted(bytes)
    words = size // _WORD
    with p.counted(words) as k:
        p.w.store(p.w.load(source.item("i64", k), "i64"), target.item("i64", k))
    whole = words * _WORD
    rest, left, given = size - whole, target.item("i8", whole), source.item("i8", whole)
    with p.counted(rest) as k:
        left.put(given.get("i8", k), k)
    p.ret(target)


def _memset(p: Procedure, target: Word, byte: Word, bytes: Word) -> None:
    size, one = _counted(bytes), byte.to("i8")
    every = one.to("i64") * _EVERY_BYTE
    words = size // _WORD
    with p.counted(words) as k:
        p.w.store(every, target.item("i64", k))
    whole = words * _WORD
    left = target.item("i8", whole)
    with p.counted(size - whole) as k:
        left.put(one, k)
    p.ret(target)


def _counted(bytes: Word) -> Word:
    """As a word of 64 bits."""
    return bytes if bytes.type == "i64" else bytes.to("i64")
