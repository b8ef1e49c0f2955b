"""Frames: room on Python's stack for a module whose computations call each other deeply.

Calls of the reference are calls of Python. Python's limit is the process's, so it is raised for
modules that need it only, and is what it was when the last of their runs ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hlo.ir.computation import Computation
from hlo.ir.graph import callees, callees_first
from hlo.ir.module import Module
from hlo.process.once import lock

DEEPEST_CALL = 300  # calls inside calls; each costs a few Python frames, and the C stack is finite
SHALLOW = 50  # calls inside calls for which there is room in any case
FRAMES = 8  # of Python, at most, for each
BESIDE = 1000  # frames of the caller, and of ops


@contextmanager
def room_for(module: Module) -> Iterator[None]:
    """Room for the module's calls while it is evaluated."""
    depth = min(call_depth(module), DEEPEST_CALL)
    if depth <= SHALLOW:
        yield
        return
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()


def call_depth(module: Module) -> int:
    """How many computations of the module may be in evaluation at once. O(calls)."""
    depths: dict[Computation, int] = {}
    for computation in callees_first(module):
        depths[computation] = 1 + max((depths[c] for c in callees(computation)), default=0)
    return depths[module.entry]


class _Limit:
    """Python's limit of frames: raised by the first run, set back by the last of all threads'."""

    def __init__(self) -> None:
        self._lock = lock()
        self._runs = 0
        self._before = self._raised = 0

    def enter(self) -> None:
        with self._lock:
            if not self._runs:
                self._before = sys.getrecursionlimit()
                self._raised = max(self._before, BESIDE + FRAMES * DEEPEST_CALL)
                sys.setrecursionlimit(self._raised)
            self._runs += 1

    def leave(self) -> None:
        with self._lock:
            self._runs -= 1
            if not self._runs and sys.getrecursionlimit() == self._raised:  # nobody else set it
                sys.setrecursionlimit(self._before)


_LIMIT = _Limit()
