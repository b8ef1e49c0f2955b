"""Writing archives of arrays, those of types that NumPy cannot store among them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hlo.tools.files.writing import write_file


def write_npz(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays whole or not at all; a type NumPy cannot store keeps its bits and its name."""
    stored = {}
    for name, array in arrays.items():
        plain, suffix = storable(array)
        stored[name + suffix] = plain
    write_file(path, lambda stream: np.savez(stream, **stored))  # type: ignore[arg-type]  # arrays by name


def storable(array: np.ndarray) -> tuple[np.ndarray, str]:
    """The array as NumPy can store it, and its name's suffix `:dtype` where bits stand for it."""
    if array.dtype.isbuiltin != 2:  # NumPy's own: f8e5m2 says that it is of kind "f" as well
        return array, ""
    return array.view(np.dtype(f"u{array.dtype.itemsize}")), f":{array.dtype.name}"
