"""--watch: a command runs again whenever one of its files changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import wraps

import click

from hlo.cli.terminal import say
from hlo.errors import HloError

Command = Callable[..., int]
POLL_SECONDS = 0.2


def watches(command: Command) -> Command:
    """Adds --watch to a command that has `files`: Ctrl-C ends it."""

    @click.option("--watch", is_flag=True, help="Run again when a file changes, until Ctrl-C.")
    @wraps(command)
    def run(*args: object, watch: bool, files: tuple[str, ...], **given: object) -> int:
        if not watch:
            return command(*args, files=files, **given)
        if not files or "-" in files:
            raise click.UsageError("--watch: standard input does not change, expected files")
        while True:
            seen = _states(files)
            try:
                command(*args, files=files, **given)
            except (HloError, OSError) as error:
                say(str(error))
            say(f"--- {time.strftime('%H:%M:%S')} waiting for {', '.join(files)}")
            while _states(files) == seen:
                time.sleep(POLL_SECONDS)

    return run


def _states(files: Sequence[str]) -> list[tuple[int, int, int] | None]:
    """What changes with a file's content; None of one that is not there."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return found
