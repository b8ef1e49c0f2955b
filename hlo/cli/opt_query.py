"""hlo-opt query QUERY FILE...: instructions for which a condition holds."""

from __future__ import annotations

import click
import msgspec

from hlo.cli.completing import FILE
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import say, tell


def properties_text() -> str:
    """What can be asked of an instruction, a line each."""
    from hlo.tools.inspection.query import FUNCTIONS, PROPERTIES, STEPS

    rows = [(name, told) for name, (told, _) in PROPERTIES.items()]
    rows += [(f"{name}(...)", told) for name, told in FUNCTIONS.items()]
    rows += [(f"{name}(N).x", told) for name, told in STEPS.items()]
    return "\n".join(f"{name:<18}{told}" for name, told in rows)


def _list_properties(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    del param
    if wanted:
        tell(properties_text())
        ctx.exit()


@click.command("query")
@click.argument("asked", metavar="QUERY")
@click.argument("files", nargs=-1, type=FILE, metavar="FILE...")
@click.option("--count", is_flag=True, help="Only how many, a line for each file.")
@click.option("--list-properties", is_flag=True, is_eager=True, expose_value=False,
              callback=_list_properties, help="What can be asked of an instruction.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as data, a list of matches.")
@reads_modules
def command(asked: str, files: tuple[str, ...], count: bool, as_json: bool) -> int:
    """Instructions for which QUERY holds; exit code 1 where there are none.

    \b
      hlo-opt query 'dot where flops > 1e9 and operand(0).dtype == bf16' model.hlo
      hlo-opt query 'fusion where depth > 0 and op_name =~ attention' model.hlo
      hlo-opt query 'where users == 0 and not root' *.hlo
    """
    from hlo.tools.inspection.query import Query, query

    if not files:
        raise click.UsageError("no FILE given; - is standard input")
    read = Query(asked)
    matches = {file: query(read_module(file), read) for file in files}
    if as_json:
        rows = [
            {"file": file, **msgspec.to_builtins(match)}
            for file, found in matches.items()
            for match in found
        ]
        tell(msgspec.json.format(msgspec.json.encode(rows)).decode())
    elif count:
        for file, found in matches.items():
            tell(f"{file}: {len(found):,}" if len(files) > 1 else f"{len(found)}")
    else:
        for file, found in matches.items():
            for match in found:
                where = f"{file}:{match.line}:{match.column}" if match.line else file
                tell(f"{where}: {match.computation}: {match.text}")
    if any(matches.values()):
        return 0
    say("query: no instruction fits")
    return 1
