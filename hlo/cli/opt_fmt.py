"""hlo-opt fmt: reprint in the standard form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from hlo.cli.completing import FILE
from hlo.cli.reading import SEPARATOR, is_split, reads_all_modules
from hlo.cli.terminal import say, tell
from hlo.errors import HloError
from hlo.tools.files.reading import read_text, write_text

if TYPE_CHECKING:
    from hlo.parser.comments import Comment

_PARTED = re.compile(rf"\n?^{SEPARATOR}[ \t]*\n", re.MULTILINE)


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("-i", "--in-place", is_flag=True, help="Rewrite the files.")
@click.option("--check", is_flag=True, help="Only say which files would change; exit 1 if any.")
@reads_all_modules
def command(files: tuple[str, ...], in_place: bool, check: bool) -> int:
    """Reprint files in the standard form; comments stay with what they stand over or behind."""
    changed = False
    for file in files:
        source, text, dropped = _formatted(file)
        if in_place and source is None:
            raise HloError("file", f"{file} is no HLO text, expected one: hlo-opt convert")
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


def _formatted(file: str) -> tuple[str | None, str, list[Comment]]:
    """The text of a file (None where it has another form), the standard form of it, and comments
    that found no place there.
    """
    from hlo import driver
    from hlo.formats.module_text import AS_TEXT
    from hlo.tools.editors.format import formatted

    if is_split():
        source = read_text(file)
        made = [formatted(driver.parse(part, file)) for part in _PARTED.split(source)]
        dropped = [comment for _, comments in made for comment in comments]
        return source, f"{SEPARATOR}\n\n".join(text for text, _ in made), dropped
    module = driver.read(file)
    read = next((i.source for c in module.computations for i in c.instructions), None)
    if read is None or read.name.endswith(AS_TEXT):
        return None, str(module), []
    return read.text, *formatted(module)
