"""No garbage collection while a compiler works: its graphs are alive.

Walking them to find that out takes as long as the work itself (half of the passes' time on a
module of 100,000 instructions).
"""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

LARGE = 1_000  # objects that make the collector's walk worth sparing
MOST_PENDING = 500_000  # objects spared before a full collection
SELDOM = 70_000  # objects made before a collection, in a process of our own
# Objects that Python's collector freezes itself, as they never die (3.12.1: 375). Whoever else
# freezes any has all of a process's, which are thousands.
FROZEN_BY_PYTHON = 1_000

_pending = 0  # objects spared since then
_resting = False  # whether it is this module that keeps the collector at rest


@contextmanager
def uncollected() -> Iterator[None]:
    """Within, or in a function decorated with it, Python's cycle collector rests.

    What a large piece of work leaves behind is alive: it goes to the collector's oldest generation
    unseen, where the next full collection finds it. So that work in a loop cannot fill the memory
    with dead graphs, a full collection runs after MOST_PENDING such objects.
    """
    if not gc.isenabled():
        yield  # the caller's choice, or an outer stage
        return
    _rest()
    try:
        yield
    finally:
        _settle(gc.get_count()[0])
        _wake()


def _rest() -> None:
    global _resting  # of the process, as the collector is
    gc.disable()
    _resting = True


def _wake() -> None:
    global _resting
    if _resting:
        _resting = False
        gc.enable()


if hasattr(os, "register_at_fork"):
    # The thread that would end the rest may not be there in the child.
    os.register_at_fork(after_in_child=_wake)


def _settle(made: int) -> None:
    """Take care of the objects made since the collector rested."""
    global _pending  # the collector is one per process, and so is what it owes
    if made < LARGE or gc.get_freeze_count() > FROZEN_BY_PYTHON:  # the caller's must stay so
        return
    _pending += made
    if _pending > MOST_PENDING:
        _pending = 0
        gc.collect()
    else:
        gc.freeze()
        gc.unfreeze()


def seldom_collected() -> None:
    """Python looks for cycles a hundredth as often, and at the end not at all. For processes of our
    own, as others' are not ours.

    While modules are imported, what it looks through is alive. At the end it would free each of
    them before the system takes all memory back at once: 18 of the 27 ms that a command took to
    end. What else belongs to an end is done: handlers of `atexit`, threads that others wait for,
    streams that are flushed.
    """
    gc.set_threshold(SELDOM)
    atexit.unregister(gc.freeze)  # once, however many commands a process runs
    atexit.register(gc.freeze)
