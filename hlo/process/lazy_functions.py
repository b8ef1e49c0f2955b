"""Lazy functions: those of a module that is imported when one of them is first called.

    def _reals() -> ModuleType:
        from hlo.ops.numerics import reals
        return reals

    reals = LazyModule(_reals)
    reals.sign                              calls the module's `sign`
    reals.arithmetic.of(np.floor)           calls what the module's `arithmetic` makes of np.floor

For tables whose rows hold functions of which few programs call any: a table is then imported
without them. The import is written as one, so that the picture of the rooms knows of it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


class LazyModule:
    """A module's functions, without the module until one is called."""

    def __init__(self, load: Callable[[], ModuleType]) -> None:
        self._load = load

    def __getattr__(self, name: str) -> Function:
        if name.startswith("__"):  # what Python looks for, which no table asks for
            raise AttributeError(name)
        found = Function(lambda: getattr(self._load(), name))
        setattr(self, name, found)  # the same one for all who ask
        return found


class Function:
    """A function that is found at its first call."""

    __slots__ = ("_find", "_found")

    def __init__(self, find: Callable[[], Callable[..., Any]]) -> None:
        self._find = find
        self._found: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self._found
        if found is None:
            found = self._found = self._find()
        return found(*args, **kwargs)

    def of(self, *given: Any) -> Function:
        """The function that this one makes of what is given, at that one's first call."""
        return Function(lambda: self(*given))
