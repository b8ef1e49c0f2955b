"""hlo-opt bisect FILE: the pass, the run, the rewrite or the kernel that breaks a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from hlo.choices import MODES
from hlo.cli.case_flags import TRIAL_FLAGS, flags, takes_case, takes_tolerance
from hlo.cli.completing import FILE, PASSES
from hlo.cli.numbers import SECONDS, Count
from hlo.cli.reading import reads_modules
from hlo.cli.terminal import say, tell
from hlo.tools.files.reading import write_text
from hlo.tools.files.writing import check_writable

if TYPE_CHECKING:
    from hlo.tools.cases.case import Case
    from hlo.tools.cases.trials import Property
    from hlo.tools.comparison.compare import Tolerance
    from hlo.tools.faults.bisect import PassFound
    from hlo.tools.faults.bisect_kernels import KernelFound

RIVALS = ("interpreter", "unoptimized", "jax")


@click.command("bisect")
@click.option("--compare", default=None, type=click.Choice(RIVALS),
              help="Results differ from this one's (the default: interpreter).")  # fmt: skip
@click.option("--verify", "verified", is_flag=True, help="A pass breaks the module.")
@click.option("--script", default=None, metavar="COMMAND",
              help="It ends with 0 when given the file of a bad module.")  # fmt: skip
@click.option("--interesting-exit", default=0, type=Count(0, 255), show_default=True,
              metavar="N", help="The script's code that says so.")  # fmt: skip
@click.option(
    "-p", "--passes", type=PASSES, default=None, help="Default: what compile runs in --mode."
)
@click.option("--mode", type=click.Choice(MODES), default="strict", show_default=True)
@click.option("-o", "--output", type=FILE, default=None, metavar="FILE",
              help="Reduce what is found, and write it here (- is stdout).")  # fmt: skip
@click.option("--seconds", default=None, type=SECONDS, help="Stop reducing after so long.")
@click.option("--json", "as_json", is_flag=True, help="What is found as JSON on stdout.")
@flags(TRIAL_FLAGS)
@takes_tolerance
@reads_modules
@takes_case
def command(
    case: Case,
    compare: str | None,
    verified: bool,
    script: str | None,
    interesting_exit: int,
    passes: str | None,
    mode: str,
    output: str | None,
    seconds: float | None,
    as_json: bool,
    jobs: int,
    timeout: float,
    loaded: tuple[str, ...],
    tolerance: Tolerance,
) -> int:
    """Exit 1 where something is found, 0 where nothing is wrong."""
    from hlo.tools.faults import properties
    from hlo.tools.faults.bisect import bisected, leaves_fault, optimised_case
    from hlo.tools.faults.bisect_kernels import bisected_kernels, miscompiled
    from hlo.tools.loading import load_passes

    if (compare is not None) + verified + (script is not None) > 1:
        raise click.UsageError("--compare, --verify and --script exclude each other")
    if output is not None:
        check_writable(output)
    for path in loaded:
        load_passes(path)
    chosen = passes if passes is not None else {"strict": "default", "fast": "fast"}[mode]
    if script is not None:
        fault = properties.script(script, interesting_exit)
    elif verified:
        fault = leaves_fault()
    else:
        fault = properties.differs_from(case, compare or "interpreter", tolerance)
    found = bisected(case, chosen, fault, jobs=jobs, timeout=timeout)
    if found is not None:
        again = _again(found.passes, fault, tolerance, script=script, verified=verified)
        return _reported(found, pass_text(found), found.before, again, output, seconds, as_json)
    kernel = None
    if script is None and not verified:
        kernel = bisected_kernels(
            optimised_case(case, chosen), mode=mode, tolerance=tolerance, timeout=timeout
        )
    if kernel is None:
        say(f"nothing is wrong: {chosen} leaves no fault")
        return 0
    again = miscompiled(mode, tolerance)
    return _reported(kernel, kernel_text(kernel), kernel.case, again, output, seconds, as_json)


def _again(
    passes: str, fault: Property, tolerance: Tolerance, *, script: str | None, verified: bool
) -> Property:
    """The property that a reduction of what is found keeps."""
    from hlo.tools.faults import properties
    from hlo.tools.faults.bisect import introduced

    if script is not None:
        return introduced(passes, fault)
    return properties.broken_pass(passes) if verified else properties.pass_fault(passes, tolerance)


def _reported(
    found: PassFound | KernelFound,
    text: str,
    case: Case,
    again: Property,
    output: str | None,
    seconds: float | None,
    as_json: bool,
) -> int:
    """What is found on stdout (stderr where the module goes there), the module reduced if asked."""
    from hlo.cli.opt_reduce import reduce_case
    from hlo.tools.cases.trials import Trials

    if as_json:
        write_text("-", found_json(found))
    elif output == "-":
        say(text)
    else:
        tell(text)
    if output is not None:
        reduce_case(case, Trials(again), output=output, seconds=seconds)
    return 1


def pass_text(found: PassFound) -> str:
    """The pass run, the rewrite, the instruction before and after."""
    rows = [
        f"pass run {found.number} of {found.total}: {found.step}, run {found.round} of it, is the "
        f"first that breaks   ({found.asked} runs)"
    ]
    if found.rewrite is not None:
        rewrite = found.rewrite
        where = f" at {rewrite.where}" if rewrite.where else ""
        rows.append(f"rewrite {rewrite.number} of {rewrite.total}: rule {rewrite.rule}{where}")
        rows += [f"  {rewrite.equation}", f"  - {rewrite.old}", f"  + {rewrite.new}"]
    else:
        rows += [f"  {line}" for line in found.changed]
    rows.append(f"again with hlo-opt --passes='{found.passes}' on the module before")
    return "\n".join(rows)


def kernel_text(found: KernelFound) -> str:
    """The kernel, and whether its instruction shows the fault by itself."""
    alone = "wrong by itself too" if found.is_alone else "wrong in its program only"
    return (
        f"passes are right; compiled code is wrong   ({found.asked} runs)\n"
        f"kernel of {found.family}, {alone}\n  {found.instruction}"
    )


def found_json(found: PassFound | KernelFound) -> str:
    """What is found as JSON, the module's text in it."""
    from hlo.tools.faults.bisect import PassFound

    if isinstance(found, PassFound):
        data: dict[str, object] = {
            "kind": "pass",
            "run": found.number,
            "of": found.total,
            "pass": found.step,
            "round": found.round,
            "passes": found.passes,
            "changed": found.changed,
            "rewrite": None if found.rewrite is None else msgspec.structs.asdict(found.rewrite),
            "runs": found.asked,
            "module": found.before.text,
        }
    else:
        data = {
            "kind": "kernel",
            "family": found.family,
            "instruction": found.instruction,
            "is_alone": found.is_alone,
            "runs": found.asked,
            "module": found.case.text,
        }
    return msgspec.json.format(msgspec.json.encode(data)).decode() + "\n"
