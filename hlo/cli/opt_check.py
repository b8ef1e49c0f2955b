"""hlo-opt check FILE...: all errors of all files, quiet when clean."""

from __future__ import annotations

import click
import msgspec

from hlo.cli.completing import FILE
from hlo.cli.numbers import Count
from hlo.cli.reading import reads_all_modules, wanted_module
from hlo.cli.terminal import say, tell


@click.command("check")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("--syntax", is_flag=True, help="Parse only.")
@click.option("--lint", is_flag=True, help="Also warn of what a person would want to know.")
@click.option("--no-lint", "disabled", multiple=True, metavar="CODE", help="Not this warning.")
@click.option("-j", "--jobs", default=1, type=Count(1, 64), show_default=True,
              help="Files that are read at a time.")  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="A line for each file.")
@click.option("--json", "as_json", is_flag=True, help="What is found of each file as data.")
@reads_all_modules
def command(
    files: tuple[str, ...],
    syntax: bool,
    lint: bool,
    disabled: tuple[str, ...],
    jobs: int,
    verbose: bool,
    as_json: bool,
) -> int:
    """Parse and verify all modules of all files; exit 1 when any fails.

    Quiet when clean; of several files it says at the end how many are not.
    """
    from hlo.tools.inspection.checking import Rules, checked

    rules = Rules(wanted_module(), syntax, lint, disabled)
    if as_json:
        rows = list(checked(files, rules, jobs))
        tell(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return 1 if any(row.errors for row in rows) else 0
    bad = errors = modules = 0
    for found in checked(files, rules, jobs):
        for message in (*found.warnings, *found.messages):
            say(message)
        bad += bool(found.errors)
        errors += found.errors
        modules += found.modules
        if verbose:
            tell(f"{found.path}: {_counted(found.errors, 'error') if found.errors else 'ok'}")
    if (bad or verbose) and (len(files) > 1 or modules > 1):
        held = _counted(modules, "module")
        say(f"{_counted(len(files), 'file')}, {held}: {_counted(errors, 'error')} in {bad} of them")
    return 1 if bad else 0


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
