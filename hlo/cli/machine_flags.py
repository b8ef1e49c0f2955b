"""--machine, --cpu and --features: which machine code is for; the command gets one description."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from hlo.tools.files.reading import read_text

if TYPE_CHECKING:
    from hlo.machine import Machine

Command = Callable[..., int]


def machine_flags(command: Command, base: Callable[[], Machine] | None = None) -> Command:
    """Adds the flags to a command, which gets them as the keyword `machine`; None: without any.

    base: whose features --features alone changes; None: the host's.
    """

    @functools.wraps(command)
    def wrapped(
        *given: object,
        described: str | None,
        cpu: str | None,
        features: str | None,
        **rest: object,
    ) -> int:
        return command(*given, machine=machine_of(described, cpu, features, base), **rest)

    for name, parameter, metavar, text in (
        ("--features", "features", "+A,-B", "Features (LLVM's names) that it has or lacks."),
        ("--cpu", "cpu", "NAME", "The machine of a processor (LLVM's name)."),
        ("--machine", "described", "NAME|FILE",
         "The machine that code is for: a name of --list-machines, or a description (JSON)."),
    ):  # fmt: skip
        wrapped = click.option(name, parameter, default=None, metavar=metavar, help=text)(wrapped)
    return wrapped


def machine_of(
    described: str | None,
    cpu: str | None,
    features: str | None,
    base: Callable[[], Machine] | None = None,
) -> Machine | None:
    """The description that the flags' texts stand for."""
    from hlo import driver
    from hlo.given_machines import from_json, with_features
    from hlo.machine import named

    if described is not None and cpu is not None:
        raise click.UsageError("--machine and --cpu both name a machine, expected one of them")
    name = described or cpu
    if name is None:
        machine = None
    elif described is not None and (os.sep in name or name.endswith(".json")):
        machine = from_json(read_text(name), name)
    else:
        machine = named(name)
    if features is None:
        return machine
    return with_features(machine or (base or driver.host_machine)(), features)
