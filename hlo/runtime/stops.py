"""Stops: how a run ends before it is done, by a limit of time, a signal or the interpreter's exit.

Native code asks whether it has to stop (hlo/backend/entry/run_ir.py) and leaves with a number;
here are the time that a thread's next run has, and the errors that the numbers stand for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import NoReturn

from msgspec import Struct

from hlo.errors import HloError

LATE, EXITING, HANDLER = 3, 4, 5  # of hlo/backend/entry/process.py
LONGEST_S = 1e9  # more is for ever, and more than the clock holds in nanoseconds


class Enter(Struct, frozen=True):
    """The native functions around a run. enter: (entry, frame) -> status, without the interpreter's
    lock; raises what a signal's handler raised. limit: the clock's time (ns) at which this thread's
    next run is over; 0: never.
    """

    enter: Callable[[int, int], int]
    limit: Callable[[int], object]


class Deadline(Struct, frozen=True):
    """When a run of the reference is over; at: of time.monotonic."""

    seconds: float
    at: float

    @staticmethod
    def after(timeout: float | None) -> Deadline | None:
        """The deadline of a run that begins now, if it has one."""
        if timeout is None:
            return None
        seconds = checked_timeout(timeout)
        return Deadline(seconds, time.monotonic() + seconds)

    def check(self) -> None:
        """Raises HloError when the time is over."""
        if time.monotonic() >= self.at:
            raise late(self.seconds)


class _Limits(threading.local):
    seconds: float = 0.0  # of the run that has one
    failure: HloError | None = None  # of the handler that ended this thread's run


_limits = _Limits()


def fail(error: HloError) -> None:
    """Why this thread's run stops: a handler that it called failed."""
    _limits.failure = error


def checked_timeout(timeout: object) -> float:
    """The seconds that a run may take, at most LONGEST_S; HloError where the value is none."""
    known = isinstance(timeout, Real) and not isinstance(timeout, bool)
    if not known or not timeout > 0:  # type: ignore[operator]  # NaN is not
        raise HloError("arguments", f"timeout is {timeout!r}, expected seconds, more than 0")
    return LONGEST_S if timeout > LONGEST_S else float(timeout)  # type: ignore[arg-type, operator]


@contextmanager
def limited(seconds: float, limit: Callable[[int], object]) -> Iterator[None]:
    """This thread's next run is over after so long."""
    before, _limits.seconds = _limits.seconds, seconds
    limit(time.monotonic_ns() + int(seconds * 1e9))
    try:
        yield
    finally:
        limit(0)
        _limits.seconds = before


def late(seconds: float) -> HloError:
    """The error of a run whose time is over."""
    return HloError(
        "timeout",
        f"the run was stopped after {seconds:g} s, expected its end before",
        help="raise timeout (--timeout)",
    )


def raise_stopped(why: int) -> NoReturn:
    """The error of a run that stopped for a reason of native code.

    A run that the interpreter's exit stops is a daemon thread's, since exit waits for all others.
    Its thread ends by SystemExit, which threading ends in silence: what an error would print is
    cut off wherever the interpreter is gone by then.
    """
    if why == LATE:
        raise late(_limits.seconds)
    if why == HANDLER:
        failure, _limits.failure = _limits.failure, None
        assert failure is not None, "a handler that fails says why"
        raise failure
    assert why == EXITING, f"a run stops for a known reason, not {why}"
    raise SystemExit
