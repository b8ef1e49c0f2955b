"""Colours: which parts of messages and reports have one on a terminal.

--color=auto|always|never: auto is a terminal that NO_COLOR does not say otherwise of
"""

from __future__ import annotations

import os
import re
from contextvars import ContextVar
from typing import IO

import click

WHEN = ("auto", "always", "never")
# The first that a line matches; its group 1, or all of it, is what has the colour.
PARTS = (
    (re.compile(r"^(?:internal )?error(?:\[[\w-]*\])?", re.ASCII), {"fg": "red", "bold": True}),
    (re.compile(r"^(?:advice|warning)(?:\[[\w-]*\])?", re.ASCII), {"fg": "yellow", "bold": True}),
    (re.compile(r"^(?:help|note|Usage|Error):"), {"fg": "cyan", "bold": True}),
    (re.compile(r"^ *\| +(\^.*)$"), {"fg": "red", "bold": True}),
    (re.compile(r"^ *(?:-->|\d+ \||\|)"), {"fg": "blue"}),
    (re.compile(r"^(?:equal|PASS|ok)\b"), {"fg": "green"}),
    (re.compile(r"^(?:different|FAIL)\b"), {"fg": "red"}),
    (re.compile(r"^undecided\b"), {"fg": "yellow"}),
)

_when: ContextVar[str] = ContextVar("_when", default="auto")


def takes_colour(command: click.Command) -> click.Command:
    """Adds --color to a command that has none."""
    if all(parameter.name != "color" for parameter in command.params):
        option = click.Option(
            ["--color"], type=click.Choice(WHEN), default="auto", show_default=True,
            expose_value=False, callback=_choose, is_eager=True, help="Colours in what is printed.",
        )  # fmt: skip
        command.params.append(option)
    return command


def _choose(ctx: click.Context, param: click.Parameter, when: str) -> None:
    del param
    token = _when.set(when)
    ctx.call_on_close(lambda: _when.reset(token))


def has_colours(stream: IO[str]) -> bool:
    """Whether what is written to a stream has colours (no-color.org)."""
    if _when.get() != "auto":
        return _when.get() == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str) -> str:
    """The text with colours in the lines that have any."""
    return "\n".join(map(_coloured_line, text.split("\n")))


def _coloured_line(line: str) -> str:
    for pattern, style in PARTS:
        found = pattern.search(line)
        if found:
            start, end = found.span(found.re.groups)
            return line[:start] + click.style(line[start:end], **style) + line[end:]
    return line


def heading(text: str, line: int) -> str:
    """The text with one line in bold: of a table, the names of its columns."""
    lines = text.split("\n")
    if line < len(lines):
        lines[line] = click.style(lines[line], bold=True)
    return "\n".join(lines)
