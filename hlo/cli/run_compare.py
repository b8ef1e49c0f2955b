"""hlo-run compare A [B]: equal, different, or not to be told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from hlo.choices import MODES, RIVALS
from hlo.cli.case_flags import takes_case
from hlo.cli.completing import FILE, PASSES
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import tell
from hlo.errors import HloError

if TYPE_CHECKING:
    from hlo.ir.module import Module
    from hlo.tools.cases.case import Case
    from hlo.tools.comparing import Compared, Nearness
    from hlo.tools.faults.divergence import Alone, Diverged, WrongAlone

MOST_ALONE = 10  # rows of --isolate
NEARER = 1.2  # times as far off as the other side: that one is nearer


@click.command("compare")
@click.option("--against", type=click.Choice(RIVALS), default=None,
              help="Without B: what A's compiled code is compared with (interpreter).")  # fmt: skip
@click.option("-p", "--passes", type=PASSES, default="default", show_default=True)
@click.option("--mode", type=click.Choice(MODES), default="strict", show_default=True)
@click.option("--isolate", is_flag=True,
              help="Also how far each instruction is off alone, from equal inputs.")  # fmt: skip
@click.option("--allow-undecided", is_flag=True, help="Exit 0 where nothing can be said.")
@click.option("--json", "as_json", is_flag=True, help="The same as data.")
@reads_modules
@takes_case
@click.argument("other", type=FILE, metavar="[B]", required=False)
def command(
    case: Case,
    other: str | None,
    against: str | None,
    passes: str,
    mode: str,
    isolate: bool,
    allow_undecided: bool,
    as_json: bool,
) -> int:
    """Compare two modules on the same arguments, or two ways to run one.

    Exit 0 where all outputs are equal, 1 where one is different or undecided.
    """
    from hlo.tools.comparing import compared
    from hlo.tools.comparison.verdicts import DIFFERENT, EQUAL

    if other is not None and against is not None:
        raise click.UsageError("B and --against exclude each other")
    second = None if other is None else _second(other)
    rival = against or "interpreter"
    made = compared(case, second, rival, passes, mode)
    verdicts = made.verdicts
    found = None
    if verdicts.verdict == DIFFERENT or (second is not None and verdicts.verdict != EQUAL):
        found = _where(case, second, rival, passes, mode)
    parts = _isolated(case, rival, passes, mode) if isolate else []
    tell(as_data(made, found, parts) if as_json else verdict_text(made, found, parts))
    if verdicts.verdict == EQUAL:
        return 0
    return 0 if allow_undecided and verdicts.verdict != DIFFERENT else 1


def _second(path: str) -> Module:
    from hlo import driver
    from hlo.tools.cases.fill import fill_elided

    module = fill_elided(read_module(path), 0)
    driver.verify(module)
    return module


def _where(
    case: Case, second: Module | None, rival: str, passes: str, mode: str
) -> Diverged | WrongAlone | None:
    """The first instruction that parts them, where it can be found."""
    from hlo.tools.cases.case import Case
    from hlo.tools.faults.divergence import diverged, wrong_alone

    try:
        if second is not None:
            other = Case(second, case.values)
            return diverged(case, other) or diverged(case, other, exact=True)
        return wrong_alone(_optimised(case, passes, mode), mode, rival)
    except HloError:  # of what the reference cannot run
        return None


def _optimised(case: Case, passes: str, mode: str) -> Case:
    from hlo.tools.faults.bisect import optimised_case

    return optimised_case(case, "fast" if (mode, passes) == ("fast", "default") else passes)


def _isolated(case: Case, rival: str, passes: str, mode: str) -> list[Alone]:
    """The instructions of compiled code, the one that is farthest off by itself first."""
    from hlo.tools.faults.divergence import alone

    found = alone(_optimised(case, passes, mode), mode, rival)
    return sorted(found, key=lambda a: -a.ulp)


def verdict_text(made: Compared, found: Diverged | WrongAlone | None, parts: list[Alone]) -> str:
    """A line for each output, which side is nearer to f64, then the instruction."""
    from hlo.tools.comparison.verdicts import DIFFERENT
    from hlo.tools.faults.divergence import Diverged

    verdicts = made.verdicts
    rows = list(map(str, verdicts.leaves))
    rows += map(_nearness_row, made.nearness)
    if isinstance(found, Diverged):
        rows += _diverged_rows(found)
    elif found is not None:
        rows.append(f"first wrong kernel  {found.instruction}   {found.where}".rstrip())
    elif verdicts.verdict == DIFFERENT:
        rows.append("no single instruction parts them: hlo-opt bisect looks through the passes")
    rows += [_alone_row(part) for part in parts[:MOST_ALONE]]
    return "\n".join([*rows, verdicts.verdict])


def _nearness_row(leaf: Nearness) -> str:
    side = {True: "the first", False: "the second"}[leaf.first < leaf.second]
    if max(leaf.first, leaf.second) <= NEARER * min(leaf.first, leaf.second):
        side = "neither"
    return (
        f"nearer to f64  output {leaf.number}: {side} "
        f"({leaf.first:.3g} and {leaf.second:.3g} off, root mean square)"
    )


def _alone_row(part: Alone) -> str:
    mark = "" if part.passed else "   over budget"
    return f"alone {part.ulp:>10.4g} ulp  {part.instruction}   {part.where}".rstrip() + mark


def _diverged_rows(found: Diverged) -> list[str]:
    where = "{" + ",".join(map(str, found.index)) + "}"
    loop = f"   iteration {found.iteration} of {found.loop}" if found.loop else ""
    return [
        f"first diverges  {found.first}   {found.where}".rstrip() + loop,
        f"          in B  {found.second}",
        f"       element  {where}: {found.actual} and {found.expected} (budget {found.budget})",
        *([] if found.is_whole else ["an earlier one is possible: too many values to keep"]),
    ]


def as_data(made: Compared, found: Diverged | WrongAlone | None, parts: list[Alone]) -> str:
    """The same as JSON."""
    from hlo.tools.faults.divergence import Diverged

    leaves = [
        {**msgspec.structs.asdict(v), "actual": str(v.actual), "expected": str(v.expected)}
        for v in made.verdicts.leaves
    ]
    first: object = None
    if isinstance(found, Diverged):
        first = found
    elif found is not None:
        first = {"instruction": found.instruction, "where": found.where}
    rows = [{"instruction": p.instruction, "where": p.where, "ulp": p.ulp} for p in parts]
    data = {
        "verdict": made.verdicts.verdict,
        "outputs": leaves,
        "nearness": made.nearness,
        "first": first,
        "alone": rows,
    }
    return msgspec.json.format(msgspec.json.encode(data)).decode()
