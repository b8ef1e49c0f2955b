"""hlo-opt list PATH: the modules of a file, an archive or a folder of dumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from hlo.cli.completing import FILE
from hlo.cli.reading import reads_input
from hlo.cli.terminal import tell
from hlo.errors import HloError

if TYPE_CHECKING:
    from hlo.formats.reading import Candidate


@click.command("list")
@click.argument("path", type=FILE, metavar="PATH")
@click.option("--json", "as_json", is_flag=True, help="The same as data.")
@reads_input
def command(path: str, as_json: bool) -> int:
    """One line a module: its name, for --module, and its form; then what belongs together."""
    from hlo.formats.reading import candidates

    found = candidates(path)
    if not found:
        raise HloError("file", f"{path} has no module, expected one")
    if len(found) == 1:
        found[0].read()  # a file alone is what it seems to be, or an error
    if as_json:
        tell(msgspec.json.format(msgspec.json.encode(_data(found))).decode())
    else:
        tell("\n".join(_rows(found)))
    return 0


def _data(found: list[Candidate]) -> dict[str, object]:
    from hlo.formats.reading import pairs

    modules = [{"name": c.name, "form": c.form.name.lower()} for c in found]
    return {"modules": modules, "stages": pairs([c.name for c in found])}


def _rows(found: list[Candidate]) -> list[str]:
    from hlo.formats.reading import AFTER, BEFORE, pairs

    width = max(len(c.name) for c in found)
    rows = [f"{c.name:<{width}}  {c.form.name.lower().replace('_', ' ')}" for c in found]
    for module, stages in pairs([c.name for c in found]).items():
        after = [name for stage, names in stages.items() if stage.endswith(AFTER) for name in names]
        if BEFORE in stages and after:
            rows.append(f"{module}: {stages[BEFORE][0]} became {after[0]}")
    return rows
