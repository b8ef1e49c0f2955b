"""Quoted text: C escapes in both directions, and which texts are raw JSON dicts.

A string is held decoded as UTF-8 with surrogate escapes, so that any bytes survive.
"""

from __future__ import annotations

import re
from functools import lru_cache

from hlo.errors import Violation

# Patterns that few texts need are texts here: `re` compiles and remembers them at first use.
_ESCAPE = (
    rb"\\(?:([abfnrtv\\?'\"])|([0-7]{1,3})|x([0-9a-fA-F]+)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)"
)
_SIMPLE = dict(zip(b"abfnrtv\\?'\"", b"\a\b\f\n\r\t\v\\?'\"", strict=True))
_PLAIN = r"[ !#-&(-\[\]-~]*"  # printable ASCII without quotes and backslash
_BYTES = tuple(
    {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}.get(b)
    or (chr(b) if 0x20 <= b < 0x7F else f"\\{b:03o}")
    for b in range(256)
)


@lru_cache(maxsize=65536)
def quoted(text: str) -> str:
    """The text between double quotes, every byte that is not plain escaped (docs/text.md 5.3)."""
    if re.fullmatch(_PLAIN, text):
        return f'"{text}"'
    return f'"{escaped(text)}"'


def escaped(text: str) -> str:
    """The text with C escapes, octal for bytes that are not ASCII."""
    return "".join([_BYTES[b] for b in text.encode("utf-8", "surrogateescape")])


def unquoted(token: str) -> str:
    """The contents of a String token with its quotes; docs/text.md 1.4."""
    inner = token[1:-1]
    if "\\" not in inner:
        return inner
    decoded = re.sub(_ESCAPE, _unescape, inner.encode("utf-8", "surrogateescape"))
    return decoded.decode("utf-8", "surrogateescape")


def _unescape(match: re.Match[bytes]) -> bytes:
    simple, octal, hexa, short, long = match.groups()
    if simple:
        return bytes([_SIMPLE[simple[0]]])
    code = int(octal, 8) if octal else int(hexa, 16) if hexa else -1
    if 0 <= code <= 0xFF:
        return bytes([code])
    point = int(short or long or b"ffffffff", 16)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise Violation(
            "attribute-value", "", f"the escape {match.group().decode()}", "a C escape sequence"
        )
    return chr(point).encode()


_UNFIT = r"[\0\ud800-\udfff]"
_BLANK = r"(?s:[ \t\r\n]|/\*.*?\*/|//[^\r\n]*)*"


@lru_cache(maxsize=16384)
def is_raw_dict(text: str, *, alone: bool = False) -> bool:
    """Whether the text lexes as one `{...}` with nothing but blanks and comments around it.

    alone: nothing at all around it, and no character that a text cannot hold.
    """
    if alone and (not (text.startswith("{") and text.endswith("}")) or re.search(_UNFIT, text)):
        return False
    match = re.match(_BLANK, text)
    start = match.end() if match else 0
    if not text.startswith("{", start):
        return False
    end = dict_end(text, start)
    return end > 0 and re.fullmatch(_BLANK, text[end:]) is not None


_DICT_PART = r'(?s:[^{}"]+|"(?:[^"\\]|\\.)*"|[{}])'


def dict_end(text: str, start: int) -> int:
    """Where the dict that starts at `start` ends: nested braces counted, strings skipped; or -1."""
    next_part = re.compile(_DICT_PART).match
    depth, at = 0, start
    while match := next_part(text, at):
        at = match.end()
        part = match.group()
        depth += (part == "{") - (part == "}")
        if not depth:
            return at
    return -1
