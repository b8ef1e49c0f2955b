"""A progress bar for long interpreter runs, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID

PATIENCE_S = 1.0  # shorter runs show nothing


def progress_bar() -> Callable[[int, int], None] | None:
    """Hears `done, total` of the entry's steps; None where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    if not sys.stderr.isatty():
        return None
    bar = Progress(console=Console(stderr=True), transient=True)
    start = time.monotonic()
    tasks: list[TaskID] = []

    def heard(done: int, total: int) -> None:
        if not tasks and time.monotonic() - start > PATIENCE_S and done < total:
            bar.start()
            tasks.append(bar.add_task("interpreter", total=total))
        if tasks:
            bar.update(tasks[0], completed=done)
            if done >= total:
                bar.stop()

    return heard
