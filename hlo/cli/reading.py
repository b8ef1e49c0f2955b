"""Reading a module for a command, and the flag that says how large inputs may be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import click

from hlo.tools.input_size import DEFAULT_BYTES, limited

if TYPE_CHECKING:
    from hlo.formats.program import Program
    from hlo.ir.module import Module

Command = Callable[..., int]
UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def size_bytes(text: str) -> int | None:
    """`100`, `4G`: a number of bytes; `none`: None."""
    if text == "none":
        return None
    match = re.fullmatch(r"([0-9]{1,18})([KMGT]?)", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no size, expected BYTES, as 100 or 4G, or none.")
    return int(match[1]) << UNITS[match[2]]


def _limit(ctx: click.Context, param: click.Parameter, text: str) -> None:
    del param
    ctx.with_resource(limited(size_bytes(text)))


_wanted: ContextVar[str | None] = ContextVar("_wanted", default=None)


@contextmanager
def _wanting(name: str | None) -> Iterator[None]:
    """Within this, `read_module` takes the module of this name."""
    token = _wanted.set(name)
    try:
        yield
    finally:
        _wanted.reset(token)


def wanted_module() -> str | None:
    """What --module says, within a command that has it."""
    return _wanted.get()


def _choose(ctx: click.Context, param: click.Parameter, name: str | None) -> None:
    del param
    ctx.with_resource(_wanting(name))


def reads_modules(command: Command) -> Command:
    """Adds --module, and what `reads_input` adds, to a command."""
    return click.option(
        "--module",
        default=None,
        expose_value=False,
        callback=_choose,
        metavar="NAME",
        help="Which module of a folder, an archive or a log: a name or part of one.",
    )(reads_input(command))


def reads_input(command: Command) -> Command:
    """Adds --max-input-size to a command; its readers know of it (hlo/tools/input_size.py)."""
    return click.option(
        "--max-input-size",
        default=f"{DEFAULT_BYTES >> 30}G",
        show_default=True,
        expose_value=False,
        callback=_limit,
        metavar="BYTES|none",
        help="The largest input: a file, standard input, what an npz unpacks to.",
    )(command)


def read_module(path: str) -> Module:
    """The module in a file, `-` for standard input; raises HloErrors that name the file."""
    return read_program(path).module


def read_program(path: str) -> Program:
    """The same, with what a snapshot has recorded of a run."""
    from hlo import driver

    return driver.read_program(path, _wanted.get())
