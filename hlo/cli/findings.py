"""Findings of NaNs and infinities as text, and those of compiled code, which probes find."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hlo.choices import ODD_VALUES
from hlo.cli.terminal import say, tell

if TYPE_CHECKING:
    from hlo.tools.cases.case import Case
    from hlo.tools.faults.nans import Finding

MOST_SHOWN = 20
MOST_OUTPUTS = 8  # that a finding is said to reach
MOST_UNPROBED = 5


def told(
    case: Case,
    kinds: tuple[str, ...] = ODD_VALUES[:2],
    *,
    every: bool,
    mode: str,
    threads: int | None = None,
    as_json: bool = False,
) -> int:
    """Print what compiled code makes; 1 where that is anything."""
    from hlo.tools.faults.compiled_nans import (
        compiled_nans,  # the whole back end: a help does without
    )

    probed = compiled_nans(case, kinds, mode=mode, threads=threads)
    found = [f for f in probed.findings if every or not f.is_discarded]
    if as_json:
        tell(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        tell(findings_text(found))
    if not probed.is_same:
        say("note: the probed run's outputs have other bits than the unprobed one's")
    if probed.unprobed:
        shown = ", ".join(f"%{name}" for name in probed.unprobed[:MOST_UNPROBED])
        say(f"note: without a probe, by type or because the reference runs them: {shown}")
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
    shown = finding.outputs[:MOST_OUTPUTS]
    outputs = ", ".join(f"output {{{n}}}" for n in shown) or "no output"
    if len(finding.outputs) > len(shown):
        outputs += f" and {len(finding.outputs) - len(shown)} more"
    more = f", {finding.count} elements" if finding.count > 1 else ""
    return [
        f"{head} {finding.kind}   {finding.instruction}   {finding.source}".rstrip(),
        f"    element {where} is {finding.value}{more}{loop}",
        *(f"    {operand}" for operand in finding.operands),
        f"    reaches {outputs}",
    ]
