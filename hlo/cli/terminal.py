"""What commands say to people: what a source holds reaches no terminal as it is.

Messages on stderr and tables on stdout go through here, with controls escaped. A module's text on
stdout is data: `write_text` gives it to files and pipes to the byte, and to a terminal escaped.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable

import click

from hlo.cli.streams import discard
from hlo.source import shown_lines


def say(text: str, *, nl: bool = True) -> None:
    """A message on stderr, if there is anybody to read it."""
    try:
        click.echo(shown_lines(text), nl=nl, err=True)
    except (OSError, ValueError):
        discard(sys.stderr)


def tell(text: str, *, nl: bool = True) -> None:
    """A table or a line of a report on stdout."""
    click.echo(shown_lines(text), nl=nl)


def tell_rows(rows: Iterable[tuple[str, str]], *, coloured: bool) -> None:
    """Lines on stdout, each with the name of its colour ("" for none)."""
    for text, colour in rows:
        line = shown_lines(text)
        click.echo(click.style(line, fg=colour) if coloured and colour else line, color=coloured)


def has_colours(wanted: str) -> bool:
    """Whether to colour stdout, by a flag's auto, always or never: auto is a terminal, if
    NO_COLOR does not say otherwise (no-color.org).
    """
    if wanted != "auto":
        return wanted == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def usage_text(error: click.UsageError) -> str:
    """What click would print: how the command is used, and what is wrong."""
    text = io.StringIO()
    error.show(text)
    return text.getvalue().rstrip()
