"""The tokens of a text as text: --emit=tokens."""

from __future__ import annotations

import re

from hlo.parser.lexer import END, Lexer

COMMENT = re.compile(r"/\*(?!index=\d+\*/|i\d+=\d+\*/)|//")


def print_tokens(text: str) -> str:
    """One line a token: line:column, kind, characters. A bad token is shown as ERROR."""
    lexer = Lexer(text)
    rows: list[str] = []
    at, previous = 0, ""
    line, line_start, seen = 1, 0, 0
    while True:
        token = lexer.token(at, previous)
        if token.type == END:
            return "\n".join(rows) + "\n"
        breaks = text.count("\n", seen, token.start_pos)
        if breaks:
            line, line_start = line + breaks, text.rfind("\n", seen, token.start_pos) + 1
        seen = token.start_pos
        rows.append(f"{line}:{seen - line_start + 1}\t{token.type}\t{token.value}")
        at, previous = token.end_pos, token.type


def count_comments(text: str) -> int:
    """Comments between tokens, `/*index=5*/` and `/*i0=0*/` left out: the printer writes those."""
    lexer, at, previous, count = Lexer(text), 0, "", 0
    while True:
        token = lexer.token(at, previous)
        count += len(_comments(text[at : token.start_pos]))
        if token.type == END:
            return count
        at, previous = token.end_pos, token.type


def _comments(gap: str) -> list[str]:
    """The starts of the comments in what stands between two tokens."""
    found, at = [], 0
    while match := COMMENT.search(gap, at):
        found.append(match[0])
        ending = "*/" if match[0] == "/*" else "\n"
        end = gap.find(ending, match.end())
        if end < 0:
            break
        at = end + len(ending)
    return found
