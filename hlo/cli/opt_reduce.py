"""hlo-opt reduce FILE: the smallest module that still shows something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from hlo.choices import MODES
from hlo.cli.case_flags import TRIAL_FLAGS, flags, takes_case, takes_tolerance
from hlo.cli.completing import FILE, PASSES
from hlo.cli.numbers import SECONDS, Amount, Count
from hlo.cli.reading import reads_input
from hlo.cli.terminal import say
from hlo.tools.files.reading import write_text
from hlo.tools.files.writing import check_writable

if TYPE_CHECKING:
    from hlo.tools.cases.case import Case
    from hlo.tools.cases.trials import Property, Trials
    from hlo.tools.comparison.compare import Tolerance
    from hlo.tools.faults.reduce import Reduction


@click.command("reduce")
@click.option("--script", default=None, metavar="COMMAND",
              help="Ends with 0 when given the module's file, inputs.npz beside it.")  # fmt: skip
@click.option("--interesting-exit", default=0, type=Count(0, 255), show_default=True,
              metavar="N", help="The script's code that says so.")  # fmt: skip
@click.option("--compare", default=None, type=click.Choice(["interpreter", "unoptimized", "jax"]),
              help="Compiled code differs from this.")  # fmt: skip
@click.option("--pass-fault", is_flag=True, help="The reference differs after --passes.")
@click.option("--message", default=None, metavar="REGEXP", help="An error says so.")
@click.option("--crash", is_flag=True, help="The process dies, or fails with a bug of ours.")
@click.option("--slower-than-jax", "slower", default=None, type=Amount(above_zero=True),
              metavar="FACTOR", help="A call takes so many times as long as XLA's.")  # fmt: skip
@click.option("-p", "--passes", type=PASSES, default="default", show_default=True)
@click.option("--mode", type=click.Choice(MODES), default="strict", show_default=True)
@click.option("--seconds", default=None, type=SECONDS, help="Stop after so long.")
@click.option("--journal", default="", metavar="FILE",
              help="Keep what is known; the same command goes on from there.")  # fmt: skip
@click.option("-o", "--output", type=FILE, default="-", metavar="FILE",
              help="Written at each step, FILE.npz beside it.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The outcome as JSON on stdout.")
@flags(TRIAL_FLAGS)
@takes_tolerance
@takes_case
@reads_input
def command(
    case: Case,
    script: str | None,
    interesting_exit: int,
    compare: str | None,
    pass_fault: bool,
    message: str | None,
    crash: bool,
    slower: float | None,
    passes: str,
    mode: str,
    seconds: float | None,
    journal: str,
    output: str,
    as_json: bool,
    jobs: int,
    timeout: float,
    loaded: tuple[str, ...],
    tolerance: Tolerance,
) -> int:
    """Shrink a module while a property holds; exactly one property is given."""
    from hlo.tools.cases.trials import Trials
    from hlo.tools.faults import properties
    from hlo.tools.loading import load_passes

    asked: list[Property] = []
    if script is not None:
        asked.append(properties.script(script, interesting_exit))
    if compare is not None:
        asked.append(properties.mismatch(compare, passes, mode, tolerance))
    if pass_fault:
        asked.append(properties.pass_fault(passes, tolerance))
    if message is not None:
        asked.append(properties.message(message, passes, mode))
    if crash:
        asked.append(properties.crash(passes, mode))
    if slower is not None:
        asked.append(properties.slower_than_jax(slower, mode))
    if len(asked) != 1:
        raise click.UsageError(
            f"{len(asked)} properties given, expected one of --script, --compare, --pass-fault, "
            "--message, --crash, --slower-than-jax"
        )
    for path in loaded:
        load_passes(path)
    return reduce_case(
        case,
        Trials(asked[0], jobs, timeout, journal),
        output=output,
        seconds=seconds,
        as_json=as_json,
    )


def reduce_case(
    case: Case, trials: Trials, *, output: str, seconds: float | None, as_json: bool = False
) -> int:
    """Reduce, and write the best so far whatever happens."""
    from hlo.tools.faults.properties import write_case
    from hlo.tools.faults.reduce import reduced

    check_writable(output)
    best = [case]

    def kept(better: Case) -> None:
        best[0] = better
        if output != "-":
            write_case(better, output, f"{output}.npz")

    try:
        made = reduced(case, trials, seconds=seconds, kept=kept)
    except KeyboardInterrupt:
        if output == "-":
            write_text("-", best[0].text)
        raise
    if output != "-":
        write_case(made.case, output, f"{output}.npz")
    if as_json:
        write_text("-", outcome_json(case, made))
    elif output == "-":
        write_text("-", made.case.text)
    say(outcome(case, made, output))
    return 0


def outcome(case: Case, made: Reduction, output: str) -> str:
    """One line: from how many instructions to how many."""
    where = "" if output == "-" else f": {output}"
    rest = "" if made.is_smallest else ", stopped before the end"
    return (
        f"reduced from {case.size:,} to {made.case.size:,} instructions{where}   "
        f"({made.asked} runs, {made.seconds:.1f} s{rest})"
    )


def outcome_json(case: Case, made: Reduction) -> str:
    """The outcome as JSON, the module's text in it."""
    data = {
        "instructions": made.case.size,
        "before": case.size,
        "runs": made.asked,
        "seconds": round(made.seconds, 3),
        "is_smallest": made.is_smallest,
        "module": made.case.text,
    }
    return msgspec.json.format(msgspec.json.encode(data)).decode() + "\n"
