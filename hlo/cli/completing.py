"""What shells complete: files, passes, opcodes and the other names that commands take."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


class File(click.types.StringParamType):
    """A path, or - for a standard stream; any text is one."""

    name = "file"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del ctx, param
        return [CompletionItem(incomplete, type="file")]


class Passes(click.types.StringParamType):
    """Names of passes and pipelines, separated by commas; any text is taken, and read later."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from hlo.passes.catalogue import CATALOGUE, PIPELINES, first_line  # for completion alone

        del ctx, param
        head, comma, word = incomplete.rpartition(",")
        told = {name: first_line(function) for name, function in CATALOGUE.items()}
        told |= {name: "pipeline" for name in PIPELINES if name}
        return [
            CompletionItem(f"{head}{comma}{name}", help=text)
            for name, text in told.items()
            if name.startswith((word.replace("_", "-"), word))
        ]


class Topic(click.types.StringParamType):
    """What `explain` has a page for."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from hlo.cli.topics import topics  # for completion alone: it loads all tables

        del ctx, param
        return [CompletionItem(name) for name in topics() if name.startswith(incomplete)]


FILE, PASSES, TOPIC = File(), Passes(), Topic()
