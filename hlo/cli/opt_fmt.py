"""hlo-opt fmt: reprint in the standard form."""

from __future__ import annotations

import click

from hlo import driver
from hlo.tools.files import read_text, write_text


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-i", "--in-place", is_flag=True, help="Rewrite the files.")
@click.option("--check", is_flag=True, help="Only say which files would change; exit 1 if any.")
def command(files: tuple[str, ...], in_place: bool, check: bool) -> int:
    """Reprint files; comments are dropped (printed ones such as /*index=5*/ come back)."""
    changed = False
    for file in files:
        source = read_text(file)
        text = driver.to_text(driver.parse(source, "<stdin>" if file == "-" else file))
        differs = text != source
        dropped = driver.comment_count(source)
        if dropped and not check:
            click.echo(f"{file}: drops {dropped} comments", err=True)
        if check:
            if differs:
                click.echo(f"{file} would change")
            changed |= differs
        elif in_place and file != "-":
            if differs:
                write_text(file, text)
        else:
            click.echo(text, nl=False)
    return 1 if check and changed else 0
