"""A progress bar for whatever takes longer than a second, on a terminal only."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hlo.process.once import lock
from hlo.progress import listening

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

PATIENCE_S = 1.0  # shorter work shows nothing


@contextmanager
def progress_bars() -> Iterator[None]:
    """Within this, long work shows on stderr how far it is, if that is a terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    with listening(Bar()):
        yield


class Bar:
    """One line, of the stage at work, once the command has taken a second; it goes before anything
    else is written. It comes by itself, for a stage may be long in what it does first.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._start = time.monotonic()
        self._lock = lock()
        self._waiting: threading.Timer | None = None
        self._state: tuple[str, int, int] | None = None
        self._shown: Progress | None = None
        self._task: TaskID | None = None

    def heard(self, stage: str, done: int, total: int) -> None:
        """What to show; nothing of a stage that is done."""
        if total and done >= total:
            self.hide()
            return
        with self._lock:
            self._state = (stage, done, total)
            left = PATIENCE_S - (time.monotonic() - self._start)
            if left <= 0:
                self._show()
            elif self._waiting is None:
                self._waiting = threading.Timer(left, self._show_later)
                self._waiting.daemon = True
                self._waiting.start()

    def hide(self) -> None:
        """The line goes; what is heard next brings it back."""
        with self._lock:
            if self._waiting is not None:
                self._waiting.cancel()
            if self._shown is not None:
                self._shown.stop()
            self._waiting = self._state = self._shown = self._task = None

    def _show_later(self) -> None:
        with self._lock:
            self._show()

    def _show(self) -> None:
        if self._state is None:
            return
        stage, done, total = self._state
        if self._shown is None or self._task is None:
            self._shown = self._made()
            self._task = self._shown.add_task(stage)
            self._shown.start()
        self._shown.update(self._task, description=stage, completed=done, total=total or None)

    def _made(self) -> Progress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                   TimeElapsedColumn())  # fmt: skip
        console = self._console or Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
        return Progress(
            *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
        )
