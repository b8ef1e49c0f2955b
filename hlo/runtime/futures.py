"""Futures of XLA's FFI: results that a handler promises, and what waits for them."""

from __future__ import annotations

import threading

from hlo.process.once import lock


class Futures:
    """By handle: an event, and the handle of an error, 0 where there is none."""

    def __init__(self) -> None:
        self._lock = lock()
        self._events: dict[int, threading.Event] = {}
        self._errors: dict[int, int] = {}

    def create(self, handle: int) -> None:
        """A future that is not there yet."""
        with self._lock:
            self._events[handle] = threading.Event()

    def settle(self, handle: int, error: int = 0) -> bool:
        """It is there, or has failed; whether there is such a future."""
        event = self._events.get(handle)
        if event is None:
            return False
        self._errors[handle] = error
        event.set()
        return True

    def awaited(self, handle: int) -> int | None:
        """The error of a future once it is there, which then is forgotten; None: no such future."""
        event = self._events.get(handle)
        if event is None:
            return None
        event.wait()
        with self._lock:
            self._events.pop(handle, None)
            return self._errors.pop(handle, 0)
