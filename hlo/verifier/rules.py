"""The pages of the verifier's rules: `hlo-opt explain V20`.

rules.hlo --pages--> label -> what has to hold, a program that breaks it
"""

from __future__ import annotations

import re
from importlib.resources import files

from msgspec import Struct

from hlo.process.once import once

_LABEL = re.compile(r"// ([\w-]+): ")
_SEPARATOR = "// -----\n"


class RulePage(Struct, frozen=True):
    """The page of a rule in the manual.

    meaning: a sentence; program: a text that breaks the rule, empty where none is short.
    """

    meaning: str
    program: str


def rule_pages() -> dict[str, RulePage]:
    """The rules' pages by label."""
    return {label: page for label, page in _pages().items() if label.startswith("V")}


def broken_programs() -> list[str]:
    """Texts that break a rule or the language, for those who look for an error's example."""
    return [page.program for page in _pages().values() if page.program]


@once
def _pages() -> dict[str, RulePage]:
    text = files(__package__).joinpath("rules.hlo").read_text("utf-8")
    found = {}
    for part in text.split(_SEPARATOR)[1:]:
        lines = part.split("\n")
        words = [line for line in lines if line.startswith("//")]
        label = _LABEL.match(words[0])
        assert label, f"a page begins with its label: {words[0]}"
        meaning = " ".join([words[0][label.end() :], *(line[3:] for line in words[1:])])
        found[label[1]] = RulePage(meaning, "\n".join(lines[len(words) :]).strip())
    return found


def explain_rule(label: str) -> str:
    """A page as a person reads it."""
    page = rule_pages()[label]
    example = f"\n\nA program that breaks it:\n\n{page.program}" if page.program else ""
    return f"rule {label} of the verifier\n{page.meaning}{example}"
