"""hlo-run profile FILE: where a run's time goes, step by step."""

from __future__ import annotations

import click

from hlo import driver
from hlo.cli.numbers import SEED, THREADS
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import tell
from hlo.tools.fill import fill_elided
from hlo.tools.inputs import KINDS, made_up_inputs


@click.command("profile")
@click.argument("file", metavar="FILE")
@click.option("--random", "kind", type=click.Choice(KINDS), default="normal", show_default=True)
@click.option("--seed", default=0, type=SEED, show_default=True)
@click.option("-p", "--passes", default="default", show_default=True)
@click.option("--threads", default=None, type=THREADS)
@reads_modules
def command(file: str, kind: str, seed: int, passes: str, threads: int | None) -> int:
    """Time per step with made-up inputs, joined to HLO instructions and source lines."""
    module = fill_elided(read_module(file), seed)
    values = made_up_inputs(module, kind, seed)
    tell(str(driver.profile(module, *values, passes=passes, threads=threads)))
    return 0
