"""hlo-run profile FILE: where a run's time goes, by step, opcode, op_name or source line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from hlo.choices import MODES
from hlo.cli.case_flags import takes_case
from hlo.cli.completing import FILE, PASSES
from hlo.cli.machine_flags import machine_flags
from hlo.cli.numbers import THREADS
from hlo.cli.reading import reads_modules
from hlo.cli.terminal import tell
from hlo.tools.files.reading import write_text
from hlo.tools.files.writing import check_writable

if TYPE_CHECKING:
    from hlo.machine import Machine
    from hlo.tools.cases.case import Case

GROUPS = ("step", "opcode", "op_name", "source")


@click.command("profile")
@click.option("--by", type=click.Choice(GROUPS), default="step", show_default=True,
              help="source: lines of the program that made the module.")  # fmt: skip
@click.option("-p", "--passes", type=PASSES, default="default", show_default=True)
@click.option("--mode", type=click.Choice(MODES), default="strict", show_default=True)
@click.option("--threads", default=None, type=THREADS)
@click.option("--trace", type=FILE, default=None, metavar="FILE",
              help="Also a run over all threads, for ui.perfetto.dev.")  # fmt: skip
@click.option(
    "--plan",
    is_flag=True,
    help="Also how contractions and loops run, the estimate beside what each took.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as data.")
@machine_flags
@reads_modules
@takes_case
def command(
    case: Case,
    by: str,
    passes: str,
    mode: str,
    threads: int | None,
    trace: str | None,
    plan: bool,
    as_json: bool,
    machine: Machine | None,
) -> int:
    """Time per step, joined to HLO instructions and source lines; medians of 20 runs."""
    from hlo import driver

    if trace is not None:
        check_writable(trace)
    found = driver.profile(
        case.module, *case.values, passes=passes, mode=mode, threads=threads, machine=machine,
        plans=plan,
    )  # fmt: skip
    if trace is not None:
        from hlo.tools.inspection.trace import trace_text

        slices = driver.timeline(
            case.module, *case.values, passes=passes, mode=mode, threads=threads, machine=machine
        )
        write_text(trace, trace_text(case.module.name, slices, found))
    shown = found if by == "step" else found.grouped(by)
    if as_json:
        tell(msgspec.json.format(msgspec.json.encode(shown)).decode())
    else:
        tell(str(shown), head=1)
    return 0
