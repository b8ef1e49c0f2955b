"""The grammar's terminals as regular expressions, alone and joined to larger ones.

    "@IDENT = (@INT)" --pattern--> the compiled expression, with what hlo.lark says in their places

Nothing else in this package says what a token looks like.
"""

from __future__ import annotations

import re
import sys

from hlo.ir.dtype import DTYPES
from hlo.parser.tables import tables
from hlo.process.once import once

BLANK = "BLANK"  # in a template: what may stand between two tokens
SHORT_INT = "(?!-?[0-9]{10})@INT"  # a template: it fits 32 bits
_PLACE = re.compile("@([A-Z_]+)")
# Before Python 3.11.5 a group that gives nothing back, and whose last try fails in its middle, ends
# where it failed (python/cpython#106052): `(?:ab)*+` matches "a". Those that may give back find the
# same here, where no text is matched in two ways; they only remember more.
_FORGETS_PLACES = sys.version_info < (3, 11, 5)
_KEEPING_GROUP = re.compile(r"(?<!\\)\)([*+?])\+")


@once
def pattern(template: str) -> re.Pattern[str]:
    """A regular expression in which `@NAME` stands for a terminal."""
    expression = _PLACE.sub(lambda place: f"(?:{_expression(place[1])})", template)
    return re.compile(giving_back(expression) if _FORGETS_PLACES else expression)


def giving_back(expression: str) -> str:
    """The same with groups that may give back what they took."""
    return _KEEPING_GROUP.sub(r")\1", expression)


def _expression(name: str) -> str:
    patterns = tables().patterns
    if name == BLANK:
        return f"(?:{'|'.join(patterns[ignored] for ignored in tables().ignored)})*+"
    return patterns[name]


@once
def words() -> dict[str, str]:
    """Identifiers that are no IDENT, with their terminals."""
    found = {text: kind for kind, text in tables().words.items() if text.isidentifier()}
    return {**found, **dict.fromkeys(DTYPES, "TYPE"), "nan": "DECIMAL"}


@once
def punctuation() -> dict[str, str]:
    """Signs with their terminals, the longer ones first."""
    signs = [(text, kind) for kind, text in tables().words.items() if not text.isidentifier()]
    return dict(sorted(signs, key=lambda sign: -len(sign[0])))
