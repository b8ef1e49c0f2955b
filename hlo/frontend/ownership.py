"""Which arrays that functions have returned lie in memory of ours, and may be given away.

A donated NumPy array lends its memory as it is. A donated jax array is deleted first, as by JAX;
its memory is ours alone unless somebody still looks at it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from hlo.tools.jax import jax_door

OWN_REFERENCES = 2  # to memory that `lent` holds while it counts: its list, and the argument


class _Entry(Struct, frozen=True):
    """An array that was returned and is ours still.

    array: what was returned; memory: the NumPy array that it is, or that it shares.
    """

    array: weakref.ref[Any]
    memory: weakref.ref[np.ndarray]


_returned: dict[int, _Entry] = {}


def enter(array: Any, memory: np.ndarray) -> None:
    """Remember an array that is returned, in that memory, for as long as it lives."""
    key = id(array)

    def forgotten(reference: object) -> None:
        found = _returned.get(key)
        if found is not None and found.array is reference:
            del _returned[key]

    _returned[key] = _Entry(weakref.ref(array, forgotten), weakref.ref(memory))


def is_own(array: object) -> bool:
    """Whether an array is a NumPy array that was returned."""
    found = _returned.get(id(array))
    return found is not None and found.array() is array and found.memory() is array


class Lent(Struct, frozen=True):
    """The memory of arrays that are given away. is_free: whether nobody else looks at it."""

    memories: list[np.ndarray]
    is_free: bool


def lent(arrays: Sequence[Any]) -> Lent | None:
    """Take the memory of arrays; None, and nothing done, where one has none of ours.

    The jax arrays among them are deleted.
    """
    found: list[np.ndarray] = []
    for array in arrays:
        entry = _returned.get(id(array))
        memory = None if entry is None or entry.array() is not array else entry.memory()
        if memory is None:
            return None
        found.append(memory)
    numbers = [n for n, array in enumerate(arrays) if array is not found[n]]
    if not numbers:
        return Lent(found, is_free=True)
    for n in numbers:
        arrays[n].delete()
    jax_door.forget_deleted()()
    memory = entry = None
    return Lent(found, all(sys.getrefcount(found[n]) <= OWN_REFERENCES for n in numbers))
