"""hlo-opt check FILE...: all errors of all files, quiet when clean."""

from __future__ import annotations

import click

from hlo import driver
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import say, tell
from hlo.errors import HloError


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--syntax", is_flag=True, help="Parse only.")
@click.option("--lint", is_flag=True, help="Also warn of what a person would want to know.")
@click.option("--no-lint", "disabled", multiple=True, metavar="CODE", help="Not this warning.")
@click.option("-v", "--verbose", is_flag=True, help="A line for each file.")
@reads_modules
def command(
    files: tuple[str, ...], syntax: bool, lint: bool, disabled: tuple[str, ...], verbose: bool
) -> int:
    """Parse and verify; exit 1 when any file fails."""
    bad = 0
    for file in files:
        try:
            module = read_module(file)
            if not syntax:
                driver.verify(module)
            if lint:
                for warning in driver.lint(module, disabled):
                    say(str(warning))
        except HloError as error:
            bad += 1
            say(str(error))
            if verbose:
                tell(f"{file}: {len(getattr(error, 'errors', [error]))} errors")
        else:
            if verbose:
                tell(f"{file}: ok")
    return 1 if bad else 0
