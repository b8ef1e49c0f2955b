"""How large an input may be: files, standard input, what an archive unpacks to.

    stream, limit --read_limited--> bytes, or HloError "limit"

The limit is DEFAULT_BYTES unless `limited` says otherwise (the flag --max-input-size). Nothing is
believed of a source: of a device or a pipe, no more than the limit is ever held.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import IO

from hlo.errors import HloError

DEFAULT_BYTES = 1 << 30
PIECE_BYTES = 1 << 20

_most: ContextVar[int | None] = ContextVar("_most", default=DEFAULT_BYTES)


@contextmanager
def limited(most: int | None) -> Iterator[None]:
    """Inputs up to this many bytes each; None: of any size."""
    token = _most.set(most)
    try:
        yield
    finally:
        _most.reset(token)


def most_bytes() -> int | None:
    """The limit that is in force; None: any size."""
    return _most.get()


def check_size(size: int, name: str) -> None:
    """HloError "limit" where an input has more bytes than allowed."""
    most = _most.get()
    if most is not None and size > most:
        raise _too_large(f"{name} has {size:,} bytes", most)


def _too_large(found: str, most: int) -> HloError:
    help = "--max-input-size=BYTES allows more, --max-input-size=none any size"
    return HloError("limit", f"{found}, expected at most {most:,}", help=help)


def read_limited(stream: IO[bytes], name: str) -> bytes:
    """All bytes of an open file or stream; HloError "limit" where there are more than allowed."""
    known = _known_size(stream)
    check_size(known, name)
    most = _most.get()
    if most is None:
        return stream.read()
    pieces, size = [], 0
    while piece := stream.read(min(max(known, PIECE_BYTES), most + 1 - size)):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise _too_large(f"{name} has more than {most:,} bytes", most)
    return b"".join(pieces)


def _known_size(stream: IO[bytes]) -> int:
    """The size of a regular file, which may be far more than the disk holds; else 0."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no file: a stream in memory
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
