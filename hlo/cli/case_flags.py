"""Flags of commands that run a module on arguments: where these come from, and what is equal."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import click

from hlo.choices import INPUTS
from hlo.cli.completing import FILE
from hlo.cli.numbers import SEED, TIMEOUT, TOLERANCE, Count
from hlo.cli.reading import read_module

Command = Callable[..., int]
Option = Callable[[Command], Command]

JOBS = Count(1, 64)
INPUT_FLAGS = (
    click.option("--input", "inputs", multiple=True, help="f32[2,3]=VALUES, @x.npy or NAME=..."),
    click.option("--inputs", "archive", type=FILE, default=None, metavar="FILE.npz",
                 help="Arrays by name."),
    click.option("--random", "kind", type=click.Choice(INPUTS), default="normal", show_default=True,
                 help="Made-up inputs; model: as a trained model's."),
    click.option("--seed", default=0, type=SEED, show_default=True),
)  # fmt: skip
TOLERANCE_FLAGS = (
    click.option("--rtol", default=None, type=TOLERANCE, help="Passing relative error."),
    click.option("--atol", default=None, type=TOLERANCE, help="Passing absolute error."),
    click.option("--ulp", default=None, type=TOLERANCE, help="Passing error in ulps."),
)
TRIAL_FLAGS = (
    click.option("-j", "--jobs", default=1, type=JOBS, show_default=True,
                 help="Cases tried at a time; the outcome is the same."),
    click.option("--timeout", default=60.0, type=TIMEOUT, show_default=True, metavar="SECONDS",
                 help="Of one trial; a longer one has not the fault."),
    click.option("--load", "loaded", multiple=True, metavar="FILE.py",
                 help="Run a file of your own passes and rules first."),
)  # fmt: skip


def flags(*groups: tuple[Option, ...]) -> Callable[[Command], Command]:
    """Adds groups of options to a command."""

    def add(command: Command) -> Command:
        for option in reversed([o for group in groups for o in group]):
            command = option(command)
        return command

    return add


def takes_tolerance(command: Command) -> Command:
    """Adds --rtol, --atol, --ulp; the command gets them as `tolerance`."""

    @wraps(command)
    def called(
        *arguments: object,
        rtol: float | None,
        atol: float | None,
        ulp: float | None,
        **fields: object,
    ) -> int:
        from hlo.tools.comparison.compare import Tolerance

        return command(*arguments, tolerance=Tolerance(rtol, atol, ulp), **fields)

    return flags(TOLERANCE_FLAGS)(called)


def takes_case(command: Command) -> Command:
    """Adds FILE and the flags of its inputs; the command gets the verified module and its
    arguments as `case`.
    """

    @wraps(command)
    def called(
        file: str,
        inputs: tuple[str, ...],
        archive: str | None,
        kind: str,
        seed: int,
        **fields: object,
    ) -> int:
        from hlo import driver
        from hlo.cli.arguments import given_arguments
        from hlo.tools.cases.case import Case
        from hlo.tools.cases.fill import fill_elided

        module = read_module(file)
        driver.verify(module)
        module = fill_elided(module, seed)
        values = given_arguments(module, inputs, archive, kind, seed)
        return command(case=Case(module, tuple(values)), **fields)

    return click.argument("file", type=FILE, metavar="FILE")(flags(INPUT_FLAGS)(called))
