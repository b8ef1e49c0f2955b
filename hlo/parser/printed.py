"""Long pieces as XLA prints them, read by patterns instead of a step of the machine for each token.

    metadata (most lines of a dump have one of their own), stack frame tables (thousands of rows),
    literals of finite numbers in plain braces (a million elements: 0.2 us each)

The patterns are joined of the grammar's terminals. Each takes a part of what its rule allows; the
rest, and what is wrong, is None and left to the grammar, which takes ten microseconds a token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hlo.attributes.escape import unquoted
from hlo.attributes.metadata import Metadata, metadata_of
from hlo.attributes.stack_frames import FRAME, LOCATION, StackFrames, stack_frames
from hlo.errors import Violation
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.parser.literals import integers, rounded, stored
from hlo.parser.terminals import SHORT_INT, pattern

METADATA = ", metadata={"
_FIELD = rf"(@IDENT)@EQUAL(@STRING|{SHORT_INT})"
_FIELDS = rf"{re.escape(METADATA)}((?:(?:@COMMA)? ?@ATTR(?:@STRING|{SHORT_INT}))*+)@RBRACE"
_NAME = rf"(?m)^{SHORT_INT} (@STRING)$"
_SECTIONS = "".join(
    rf"@BLANK@{section}\n((?:[^\n]*{end}\n)*+)"
    for section, end in (
        ("FILE_NAMES", '"'),
        ("FUNCTION_NAMES", '"'),
        ("FILE_LOCATIONS", r"\}"),
        ("STACK_FRAMES", r"\}"),
    )
)
_INTEGER = "(?!-?[0-9]{19})@INT"  # fits 64 bits
# Elements between the braces and commas of arrays, whose order _skeleton says.
_WHOLE, _NUMBERS = (
    rf"\{{*+(?:{element})(?:\}}*+,\{{*+(?:{element}))*+\}}*+"
    for element in (_INTEGER, rf"(?!-?n)@DECIMAL|{_INTEGER}")
)
_SIGNS = dict.fromkeys(set(range(128)) - set(map(ord, "{},")))
_NO_BRACES = dict.fromkeys(map(ord, "{}"))


def printed_metadata(text: str) -> Metadata | None:
    """What `, metadata={...}` says."""
    match = pattern(_FIELDS).fullmatch(text)
    if match is None:
        return None
    found: dict[str, str | int] = {}
    try:
        for key, value in pattern(_FIELD).findall(match[1]):
            if key in found:
                return None
            found[key] = unquoted(value) if value[0] in "\"'" else int(value)
    except Violation:
        return None
    return metadata_of(found)


def printed_tables(text: str, at: int) -> tuple[StackFrames, int] | None:
    """The stack frame tables that begin at a place, and where they end."""
    match = pattern(_SECTIONS).match(text, at)
    if match is None:
        return None
    patterns = (_NAME, _NAME, _row(LOCATION), _row(FRAME))
    sections = [pattern(p).findall(s) for p, s in zip(patterns, match.groups(), strict=True)]
    if any(len(f) != s.count("\n") for f, s in zip(sections, match.groups(), strict=True)):
        return None
    files, functions, locations, frames = sections
    try:
        names = list(map(unquoted, files)), list(map(unquoted, functions))
    except Violation:
        return None
    return stack_frames(*names, _numbers(locations), _numbers(frames)), match.end()


def _row(keys: Sequence[str]) -> str:
    fields = " ".join(f"{key}@EQUAL({SHORT_INT})" for key in keys)
    return rf"(?m)^{SHORT_INT} @LBRACE{fields}@RBRACE$"


def _numbers(rows: list[tuple[str, ...]]) -> list[list[int]]:
    return [list(map(int, row)) for row in rows]


def printed_literal(text: str, shape: Shape) -> Literal | None:
    """The literal of an array. Raises Violation: out of range."""
    if not shape.is_array or not (shape.dtype.is_integral or shape.dtype.is_float):
        return None
    if not 0 < shape.size <= len(text) or min(shape.dims, default=1) < 1:
        return None
    compact = text.replace(", ", ",").replace("{ ", "{").replace(" }", "}")
    if not compact.isascii() or compact.translate(_SIGNS) != _skeleton(shape.dims):
        return None
    form = _WHOLE if shape.dtype.is_integral else _NUMBERS
    if pattern(form).fullmatch(compact) is None:
        return None
    row = compact.translate(_NO_BRACES)
    if shape.dtype.is_integral:
        flat = integers(shape.dtype, np.fromstring(row, dtype=np.int64, sep=","))
    else:
        doubles = np.fromstring(row, dtype=np.float64, sep=",")
        if not np.isfinite(doubles).all():
            return None
        flat = rounded(shape.dtype, _without_integers(row, doubles))
    kept = stored(shape)
    return Literal.of(flat.reshape(kept.dims), kept)


def _without_integers(row: str, doubles: np.ndarray) -> np.ndarray:
    """The elements' values; `-0` is an integer and means +0."""
    if "-0," in row or row.endswith("-0"):
        zeros = [n for n, element in enumerate(row.split(",")) if element == "-0"]
        doubles[zeros] = 0.0
    return doubles


def _skeleton(dims: tuple[int, ...]) -> str:
    """The braces and commas of an array."""
    text = ""
    for size in reversed(dims):
        text = "{" + ",".join([text] * size) + "}"
    return text
