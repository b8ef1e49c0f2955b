"""Metadata as XLA prints it, read by one pattern: most lines of a dump have a text of their own.

What is written otherwise (commas, another order, profile types, numbers of more digits, ...) is
left to the grammar, rule kind_metadata.
"""

from __future__ import annotations

import re

from hlo.attributes.escape import unquoted
from hlo.attributes.metadata import Metadata
from hlo.errors import Violation

_STRING = r'("[^"\\\n\r]*+(?:\\[^\n\r][^"\\\n\r]*+)*+")'
_INT = r"([0-9]{1,9})"
_FIELDS = (
    ("op_type", _STRING),
    ("op_name", _STRING),
    ("source_file", _STRING),
    ("source_line", _INT),
    ("source_end_line", _INT),
    ("source_column", _INT),
    ("source_end_column", _INT),
    ("scheduling_name", _STRING),
    ("stack_frame_id", _INT),
)
_METADATA = re.compile(
    r", metadata=\{" + "".join(rf"(?: ?{key}={value})?+" for key, value in _FIELDS) + r"\}"
)
_KEYS = tuple(key for key, _ in _FIELDS)
_IS_STRING = tuple(value is _STRING for _, value in _FIELDS)


def plain_metadata(text: str) -> Metadata | None:
    """What `, metadata={...}` says; None where it is written otherwise or not right."""
    match = _METADATA.fullmatch(text)
    if match is None:
        return None
    found: dict[str, str | int] = {}
    try:
        for key, is_string, value in zip(_KEYS, _IS_STRING, match.groups(), strict=True):
            if value is not None:
                found[key] = unquoted(value) if is_string else int(value)
    except Violation:
        return None
    return Metadata(**found)  # type: ignore[arg-type]  # each key with a value of its own type
