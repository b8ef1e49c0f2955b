"""The tokens of a text as text: --emit=tokens."""

from __future__ import annotations

from hlo.parser.lexer import END, Lexer


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
