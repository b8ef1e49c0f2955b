"""What commands say to people: what a source holds reaches no terminal as it is.

Messages on stderr and tables on stdout go through here, with controls escaped. A module's text on
stdout is data: `write_text` gives it to files and pipes to the byte, and to a terminal escaped.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import IO

import click

from hlo import progress
from hlo.cli.colours import coloured, has_colours, heading
from hlo.cli.streams import discard
from hlo.source import shown_lines


def say(text: str, *, nl: bool = True) -> None:
    """A message on stderr, if there is anybody to read it."""
    try:
        _write(text, sys.stderr, nl=nl)
    except (OSError, ValueError):
        discard(sys.stderr)


def tell(text: str, *, nl: bool = True, head: int | None = None) -> None:
    """A table or a line of a report on stdout. head: the line with the names of columns."""
    _write(text, sys.stdout, nl=nl, head=head)


def _write(text: str, stream: IO[str], *, nl: bool = True, head: int | None = None) -> None:
    progress.hide()
    line = shown_lines(text)
    is_coloured = has_colours(stream)
    if is_coloured:
        line = coloured(line) if head is None else heading(line, head)
    click.echo(line, file=stream, nl=nl, color=is_coloured)


def tell_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Lines on stdout, each with the name of its colour ("" for none)."""
    progress.hide()
    is_coloured = has_colours(sys.stdout)
    for text, colour in rows:
        line = shown_lines(text)
        click.echo(
            click.style(line, fg=colour) if is_coloured and colour else line, color=is_coloured
        )


def usage_text(error: click.UsageError) -> str:
    """What click would print: how the command is used, and what is wrong."""
    text = io.StringIO()
    error.show(text)
    return text.getvalue().rstrip()
