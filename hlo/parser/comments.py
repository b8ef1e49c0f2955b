"""The comments of a text: what stands between tokens and is no blank."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from hlo.parser.lexer import END, Lexer, Token
from hlo.parser.terminals import pattern

_OPENING, _CLOSING = ("LBRACE", "LAYOUT"), ("RBRACE",)
_PRINTED = re.compile(r"/\*(?:index|i\d+)=\d+\*/")  # `/*index=5*/`, `/*i0=0*/`


class Comment(Struct, frozen=True):
    """A comment, and where it stands.

    text: with its marks. starts_line: nothing but blanks and comments stands before it there.
    """

    text: str
    start: int
    end: int
    starts_line: bool


def comments(text: str) -> list[Comment]:
    """All comments in the order of the text, those that the printer writes itself left out."""
    if "//" not in text and len(_PRINTED.findall(text)) == text.count("/*"):
        return []  # dumps are large and hold none
    found: list[Comment] = []
    at = 0
    for token in _tokens(Lexer(text)):
        for match in pattern("@COMMENT").finditer(text, at, token.start_pos):
            if _PRINTED.fullmatch(match[0]):
                continue
            line = text.rfind("\n", 0, match.start()) + 1
            found.append(Comment(match[0], *match.span(), line >= at))
        at = token.end_pos
    return found


def _tokens(lexer: Lexer) -> Iterator[Token]:
    """All tokens and the end; a raw dict, in which nothing is a comment, is one."""
    at, previous = 0, ""
    depth, pairs = 0, -1  # pairs: the depth within frontend_attributes, whose values may be dicts
    while previous != END:
        token = lexer.token(at, previous)
        yield token
        at, previous = token.end_pos, token.type
        depth += (previous in _OPENING) - (previous in _CLOSING)
        pairs = pairs if depth >= pairs else -1
        if previous != "ATTR":
            continue
        is_dict = token.value == "backend_config=" or depth == pairs
        if is_dict and (raw := lexer.dict(at)) is not None:
            yield raw
            at, previous = raw.end_pos, raw.type
        elif token.value == "frontend_attributes=":
            pairs = depth + 1
