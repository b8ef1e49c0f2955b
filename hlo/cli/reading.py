"""Reading a module for a command, and the flag that says how large inputs may be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from hlo.cli.terminal import tell
from hlo.errors import HloError
from hlo.tools.files.input_size import DEFAULT_BYTES, limited

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


class _Parts(Struct):
    """Which of a path's modules a command works on, and of how many."""

    at: int = 0
    count: int = 1


_parts: ContextVar[_Parts | None] = ContextVar("_parts", default=None)
SEPARATOR = "// -----"  # between modules of one file, for MLIR's tools as well
WRITTEN = ("output", "outputs", "page", "trace")  # parameters that are files to write


def reads_modules(command: Command) -> Command:
    """Adds --module and --split-input-file, and what `reads_input` adds, to a command, which runs
    once for each module where the latter is given.
    """

    @wraps(command)
    def called(*arguments: object, split: bool, **fields: object) -> int:
        if not split:
            return command(*arguments, **fields)
        if wanted_module() is not None:
            raise click.UsageError("--module and --split-input-file exclude each other")
        if any(fields.get(name) not in (None, "-") for name in WRITTEN):
            raise click.UsageError("--split-input-file writes to standard output, not to a file")
        parts = _Parts()
        token = _parts.set(parts)
        try:
            code = command(*arguments, **fields)
            while parts.at + 1 < parts.count:
                parts.at += 1
                tell(SEPARATOR)
                code = max(code, command(*arguments, **fields))
        finally:
            _parts.reset(token)
        return code

    return _selects(called)


def reads_all_modules(command: Command) -> Command:
    """The same for a command that asks `is_split` and `read_modules` itself."""

    @wraps(command)
    def called(*arguments: object, split: bool, **fields: object) -> int:
        token = _parts.set(_Parts() if split else None)
        try:
            return command(*arguments, **fields)
        finally:
            _parts.reset(token)

    return _selects(called)


def is_split() -> bool:
    """Whether each module of a file is to be worked on."""
    return _parts.get() is not None


def _selects(command: Command) -> Command:
    command = click.option(
        "--split-input-file", "split", is_flag=True,
        help="Each module of a file, archive or folder in turn (text: parted by // -----).",
    )(command)  # fmt: skip
    return click.option(
        "--module",
        default=None,
        expose_value=False,
        callback=_choose,
        metavar="NAME",
        help="Which module of a folder, an archive or a log: a name or part of one.",
    )(reads_input(command))


def reads_input(command: Command) -> Command:
    """Adds --max-input-size to a command; readers ask hlo/tools/files/input_size.py for it."""
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


def read_modules(path: str) -> Iterator[Module]:
    """The same of all modules, where each is to be worked on."""
    if not is_split():
        yield read_module(path)
        return
    from hlo import driver

    for read in driver.readers(path):
        yield read()


def read_program(path: str) -> Program:
    """A module with what a snapshot has recorded of a run."""
    from hlo import driver

    parts = _parts.get()
    if parts is None:
        return driver.read_program(path, _wanted.get())
    programs = driver.program_readers(path)
    parts.count = max(parts.count, len(programs))
    if parts.at >= len(programs):
        there = f"{len(programs)} modules, expected {parts.count} as the other file has"
        raise HloError("file", f"{path} has {there}")
    return programs[parts.at]()
