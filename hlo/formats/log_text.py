"""HLO text as logs and dumps have it: with a prefix on each line, several modules in one file.

text --modules_in--> (name, text) of each module, whose lines keep their numbers
"""

from __future__ import annotations

import re

from msgspec import Struct

# What absl and older logs write: `I0101 12:00:00.000000 1234 file.cc:56] `, and
# `2026-01-01 12:00:00.000000: I xla/service/file.cc:56] `.
PREFIX = (
    r"(?:[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ [^\]\n]*\] ?"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] [^\]\n]*\] ?)"
)
LINE_PREFIX = re.compile(rf"^{PREFIX}", re.MULTILINE)
HEAD = re.compile(r"^HloModule[ \t]+(?P<name>[^\s,]+)", re.MULTILINE)
LAST_LINE = re.compile(r"^\}[^\n]*$", re.MULTILINE)


class TextModule(Struct, frozen=True):
    """A module's name as its header has it, and its text."""

    name: str
    text: str


def modules_in(text: str) -> list[TextModule]:
    """The modules of a text, each on the lines where it stood; one without a header as it is."""
    plain = LINE_PREFIX.sub("", text) if LINE_PREFIX.search(text) else text
    heads = list(HEAD.finditer(plain))
    if not heads or (plain is text and len(heads) == 1):
        return [TextModule(heads[0]["name"] if heads else "", text)]
    found = []
    ends = [head.start() for head in heads[1:]] + [len(plain)]
    for head, end in zip(heads, ends, strict=True):
        closing = [match.end() for match in LAST_LINE.finditer(plain, head.start(), end)]
        lines = plain.count("\n", 0, head.start())
        body = plain[head.start() : closing[-1] if closing else end]
        found.append(TextModule(head["name"], "\n" * lines + body + "\n"))
    return found
