"""hlo-run nans FILE: the first instruction that makes a NaN or an infinity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from hlo.choices import MODES, ODD_VALUES
from hlo.cli.case_flags import takes_case
from hlo.cli.numbers import THREADS, TIMEOUT
from hlo.cli.reading import reads_modules
from hlo.cli.terminal import say, tell

if TYPE_CHECKING:
    from hlo.tools.cases.case import Case

ENGINES = ("compiled", "interpreter")


@click.command("nans")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(ODD_VALUES),
              default=("nan", "inf"), show_default=True,
              help="What is looked for; may be repeated.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Also what no output gets.")
@click.option("--engine", type=click.Choice(ENGINES), default="compiled", show_default=True)
@click.option("--mode", type=click.Choice(MODES), default="strict", show_default=True)
@click.option("--threads", default=None, type=THREADS)
@click.option("--timeout", default=None, type=TIMEOUT, metavar="SECONDS", help="Of the run.")
@click.option("--json", "as_json", is_flag=True, help="The same as data.")
@reads_modules
@takes_case
def command(
    case: Case,
    kinds: tuple[str, ...],
    every: bool,
    engine: str,
    mode: str,
    threads: int | None,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Run with a probe behind each kernel; exit 1 where something is found.

    --engine=interpreter looks at every value of the reference instead, and says so where compiled
    code has NaNs or infinities elsewhere.
    """
    from hlo import driver
    from hlo.cli.findings import findings_text, told
    from hlo.tools.faults.nans import nans, same_places

    if engine == "compiled":
        if timeout is not None:
            raise click.UsageError("--timeout goes with --engine=interpreter")
        return told(case, kinds, every=every, mode=mode, threads=threads, as_json=as_json)
    found = [f for f in nans(case, kinds, timeout=timeout) if every or not f.is_discarded]
    if as_json:
        tell(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        tell(findings_text(found))
    ours = driver.compile(case.module, cache=False)(*case.values)
    if not same_places(ours, driver.evaluate(case.module, *case.values, timeout=timeout)):
        say(
            "compiled code has NaNs or infinities in other elements: hlo-opt bisect says where from"
        )
        return 1
    return 1 if found else 0
