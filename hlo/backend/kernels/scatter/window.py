"""The window of a scatter: the loops that run over it, and short runs in vectors."""

from __future__ import annotations

from msgspec import Struct


class Loop(Struct, frozen=True):
    """A dimension of the window: its size, the strides in operand and updates, in elements, and
    which of the updates' dimensions it is; of several that are one run the first.
    """

    size: int
    operand: int
    update: int
    dim: int


def joined(loops: list[Loop]) -> tuple[Loop, ...]:
    """Neighbours that are one run in both arrays become one loop; loops of one step go."""
    result: list[Loop] = []
    for inner in (loop for loop in loops if loop.size != 1):
        outer = result[-1] if result else None
        if (
            outer is not None
            and outer.operand == inner.size * inner.operand
            and outer.update == inner.size * inner.update
        ):
            result[-1] = Loop(outer.size * inner.size, inner.operand, inner.update, outer.dim)
        else:
            result.append(inner)
    return tuple(result)


def pieces(size: int, lanes: int) -> list[int]:
    """A short run as vectors of `lanes` and then of powers of two, which are one access each: what
    a store leaves is on its way to the next load of the same place."""
    found = [lanes] * (size // lanes)
    return found + [1 << k for k in range(lanes.bit_length() - 1, -1, -1) if size % lanes >> k & 1]
