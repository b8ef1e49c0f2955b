"""hlo-opt eq A B: equal up to names."""

from __future__ import annotations

import click

from hlo.cli.completing import FILE
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import say


@click.command("eq")
@click.argument("first", type=FILE, metavar="A")
@click.argument("second", type=FILE, metavar="B")
@reads_modules
def command(first: str, second: str) -> int:
    """Exit 0 when the two modules are equal up to names, else say the first difference."""
    from hlo.printer.equality import difference

    found = difference(read_module(first), read_module(second))
    if found is not None:
        say(found)
        return 1
    return 0
