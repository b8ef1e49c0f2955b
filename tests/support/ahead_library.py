"""A program that was compiled ahead of time, in this process: called as C calls it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hlo import driver
from hlo.backend.ahead.ahead_of_time import AheadOfTime
from hlo.tools.c_compiler import linker, shared_library


class Library:
    """A shared library in a folder; calls give statuses."""

    def __init__(self, made: AheadOfTime, folder: Path, *flags: str) -> None:
        file = folder / f"{made.name}.so"
        chosen = linker(made.machine, driver.host_machine())
        file.write_bytes(shared_library([made.object], chosen, flags))
        self.code = ctypes.CDLL(str(file))
        self.made = made
        self.arena = aligned(made.interface.arena_bytes)

    def __call__(
        self,
        inputs: Sequence[np.ndarray | None],
        outputs: Sequence[np.ndarray | None],
        arena: int = -1,
        *more: object,
    ) -> int:
        """arena: an address, else memory of the library's own. more: of NAME_parallel."""
        name = f"{self.made.name}_parallel" if more else self.made.name
        place = ctypes.c_void_p(self.arena.ctypes.data if arena < 0 else arena)
        function = getattr(self.code, name)
        return int(function(addresses(inputs), addresses(outputs), place, *more))

    def results(self) -> list[np.ndarray]:
        """Room for the results."""
        return [np.full(r.shape.dims, 85, r.shape.dtype.numpy) for r in self.made.interface.results]


def aligned(size: int) -> np.ndarray:
    """Memory as an arena begins."""
    memory = np.full(size + 64, 255, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def addresses(arrays: Sequence[np.ndarray | None]) -> ctypes.Array[ctypes.c_void_p]:
    """An array of C's; null for None."""
    found = [None if a is None else a.ctypes.data for a in arrays]
    return (ctypes.c_void_p * len(found))(*found)
