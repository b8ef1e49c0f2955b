"""Program: a module from a file, with what was recorded of a run of it; and files that are plain.

Light, for most files are plain HLO text: other forms import their readers (hlo/formats/reading.py).
"""

from __future__ import annotations

import os
import re

from msgspec import Struct

from hlo.ir.module import Module
from hlo.parser.parse import parse
from hlo.tools.files.reading import decode, read_bytes

# A line that begins a module, perhaps behind what a log puts before each line.
HEADER = re.compile(r"^(?:[^\n]*\] ?)?HloModule[ \t]", re.MULTILINE)


class Program(Struct, frozen=True):
    """A module, and what was recorded of its run where the file is a snapshot of one.

    arguments: a value each, arrays or nested tuples; result likewise.
    """

    module: Module
    arguments: tuple[object, ...] | None = None
    result: object = None


def plain_text(data: bytes) -> str | None:
    """The text where bytes are HLO text of one module that begins with its header; else None."""
    if not data.lstrip().startswith((b"HloModule", b"//", b"/*")):
        return None
    text = decode(data)
    heads = list(HEADER.finditer(text))
    return text if len(heads) == 1 and heads[0].group().startswith("HloModule") else None


def shown_name(path: str) -> str:
    """What errors call a path."""
    return "<stdin>" if path == "-" else path


def read_plain(path: str) -> tuple[Program | None, bytes]:
    """The program of a plain file; else None, and the file's bytes, none of a folder."""
    if path != "-" and os.path.isdir(path):
        return None, b""
    data = read_bytes(path)
    text = plain_text(data)
    return (None if text is None else Program(parse(text, shown_name(path)))), data
