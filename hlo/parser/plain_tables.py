"""Stack frame tables as XLA prints them, read by patterns: dumps have thousands of rows.

Anything that is not printed exactly so is left to the grammar (rule `tables`).
"""

from __future__ import annotations

import re

from hlo.attributes.stack_frames import FileLocation, StackFrame, StackFrames
from hlo.parser.lexer import BLANK

_INT = "[0-9]{1,9}"
_STRING = r'"([^"\\\n]*)"'
_NAMED = rf'((?:{_INT} "[^"\\\n]*"\n)*+)'
_PLACE = (
    rf"{_INT} \{{file_name_id=({_INT}) function_name_id=({_INT}) line=({_INT}) "
    rf"end_line=({_INT}) column=({_INT}) end_column=({_INT})\}}\n"
)
_FRAME = rf"{_INT} \{{file_location_id=({_INT}) parent_frame_id=({_INT})\}}\n"
_TABLES = (
    rf"FileNames\n{_NAMED}{BLANK}FunctionNames\n{_NAMED}"
    rf"{BLANK}FileLocations\n((?:{_INT} \{{[a-z0-9_= ]*+\}}\n)*+)"
    rf"{BLANK}StackFrames\n((?:{_INT} \{{[a-z0-9_= ]*+\}}\n)*+)"
)


def plain_tables(text: str, at: int) -> tuple[StackFrames, int] | None:
    """The tables that begin at a place, and where they end; None where they look otherwise."""
    match = re.compile(_TABLES).match(text, at)  # compiled when the first dump has tables
    if match is None:
        return None
    files, functions, locations, frames = match.groups()
    places = re.findall(_PLACE, locations)
    calls = re.findall(_FRAME, frames)
    if len(places) != locations.count("\n") or len(calls) != frames.count("\n"):
        return None
    tables = StackFrames(
        tuple(re.findall(_STRING, files)),
        tuple(re.findall(_STRING, functions)),
        tuple(FileLocation(*map(int, row)) for row in places),
        tuple(StackFrame(int(location), int(parent) - 1) for location, parent in calls),
    )
    return tables, match.end()
