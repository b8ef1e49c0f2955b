"""Progress: what long work says of itself while it runs, to whoever listens.

    with listening(listener): ... tell("machine code", 3, 8) ... hide()

Work that nobody listens to pays for one look at a variable. Listeners hear of the thread that they
were set on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Listener(Protocol):
    """Who hears of progress."""

    def heard(self, stage: str, done: int, total: int) -> None:
        """So many of so many parts of a stage are done; total 0: nobody knows of how many."""

    def hide(self) -> None:
        """Something else is about to be written."""


_listener: ContextVar[Listener | None] = ContextVar("_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within this, the listener hears what `tell` is told."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
        listener.hide()


def tell(stage: str, done: int, total: int = 0) -> None:
    """So many of so many parts of a stage are done."""
    listener = _listener.get()
    if listener is not None:
        listener.heard(stage, done, total)


def hide() -> None:
    """Whatever shows progress goes from the terminal, to come back with the next of it."""
    listener = _listener.get()
    if listener is not None:
        listener.hide()
