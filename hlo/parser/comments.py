"""The comments of a text: what stands between tokens and is no blank."""

from __future__ import annotations

import re

from msgspec import Struct

from hlo.parser.lexer import END, Lexer

# `/*index=5*/` and `/*i0=0*/` are left out: the printer writes those itself.
_COMMENT = re.compile(r"/\*(?!index=\d+\*/|i\d+=\d+\*/)(?s:.*?)\*/|//[^\r\n]*")
_PRINTED = re.compile(r"/\*(?:index|i\d+)=\d+\*/")


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
        for match in _COMMENT.finditer(text, at, token.start_pos):
            line = text.rfind("\n", 0, match.start()) + 1
            found.append(Comment(match[0], *match.span(), line >= at))
        if token.type == END:
            return found
        at, previous = token.end_pos, token.type
