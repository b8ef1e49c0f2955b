"""Archive: object files as one static library, in the format of `ar`, byte for byte the same.

    (file name, object) ... , symbols --archive--> bytes of NAME.a

The index of symbols, which linkers ask for, is the first member ("/"); names of more than 15
characters stand in the second ("//"). Times and owners are 0. Source: System V's ar(5), as GNU's
and LLVM's linkers read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from hlo.errors import HloError

MAGIC = b"!<arch>\n"
_SHORT = 15  # characters of a name in a member's head


class Member(Struct, frozen=True):
    """An object file in the library, and the symbols that others may know it by."""

    name: str
    data: bytes
    symbols: tuple[str, ...]


def archive(members: Sequence[Member]) -> bytes:
    """The library. HloError where two members define the same symbol."""
    _check_symbols(members)
    names, places = _names(members)
    symbols = [s for member in members for s in member.symbols]
    index_bytes = 4 + 4 * len(symbols) + sum(len(s.encode()) + 1 for s in symbols)
    at = len(MAGIC) + _room(index_bytes) + (_room(len(names)) if names else 0)
    offsets = []
    for member in members:
        offsets += [at] * len(member.symbols)
        at += _room(len(member.data))
    index = len(symbols).to_bytes(4, "big")
    index += b"".join(offset.to_bytes(4, "big") for offset in offsets)
    index += b"".join(s.encode() + b"\0" for s in symbols)
    parts = [MAGIC, *_member("/", index, "0")]
    if names:
        parts += _member("//", names, "")
    for member, place in zip(members, places, strict=True):
        parts += _member(place, member.data, "100644")
    return b"".join(parts)


def _check_symbols(members: Sequence[Member]) -> None:
    seen: set[str] = set()
    for member in members:
        for symbol in member.symbols:
            if symbol in seen:
                raise HloError(
                    "arguments",
                    f"library: two members define {symbol}, expected names that differ",
                    help="--prefix or --name gives other ones",
                )
            seen.add(symbol)


def _names(members: Sequence[Member]) -> tuple[bytes, list[str]]:
    """The table of long names, and what stands in each member's head."""
    table, places = b"", []
    for member in members:
        if len(member.name) <= _SHORT:
            places.append(f"{member.name}/")
            continue
        places.append(f"/{len(table)}")
        table += member.name.encode() + b"/\n"
    return table, places


def _room(size: int) -> int:
    """Of a member with its head: data begins at even places."""
    return 60 + size + size % 2


def _member(name: str, data: bytes, mode: str) -> Iterator[bytes]:
    owner = "0" if mode else ""
    head = f"{name:<16}{owner:<12}{owner:<6}{owner:<6}{mode:<8}{len(data):<10}`\n"
    yield head.encode()
    yield data
    if len(data) % 2:
        yield b"\n"
