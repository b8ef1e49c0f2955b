"""hlo-run memory FILE: what is live at the peak, and every buffer with what made it."""

from __future__ import annotations

import json

import click

from hlo.choices import MODES
from hlo.cli.completing import FILE, PASSES
from hlo.cli.numbers import THREADS
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import tell


@click.command("memory")
@click.argument("file", type=FILE, metavar="FILE")
@click.option("-p", "--passes", type=PASSES, default="default", show_default=True)
@click.option("--mode", type=click.Choice(MODES), default="strict", show_default=True)
@click.option("--threads", default=None, type=THREADS)
@click.option("--json", "as_json", is_flag=True, help="The same as data.")
@reads_modules
def command(file: str, passes: str, mode: str, threads: int | None, as_json: bool) -> int:
    """Peak memory, and a table of buffers with the HLO that made them; nothing is run.

    What machine code takes, symbol by symbol: hlo-run compile FILE --sizes.
    """
    from hlo import driver
    from hlo.tools.cases.fill import fill_elided

    module = fill_elided(read_module(file), 0)
    found = driver.memory(module, passes=passes, mode=mode, threads=threads)
    tell(json.dumps(found.to_json(), indent=1) if as_json else str(found), nl=as_json)
    return 0
