"""hlo-opt fmt: reprint in the standard form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hlo.cli.completing import FILE
from hlo.cli.reading import reads_input
from hlo.cli.terminal import say, tell
from hlo.errors import HloError
from hlo.tools.files import write_text

if TYPE_CHECKING:
    from hlo.ir.module import Module


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("-i", "--in-place", is_flag=True, help="Rewrite the files.")
@click.option("--check", is_flag=True, help="Only say which files would change; exit 1 if any.")
@reads_input
def command(files: tuple[str, ...], in_place: bool, check: bool) -> int:
    """Reprint files in the standard form; comments stay with what they stand over or behind."""
    from hlo.tools.format import formatted

    changed = False
    for file in files:
        source, module = _read(file)
        if in_place and source is None:
            raise HloError("file", f"{file} is no HLO text, expected one: hlo-opt convert")
        text, dropped = (str(module), []) if source is None else formatted(module)
        differs = source is not None and text != source
        for comment in dropped if not check else ():
            say(f"{file}: drops the comment {comment.text!r}")
        if check:
            if differs:
                tell(f"{file} would change")
            changed |= differs
        elif in_place and file != "-":
            if differs:
                write_text(file, text)
        else:
            write_text("-", text)
    return 1 if check and changed else 0


def _read(file: str) -> tuple[str | None, Module]:
    """A module with the text that it was read from; None for one of another form."""
    from hlo import driver
    from hlo.formats.module_text import AS_TEXT

    module = driver.read(file)
    source = next((i.source for c in module.computations for i in c.instructions), None)
    return (None if source is None or source.name.endswith(AS_TEXT) else source.text), module
