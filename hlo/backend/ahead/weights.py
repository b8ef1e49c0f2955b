"""Weights: the constants of a program, or of its versions for several machines, as bytes.

    LinkTables --weights--> Weights: bytes, and where in them each table's constants begin

Each constant begins on a boundary of ALIGNMENT; equal bytes are there once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from hlo.backend.linking.link_table import LinkTable
from hlo.hashing import hasher
from hlo.machine import aligned


class Weights(Struct, frozen=True, eq=False):
    """The constants of programs as bytes, equal ones once.

    size_bytes: of all; starts: of each table the offsets of its constants; arrays: those that
    differ, in the order of their bytes.
    """

    size_bytes: int
    starts: tuple[tuple[int, ...], ...]
    arrays: tuple[np.ndarray, ...]

    @property
    def data(self) -> bytes:
        """Their bytes."""
        return b"".join(a.tobytes().ljust(aligned(a.nbytes), b"\0") for a in self.arrays)


def weights(tables: Sequence[LinkTable]) -> Weights:
    """The constants of all tables."""
    known: dict[tuple[int, bytes], int] = {}
    arrays: list[np.ndarray] = []
    end = 0
    starts = []
    for table in tables:
        own = []
        for constant in table.constants:
            content = np.ascontiguousarray(constant).reshape(-1).view(np.uint8)
            key = constant.nbytes, hasher(content.data).digest()
            if key not in known:
                known[key] = end
                arrays.append(constant)
                end += aligned(constant.nbytes)
            own.append(known[key])
        starts.append(tuple(own))
    return Weights(end, tuple(starts), tuple(arrays))
