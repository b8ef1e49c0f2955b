"""The precise lexer: text -> tokens, to the letter of docs/text.md 1.

A token's `value` is its text (a STRING with its quotes, a NAME with its `%` or `:`, an ATTR with
its `=`). What no rule matches is an ERROR token, which no grammar rule accepts. Three tokens exist
for the grammar's sake, because one token of look-ahead does not tell them apart: LAYOUT (the `{` of
a layout: after `]`, before an INT or `:`), BUFFER (the `b` before `(`), and DICT, lexed on request.
A plain array shape such as `f32[2,3]{1,0}` is one token, SHAPE.
"""

from __future__ import annotations

import re
from functools import lru_cache

from hlo.attributes.escape import dict_end, unquoted
from hlo.errors import Violation
from hlo.ir.dtype import DTYPES
from hlo.ir.layout import Layout
from hlo.ir.shape import Shape
from hlo.parser.stacks import END as END
from hlo.parser.terminals import pattern, punctuation, words
from hlo.process.once import once


class Token:
    """A terminal with its text and its place."""

    __slots__ = ("end_pos", "start_pos", "type", "value")

    def __init__(self, type: str, value: str, start: int, end: int) -> None:
        self.type = type
        self.value = value
        self.start_pos = start
        self.end_pos = end

    def __repr__(self) -> str:
        return f"<{self.type} {self.value!r}>"


_PUNCTUATION, _QUESTION = "PUNCTUATION", "QUESTION"
# In the order in which they are tried: an INT is the beginning of most of those before it, and
# DIM_LABELS may begin with a QUESTION.
_TRIED = ("STRING", "DECIMAL", "DIM_LABELS", "DXD", "PAD", "INT", "NEG_INF", _QUESTION)
_DIGITS = re.compile(r"-?[0-9]{19,}")


@once
def _token() -> re.Pattern[str]:
    """Blanks, then one token, in a group named after what is known of it."""
    signs = "|".join(f"@{kind}" for kind in punctuation().values() if kind != _QUESTION)
    others = "".join(f"|(?P<{kind}>@{kind})" for kind in _TRIED)
    word = f"(?P<WORD>@IDENT)|(?P<NAME>%@IDENT)|(?P<{_PUNCTUATION}>{signs})"
    return pattern(rf"@BLANK(?:{word}{others}|(?P<ERROR>(?s:.)))?")


class Lexer:
    """Tokens of one text, one at a time; the caller holds the position."""

    __slots__ = ("_match", "_signs", "_words", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._match = _token().match
        self._signs = punctuation()
        self._words = words()

    def token(self, at: int, previous: str = "") -> Token:
        """The token at or after a place; `previous` is the type of the one before it."""
        match = self._match(self.text, at)
        assert match is not None, "blanks and nothing always match"
        kind = match.lastgroup
        if kind is None:
            return Token(END, "", match.end(), match.end())
        value = match[kind]
        start, end = match.span(kind)
        if kind == "WORD":
            if value == "T" and previous == "RSQB" and self._opens_parenthesis(end):
                return Token("TRANSPOSED", value, start, end)  # of an iota
            return self._word(value, start, end)
        if kind == _PUNCTUATION:
            kind = self._signs[value]
            if kind == "LBRACE" and previous == "RSQB" and self._opens_layout(end):
                kind = "LAYOUT"
        elif kind == "STRING":
            if "\\" in value and not _well_escaped(value):
                kind = "ERROR"
        elif kind != "NAME":
            if not _is_in_range(kind, value):
                kind = "ERROR"
            elif kind == "INT" and len(value) > 20:
                value = str(_number(value))  # zeros in front: Python converts no endless digits
        return Token(kind, value, start, end)

    def dict(self, at: int) -> Token | None:
        """The raw JSON dict at or after a place, if the next character is `{`."""
        match = self._match(self.text, at)
        assert match is not None, "blanks and nothing always match"
        if match[_PUNCTUATION] != "{":
            return None
        start = match.start(_PUNCTUATION)
        end = dict_end(self.text, start)
        if end < 0:
            return Token("ERROR", "{", start, start + 1)
        return Token("DICT", self.text[start:end], start, end)

    def _word(self, value: str, start: int, end: int) -> Token:
        """An identifier-like token, by the seven rules of section 1.3."""
        text = self.text
        following = text[end : end + 1]
        if following == ":":
            return Token("NAME", text[start : end + 1], start, end + 1)
        if following == "=":
            return Token("ATTR", text[start : end + 1], start, end + 1)
        kind = self._words.get(value)
        if kind == "DECIMAL":
            match = pattern("@DECIMAL").match(text, start)
            assert match is not None, "it starts with nan"
            kind = kind if _is_in_range("DECIMAL", match[0]) else "ERROR"
            return Token(kind, match[0], start, match.end())
        if kind is not None:
            if kind == "TYPE" and following == "[":
                plain = pattern("@SHAPE").match(text, start)
                if plain is not None and plain_shape(plain[0]) is not None:
                    return Token("SHAPE", plain[0], start, plain.end())
            return Token(kind, value, start, end)
        if following in (">", "?") and (match := pattern("@DIM_LABELS").match(text, start)):
            return Token("DIM_LABELS", match[0], start, match.end())
        if value == "b" and self._opens_parenthesis(end):
            return Token("BUFFER", value, start, end)
        return Token("IDENT", value, start, end)

    def _opens_parenthesis(self, at: int) -> bool:
        match = self._match(self.text, at)
        return match is not None and match[_PUNCTUATION] == "("

    def _opens_layout(self, at: int) -> bool:
        return self.token(at).type in ("INT", "COLON")


@lru_cache(maxsize=1 << 15)
def plain_shape(text: str) -> Shape | None:
    """The shape that a SHAPE says, each text read once; None for another form, or a wrong one."""
    match = pattern("@SHAPE").match(f"{text},")  # whatever follows a whole text, no layout does
    if match is None or match.end() != len(text):
        return None
    name, _, rest = text.partition("[")
    sizes, _, order = rest.partition("]")
    dtype = DTYPES.get(name)
    if dtype is None or not dtype.is_array:
        return None
    dims = tuple(map(int, sizes.split(","))) if sizes else ()
    if not order:
        return Shape.array(dtype, dims)
    minor_to_major = tuple(map(int, order[1:-1].split(",")))
    if len(minor_to_major) != len(dims):
        return None
    return Shape.array(dtype, dims, layout=Layout(minor_to_major))


def _well_escaped(value: str) -> bool:
    try:
        unquoted(value)
    except Violation:
        return False
    return True


def _is_in_range(kind: str, value: str) -> bool:
    """Whether a number is one that the language can store (section 1.5)."""
    if kind == "INT":
        return len(value) < 19 or _int_fits(value)
    if kind == "DECIMAL" and "(" in value:
        digits = value[value.index("x") + 1 : -1].lstrip("0")
        return 0 < len(digits) <= 13
    if kind in ("PAD", "DXD"):
        runs = _DIGITS.findall(value)
        return all(len(n) < 1000 and -(1 << 63) <= _number(n) < 1 << 63 for n in runs)
    return True


def _int_fits(value: str) -> bool:
    return -(1 << 63) <= _number(value) < 1 << 64


def _number(value: str) -> int:
    """The value of a run of digits; of a hopelessly long one, something out of range."""
    digits = value.lstrip("-").lstrip("0")
    number = int(digits or "0") if len(digits) <= 20 else 1 << 70
    return -number if value.startswith("-") else number
