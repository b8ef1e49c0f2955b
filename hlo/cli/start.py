"""Where hlo-opt and hlo-run start as processes: what an interrupt does before a command is there.

What the commands import takes most of a start, and nothing has begun: an interrupt then ends the
process as the system does, without Python's traceback of an import. Later ones are a command's own.
"""

from __future__ import annotations

import signal
import sys
from _thread import interrupt_main, start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def opt() -> None:
    """The process of hlo-opt."""
    with _starting():
        from hlo.cli.main import opt as command
    _ended_by_interrupts(command)


def run() -> None:
    """The process of hlo-run."""
    with _starting():
        from hlo.cli.main import run as command
    _ended_by_interrupts(command)


def both() -> None:
    """The process of `python -m hlo opt ..` and `python -m hlo run ..`."""
    with _starting():
        from hlo.cli.main import both as command
    _ended_by_interrupts(command)


@contextmanager
def _starting() -> Iterator[None]:
    """Within, interrupts have the system's effect; those that are ignored (nohup) stay so."""
    sys.unraisablehook = _sent_again
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _ended_by_interrupts(command: Callable[[], None]) -> None:
    """Run it; an interrupt before it answers to them, or after, has the system's effect."""
    try:
        command()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def _sent_again(lost: sys.UnraisableHookArgs) -> None:
    """Python drops an interrupt that meets a callback, of its imports' locks for one.

    Another thread sends it, since it would meet this function, which is a callback as well.
    """
    if lost.exc_type is KeyboardInterrupt:
        start_new_thread(interrupt_main, ())
    else:
        sys.__unraisablehook__(lost)
