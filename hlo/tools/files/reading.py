"""Reading and writing files so that bad ones are a clear error and good ones are never lost.

Outputs are written by `write_file`: a full disk or a killed process leaves the old file as it was.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hlo.errors import HloError
from hlo.progress import hide
from hlo.source import shown_lines
from hlo.tools.files.input_size import read_limited


def read_text(path: str) -> str:
    """The text of a file, `-` for standard input. Bytes that are not UTF-8 are read as Latin-1."""
    return decode(read_bytes(path))


def decode(data: bytes) -> str:
    """UTF-8, or Latin-1 where it is not: any byte may stand in a comment or a string."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def read_bytes(path: str) -> bytes:
    """The bytes of a file, `-` for standard input; HloError code "file" or "limit" otherwise."""
    name = "standard input" if path == "-" else path
    try:
        if path == "-":
            return read_limited(sys.stdin.buffer, name)
        with Path(path).open("rb", buffering=0) as stream:
            return read_limited(stream, name)
    except IsADirectoryError:
        raise HloError("file", f"{name} is a directory, expected a file") from None
    except FileNotFoundError:
        raise HloError("file", f"{name} does not exist, expected a file") from None
    except OSError as error:
        raise HloError("file", f"{name} cannot be read: {error.strerror or error}") from None
    except ValueError:  # NUL
        raise HloError("file", f"{name!r} is no file name") from None


def read_head(path: str, size: int) -> bytes:
    """The first bytes of a file; none of one that cannot be read."""
    try:
        with Path(path).open("rb", buffering=0) as stream:
            return stream.read(size)
    except OSError:
        return b""


def write_text(path: str, text: str) -> None:
    """Write a text file whole or not at all; `-` is standard output, where a terminal gets no
    control characters."""
    if path == "-":
        hide()
        sys.stdout.write(shown_lines(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()
        return
    from hlo.tools.files.writing import write_file

    write_file(path, lambda stream: stream.write(text.encode("utf-8", "surrogateescape")))


def write_bytes(path: str, data: bytes) -> None:
    """Write a binary file whole or not at all; `-` is standard output."""
    if path == "-":
        hide()
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    from hlo.tools.files.writing import write_file

    write_file(path, lambda stream: stream.write(data))
