"""The page of all commands: python -m tests.support.command_pages writes docs/commands.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click  # noqa: TID251  # its helps are what is written

from hlo.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
WIDTH = 100
GROUPS = (
    ("hlo-opt", main.OPT_COMMANDS, main.OPT_HELP),
    ("hlo-run", main.RUN_COMMANDS, main.RUN_HELP),
)
HEAD = """# Commands

What `hlo-opt COMMAND --help` and `hlo-run COMMAND --help` say; `python -m tests.support.command_pages` writes this page. What they are for, with examples and what they print: [When something is wrong](debugging.md), [Ahead of time](ahead_of_time.md), [JAX](jax.md).

Results go to stdout, messages to stderr. On a terminal both have colours, unless `NO_COLOR` is set (`--color=always` and `never` decide), and whatever takes longer than a second shows how far it is. Exit codes: 0 fine, 1 the program, its input or a comparison is at fault, 2 usage, 3 a bug of ours (with a reproducer), 130 interrupted.
"""  # noqa: E501  # a paragraph is a line


def helps() -> Iterator[tuple[str, str, str]]:
    """(group, command, help) of every command, in the order of the tables."""
    for group, rows, _ in GROUPS:
        for name in rows:
            command = main._command(name)
            assert command is not None, name
            parent = click.Context(click.Group(group), info_name=group)
            context = click.Context(
                command,
                parent=parent,
                info_name=name,
                terminal_width=WIDTH,
                max_content_width=WIDTH,
            )
            yield group, name, command.get_help(context)


def page() -> str:
    """The page's text."""
    parts = [HEAD]
    last = ""
    for group, name, text in helps():
        if group != last:
            last = group
            (rows,) = (rows for g, rows, _ in GROUPS if g == group)
            parts.append(f"## {group}\n")
            parts.append(
                "\n".join(f"- [{n}](#{group}-{n}): {told}" for n, told in rows.items()) + "\n"
            )
        lines = "\n".join(line.rstrip() for line in text.splitlines())
        parts.append(f"### {group} {name}\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
