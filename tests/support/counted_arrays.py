"""Arrays that count what NumPy looks at, which calls of functions do not show.

    with counted(module) as looks: ...; looks() is the number of elements

A module under test makes its arrays by the name `np`; inside, what that makes is a counted array,
and so is what is made of one. An operation counts the elements of its result, a part or a sorting
those that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

_MAKERS = frozenset({"arange", "concatenate", "empty", "fromiter", "full", "zeros"})


class CountedArray(np.ndarray):
    """An array whose elements count when something is computed from them."""

    looks = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(i) if isinstance(i, CountedArray) else i for i in inputs]
        CountedArray.looks += max(np.size(i) for i in plain)
        return _counted(getattr(ufunc, method)(*plain, **options))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        CountedArray.looks += self.size
        return _counted(func(*_plain(args), **_plain(kwargs)))

    def __getitem__(self, key: Any) -> Any:
        found = np.asarray(self)[_plain(key)]
        if not isinstance(key, slice):
            CountedArray.looks += np.size(key)
        return _counted(found)


class _Counting:
    """NumPy, whose new arrays are counted."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name not in _MAKERS:
            return found
        return lambda *args, **kwargs: _counted(found(*_plain(args), **_plain(kwargs)))


@contextmanager
def counted(module: ModuleType) -> Iterator[Callable[[], int]]:
    """Count the elements that a module's functions look at."""
    before, CountedArray.looks = module.np, 0
    module.np = _Counting()  # type: ignore[attr-defined]
    try:
        yield lambda: CountedArray.looks
    finally:
        module.np = before  # type: ignore[attr-defined]


def _counted(value: Any) -> Any:
    return value.view(CountedArray) if isinstance(value, np.ndarray) else value


def _plain(value: Any) -> Any:
    match value:
        case CountedArray():
            return np.asarray(value)
        case tuple() | list():
            return type(value)(_plain(v) for v in value)
        case dict():
            return {key: _plain(v) for key, v in value.items()}
    return value
