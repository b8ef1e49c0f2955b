"""Attributes of a typed FFI call: the text of `backend_config`, as values of known types.

{index = 0 : ui64, name = "x", sizes = array<i32: 1, 2>, inner = {flag = true}}
"""

from __future__ import annotations

import re

import numpy as np

from hlo.attributes.escape import unquoted
from hlo.errors import HloError

DEEPEST = 16  # dictionaries in one another
TYPES = {
    "i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "si8": "int8",
    "si16": "int16", "si32": "int32", "si64": "int64", "ui8": "uint8", "ui16": "uint16",
    "ui32": "uint32", "ui64": "uint64", "f16": "float16", "f32": "float32", "f64": "float64",
}  # fmt: skip
TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<array>array<(?P<type>\w+)(?::(?P<items>[^>]*))?>)'
    r"|(?P<word>[A-Za-z_][\w.$\-]*)|(?P<number>[-+]?[\d.][\w.+\-]*)|(?P<sign>[{}=:,]))"
)
Attribute = str | np.ndarray | dict[str, "Attribute"]  # a scalar is an array of rank 0


def ffi_attributes(text: str) -> dict[str, Attribute]:
    """The attributes that a text says. Raises HloError where it is none."""
    if not text.strip():
        return {}
    reader = _Reader(text)
    found = reader.dictionary(0)
    reader.take("")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._kind, self._word = "", ""
        self._next()

    def _next(self) -> None:
        match = TOKEN.match(self._text, self._at)
        if match is None:
            self._kind, self._word = "end", self._text[self._at :].strip()
            return
        self._match, self._at = match, match.end()
        self._kind = "array" if match["array"] else str(match.lastgroup)
        self._word = match[self._kind]

    def take(self, word: str) -> None:
        """Go on behind a sign. Raises HloError where another one stands."""
        if self._word != word:
            shown = self._word or "the end"
            what = f"backend_config of an FFI call: {shown}, expected {word or 'the end'}"
            raise HloError("attribute-value", what)
        if word:
            self._next()

    def dictionary(self, depth: int) -> dict[str, Attribute]:
        """Names and values in braces. Calls itself for DEEPEST levels."""
        if depth > DEEPEST:
            raise HloError("limit", f"FFI attributes in {depth} others, expected {DEEPEST} at most")
        self.take("{")
        found: dict[str, Attribute] = {}
        while self._word != "}":
            name = unquoted(self._word) if self._kind == "string" else self._word
            if self._kind not in ("word", "string"):
                self.take("a name")
            self._next()
            if self._word == "=":
                self._next()
                found[name] = self._value(depth)
            else:
                found[name] = np.array(True)  # a name alone is a flag
            if self._word != "}":
                self.take(",")
        self.take("}")
        return found

    def _value(self, depth: int) -> Attribute:
        if self._word == "{":
            return self.dictionary(depth + 1)
        kind, word, match = self._kind, self._word, self._match
        if kind not in ("string", "array", "word", "number"):
            self.take("a value")
        self._next()
        if kind == "string":
            return unquoted(word)
        if kind == "array":
            items = [item.strip() for item in (match["items"] or "").split(",") if item.strip()]
            return _numbers(match["type"], items)
        suffix = ""
        if self._word == ":":
            self._next()
            suffix = self._word
            self._next()
        if word in ("true", "false"):
            return np.array(word == "true")
        default = "i64" if re.fullmatch(r"[-+]?\d+", word) else "f64"
        return _numbers(suffix or default, [word]).reshape(())


def _numbers(kind: str, items: list[str]) -> np.ndarray:
    if kind not in TYPES:
        raise HloError(
            "unsupported", f"an FFI attribute of type {kind}, expected {', '.join(TYPES)}"
        )
    words = {"true": "1", "false": "0"}
    try:
        is_float = kind.startswith("f")
        values = [float(w) if is_float else int(words.get(w, w), 0) for w in items]
        return np.array(values, TYPES[kind])
    except (ValueError, OverflowError):
        shown = ", ".join(items)[:60]
        raise HloError("attribute-value", f"FFI attribute {shown}, expected {kind}") from None
