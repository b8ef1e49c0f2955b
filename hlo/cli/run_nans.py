"""hlo-run nans FILE: the first instruction that makes a NaN or an infinity."""

from __future__ import annotations

import click
import msgspec

from hlo import driver
from hlo.cli.case_flags import takes_case
from hlo.cli.numbers import TIMEOUT
from hlo.cli.reading import reads_input
from hlo.cli.terminal import say, tell
from hlo.tools.cases import Case
from hlo.tools.nans import KINDS, Finding, nans, same_places

MOST_SHOWN = 20


@click.command("nans")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), default=("nan", "inf"),
              show_default=True, help="What is looked for; may be repeated.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Also what no output gets.")
@click.option("--timeout", default=None, type=TIMEOUT, metavar="SECONDS", help="Of the run.")
@click.option("--json", "as_json", is_flag=True, help="The same as data.")
@takes_case
@reads_input
def command(
    case: Case, kinds: tuple[str, ...], every: bool, timeout: float | None, as_json: bool
) -> int:
    """Run the reference, look at every value; exit 1 where something is found.

    Says so where compiled code has NaNs or infinities elsewhere than the reference.
    """
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


def findings_text(found: list[Finding]) -> str:
    """A block for each finding: the instruction, its line, element, operands, where it goes."""
    if not found:
        return "nothing found"
    rows = []
    for finding in found[:MOST_SHOWN]:
        rows += _block("first" if finding is found[0] else "then", finding)
    if len(found) > MOST_SHOWN:
        rows.append(f"... and {len(found) - MOST_SHOWN} more (--json has all)")
    return "\n".join(rows)


def _block(head: str, finding: Finding) -> list[str]:
    where = "{" + ",".join(map(str, finding.index)) + "}"
    loop = f"   iteration {finding.iteration} of {finding.loop}" if finding.loop else ""
    outputs = ", ".join(f"output {{{n}}}" for n in finding.outputs) or "no output"
    more = f", {finding.count} elements" if finding.count > 1 else ""
    return [
        f"{head} {finding.kind}   {finding.instruction}   {finding.source}".rstrip(),
        f"    element {where} is {finding.value}{more}{loop}",
        *(f"    {operand}" for operand in finding.operands),
        f"    reaches {outputs}",
    ]
