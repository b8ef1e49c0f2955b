"""The comments of a text: what stands between tokens and is no blank."""

from __future__ import annotations

import re

from msgspec import Struct

from hlo.parser.lexer import END, Lexer
from hlo.parser.terminals import pattern

_PRINTED = re.compile(r"/\*(?:index|i\d+)=\d+\*/")  # `/*index=5*/`, `/*i0=0*/`


class Comment(Struct, frozen=True):
    """text: with its marks. starts_line: nothing but blanks and comments stands before it there."""

    text: str
    start: int
    end: int
    starts_line: bool


def comments(text: str) -> list[Comment]:
    """All comments in the order of the text, those that the printer writes itself left out."""
    if "//" not in text and len(_PRINTED.findall(text)) == text.count("/*"):
        return []  # dumps are large and hold none
    found: list[Comment] = []
    lexer, at, previous = Lexer(text), 0, ""
    while True:
        token = lexer.token(at, previous)
        for match in pattern("@COMMENT").finditer(text, at, token.start_pos):
            if _PRINTED.fullmatch(match[0]):
                continue
            line = text.rfind("\n", 0, match.start()) + 1
            found.append(Comment(match[0], *match.span(), line >= at))
        if token.type == END:
            return found
        at, previous = token.end_pos, token.type
