"""hlo-opt convert FILE: a module in another form."""

from __future__ import annotations

import os
import sys

import click

from hlo.choices import FORMS
from hlo.cli.completing import FILE
from hlo.cli.reading import read_program, reads_modules
from hlo.tools.files.reading import write_bytes, write_text
from hlo.tools.files.writing import check_writable


@click.command("convert")
@click.argument("file", type=FILE, metavar="FILE")
@click.option("--to", "form", type=click.Choice(FORMS), default=None,
              help="The form; default: what the suffix of --output says, else text.")  # fmt: skip
@click.option(
    "-o", "--output", type=FILE, default="-", metavar="FILE", help="Default: standard output."
)
@click.option("--fill-elided", "fill", is_flag=True, help="Give constant({...}) made-up values.")
@reads_modules
def command(file: str, form: str | None, output: str, fill: bool) -> int:
    """Write a module as text, protocol buffer (pb, pbtxt, json) or StableHLO."""
    from hlo import driver
    from hlo.formats.writing import SUFFIXES, TEXTS
    from hlo.tools.cases.fill import fill_elided

    if output != "-":
        check_writable(output)
    module = read_program(file).module
    if fill:
        module = fill_elided(module)
    chosen = form or SUFFIXES.get(os.path.splitext(output)[1], "text")
    data = driver.write(module, chosen)
    if output == "-" and chosen in TEXTS:
        write_text(output, data.decode("utf-8", "surrogateescape"))
    elif output == "-" and sys.stdout.isatty():
        raise click.UsageError(f"--to={chosen} is no text for a terminal; give --output")
    else:
        write_bytes(output, data)
    return 0
