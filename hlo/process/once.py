"""Made once: values that several threads may be the first to ask for, and locks that a fork resets.

    @once
    def tables() -> Tables: ...        tables() is tables(), whoever calls it first and when

    class Work:                        work.part is work.part
        lock = lock()
        @cached_property
        def part(self) -> Part: ...

Each value has a lock of its own, which its thread may take again: work that waits for other threads
(LLVM's, say) may ask for other values there. A module must not ask for one while it is imported:
the thread that makes the value may be waiting for that very import.

A forked child has none of the other threads, so what they held is free there, and what they were
making is made again. Does not know what is made.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar
from weakref import WeakSet

_P = ParamSpec("_P")
_T = TypeVar("_T")
_locks: WeakSet[Any] = WeakSet()  # of all that lock() gave


class Once(Generic[_P, _T]):
    """A function whose value for the same arguments is made by one thread while others wait."""

    def __init__(self, make: Callable[_P, _T]) -> None:
        update_wrapper(self, make)
        self._make = make
        self._made: dict[object, _T] = {}
        self._lock = lock()

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        key: object = (args, *sorted(kwargs.items())) if kwargs else args
        try:
            return self._made[key]
        except KeyError:
            pass
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(*args, **kwargs)
            return self._made[key]

    def cache_clear(self) -> None:
        """The next call makes it anew."""
        with self._lock:
            self._made.clear()


def once(make: Callable[_P, _T]) -> Once[_P, _T]:
    """A function that a process calls once for the same arguments. What it raises is not kept."""
    return Once(make)


class cached_property(Generic[_T]):
    """A method whose value is made once for its object, which has a `lock`, and is kept in it:
    functools' one of that name with a lock."""

    def __init__(self, make: Callable[[Any], _T]) -> None:
        self.__doc__ = make.__doc__
        self._make = make

    def __get__(self, owner: Any, kind: type) -> _T:
        made, name = vars(owner), self._make.__name__
        with owner.lock:
            if name not in made:
                made[name] = self._make(owner)
            value: _T = made[name]
        return value


def lock() -> AbstractContextManager[bool]:
    """A lock that its thread may take again, and that is free in a forked child."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _forked() -> None:
    for held in list(_locks):
        held._at_fork_reinit()  # as the standard library does with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
