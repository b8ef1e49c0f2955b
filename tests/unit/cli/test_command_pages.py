"""docs/commands.md has every command and every flag, and none that is gone."""

from __future__ import annotations

import re

from tests.support.command_pages import PAGE, helps

LONG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def test_the_page_has_what_the_commands_have() -> None:
    """Releases of click wrap lines in their own ways, so that names are compared."""
    written = PAGE.read_text()
    sections = dict(
        re.findall(r"^### (\S+ \S+)\n\n```text\n(.*?)\n```$", written, re.MULTILINE | re.DOTALL)
    )
    found = {f"{group} {name}": text for group, name, text in helps()}
    advice = "python -m tests.support.command_pages writes the page anew"
    assert list(sections) == list(found), advice
    for name, text in found.items():
        assert set(LONG.findall(sections[name])) == set(LONG.findall(text)), f"{name}: {advice}"
