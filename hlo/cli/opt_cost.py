"""hlo-opt cost FILE: operations, bytes, least time; nothing is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from hlo.choices import COST_GROUPS
from hlo.cli.completing import FILE, PASSES
from hlo.cli.numbers import RATE, THREADS, Count
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import tell
from hlo.runtime.threads import thread_count
from hlo.tools.bench import duration

if TYPE_CHECKING:
    from hlo.backend.profiling.limits import Limits
    from hlo.tools.inspection.cost import Cost, CostRow

HEAD = "          time       flops   functions       bytes  intensity  bound    "
STEPS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@click.command("cost")
@click.argument("file", type=FILE, metavar="FILE")
@click.option("--by", type=click.Choice(COST_GROUPS), default="instruction", show_default=True)
@click.option("--most", default=20, type=Count(1), show_default=True,
              help="Rows that are shown; --json has all.")  # fmt: skip
@click.option("-p", "--passes", type=PASSES, default="default", show_default=True,
              help="What makes the module of the row `after fusion`.")  # fmt: skip
@click.option("--peak-flops", default=None, type=RATE, metavar="N",
              help="Operations a second; else this machine's, measured.")  # fmt: skip
@click.option("--peak-bw", default=None, type=RATE, metavar="N",
              help="Bytes a second from memory; else measured.")  # fmt: skip
@click.option("--threads", default=None, type=THREADS, help="Of the measured machine.")
@click.option("--json", "as_json", is_flag=True, help="The same as data.")
@reads_modules
def command(
    file: str,
    by: str,
    most: int,
    passes: str,
    peak_flops: float | None,
    peak_bw: float | None,
    threads: int | None,
    as_json: bool,
) -> int:
    """Count operations and bytes, loops as often as they run, beside what the machine gives.

    `functions` are elements of exp, log, tanh, sqrt and their like. Bytes are as if each
    instruction went through memory by itself; the last row has those after fusion.
    """
    from hlo import driver
    from hlo.tools.inspection.cost import cost

    module = read_module(file)
    driver.verify(module)
    limits = _limits(threads, peak_flops, peak_bw)
    found = cost(module, limits, by, driver.optimize(module, passes) if passes else None)
    if as_json:
        tell(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        tell(cost_text(found, most), head=1)
    return 0


def _limits(threads: int | None, flops: float | None, bandwidth: float | None) -> Limits:
    """What was given, the rest measured."""
    from hlo.backend.profiling.limits import Limits, measured_limits

    count = thread_count(threads)
    if flops is not None and bandwidth is not None:
        return Limits(count, bandwidth, bandwidth, flops)
    found = measured_limits(count)
    copied = bandwidth or found.copied
    return Limits(count, bandwidth or found.read, copied, flops or found.operations)


def cost_text(found: Cost, most: int) -> str:
    """The machine's balance, a row for each group, totals, what was left out."""
    spent = sum(row.seconds for row in found.rows) or 1.0
    rows = [
        f"{found.module}: the machine computes longer than it moves from"
        f" {found.balance:.3g} operations a byte",
        HEAD + found.by,
    ]
    for row in found.rows[:most]:
        rows.append(_row(row, f"{100 * row.seconds / spent:3.0f} %"))
    rest = found.rows[most:]
    if rest:
        share = 100 * sum(row.seconds for row in rest) / spent
        rows.append(f"{share:3.0f} %  in {len(rest)} others (--most)")
    rows.append(_row(found.total, "     "))
    if found.fused is not None:
        rows.append(_row(found.fused, "     "))
    return "\n".join([*rows, *(f"note: {note}" for note in found.notes)])


def _row(row: CostRow, share: str) -> str:
    least = ">=" if row.is_least else "  "
    times = f"  [x{row.runs}]" if row.runs > 1 else ""
    return (
        f"{share} {least}{duration(row.seconds):>7} {_short(row.flops):>11} "
        f"{_short(row.transcendentals):>11} {_short(row.bytes):>10}B {row.intensity:>10.3g}  "
        f"{row.bound:<8} {row.name}{times}"
    )


def _short(number: float) -> str:
    for step, letter in STEPS:
        if number >= step:
            return f"{number / step:.3g} {letter}"
    return f"{number:.0f} "
