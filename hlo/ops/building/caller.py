"""Where the Builder's caller stands: the Python line that an error points at."""

from __future__ import annotations

import linecache
import os
import sys
from itertools import islice
from pathlib import Path
from types import FrameType

from hlo.errors import HloError, Violation
from hlo.source import Source, Span

_HERE = str(Path(__file__).parents[1]) + os.sep  # hlo/ops: the builder itself


def caller_span() -> Span | None:
    """The expression of the nearest frame outside the builder."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return None if frame is None else _span(frame)


def _span(frame: FrameType) -> Span:
    name = frame.f_code.co_filename
    positions = frame.f_code.co_positions()
    line, last, start, end = next(islice(positions, frame.f_lasti // 2, None))
    line = line or frame.f_lineno
    lines = linecache.getlines(name, frame.f_globals)
    if len(lines) < line:  # typed in, or compiled from a string: no text to show
        return Span(Source(name, "\n" * line), line - 1, line - 1)
    before = sum(map(len, lines[: line - 1]))
    row = lines[line - 1]
    from_, to = _characters(row, start or 0), len(row.rstrip())
    if last == line and end is not None:
        to = _characters(row, end)
    return Span(Source(name, "".join(lines)), before + from_, before + to)


def _characters(row: str, column: int) -> int:
    """Code positions count bytes of UTF-8; spans count characters."""
    return len(row.encode()[:column].decode(errors="ignore"))


def error(code: str, message: str, help: str = "") -> HloError:
    """An error that points at the caller's line."""
    return HloError(code, message, caller_span(), help=help)


def error_of(opcode: str, violation: Violation) -> HloError:
    """A broken rule, said of the instruction that the caller asked for."""
    label = f" ({violation.constraint})" if violation.constraint else ""
    at = f"{violation.at} is " if violation.at else ""
    message = f"{opcode}: {at}{violation.found}, expected {violation.expected}{label}"
    return error(violation.code, message, violation.help)
