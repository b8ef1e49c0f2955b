"""Standard streams as commands need them: text is UTF-8, and a closed one fails as files fail.

Python gives a closed stream as None, and its number to the next file that is opened, which would
then get what C code writes. Here its number stays taken, by the null device opened the wrong way
round: what is written to a closed output, or read from a closed input, is the system's error.
"""

from __future__ import annotations

import io
import os
import sys

_STREAMS = (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))


def settle_streams() -> None:
    """Fills in closed streams; for the process's own ones, once."""
    for name, wrong_way, mode in _STREAMS:
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, wrong_way)  # the lowest free number: its own
            setattr(sys, name, open(handle, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # open to the end
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files may be any bytes
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def discard(stream: object) -> None:
    """Lose what a stream could not write: the interpreter's end would try it again."""
    try:
        number = stream.fileno()  # type: ignore[attr-defined]  # tried: not all streams are files
        null = os.open(os.devnull, os.O_WRONLY)
    except (AttributeError, OSError, ValueError):
        return
    os.dup2(null, number)
    os.close(null)
