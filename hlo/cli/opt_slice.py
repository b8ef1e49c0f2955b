"""hlo-opt slice FILE: what lies between some instructions and others, as a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hlo.cli.case_flags import takes_case
from hlo.cli.completing import FILE
from hlo.cli.opt_extract import named, written
from hlo.cli.reading import reads_modules
from hlo.errors import HloError
from hlo.tools.files.writing import check_writable

if TYPE_CHECKING:
    from hlo.tools.cases.case import Case


@click.command("slice")
@click.option("--from", "starts", multiple=True, metavar="NAME",
              help="What depends on this instruction; * stands for anything.")  # fmt: skip
@click.option("--to", "ends", multiple=True, metavar="NAME",
              help="What this instruction is computed from.")  # fmt: skip
@click.option("-o", "--output", type=FILE, default="-", metavar="FILE",
              help="FILE.npz beside it has the values that its inputs had.")  # fmt: skip
@reads_modules
@takes_case
def command(case: Case, starts: tuple[str, ...], ends: tuple[str, ...], output: str) -> int:
    """Cut out what --from reaches (a forward slice), what --to needs (a backward slice), or, with
    both, what lies between, with the values that a run gave.
    """
    from hlo.tools.cases.case import recorded
    from hlo.tools.cases.extract import extracted, sliced

    if not starts and not ends:
        raise click.UsageError("--from or --to is missing: which instructions?")
    check_writable(output)
    first = [i for name in starts for i in named(case, name, "slice")]
    last = [i for name in ends for i in named(case, name, "slice")]
    chosen = sliced(first, last)
    if not chosen:
        message = f"slice: {' '.join(ends)} does not depend on {' '.join(starts)}, expected a path"
        raise HloError("arguments", message)
    return written(extracted(chosen, recorded(case)), case, output)
