"""hlo-opt stats FILE...: opcodes, types and shapes, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from hlo.cli.completing import FILE
from hlo.cli.numbers import Count
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import tell

if TYPE_CHECKING:
    from hlo.tools.inspection.stats import Counts, Stats


@click.command("stats")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("--most", default=10, type=Count(1), show_default=True,
              help="Rows of each table; --json has all.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as data, a list of modules.")
@reads_modules
def command(files: tuple[str, ...], most: int, as_json: bool) -> int:
    """Count what modules consist of; nothing is run."""
    from hlo.tools.inspection.stats import stats

    found = [stats(read_module(file)) for file in files]
    if as_json:
        tell(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        tell("\n\n".join(stats_text(s, most) for s in found))
    return 0


def stats_text(found: Stats, most: int) -> str:
    """Totals, then the most frequent opcodes, types and shapes."""
    rows = [
        f"{found.name}: {found.instructions:,} instructions in {found.computations:,} computations",
        f"  parameters {found.parameter_bytes:,} bytes   constants {found.constant_bytes:,}"
        f" bytes   result {found.result_bytes:,} bytes",
    ]
    for head, counts in (
        ("opcode", found.opcodes), ("type", found.types), ("shape", found.shapes),
    ):  # fmt: skip
        rows += _table(head, counts, most)
    return "\n".join(rows)


def _table(head: str, counts: Counts, most: int) -> list[str]:
    rows = [f"  {head}"] + [f"    {number:>9,}  {name}" for name, number in counts[:most]]
    rest = counts[most:]
    if rest:
        rows.append(f"    {sum(n for _, n in rest):>9,}  of {len(rest)} others")
    return rows
