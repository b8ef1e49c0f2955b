"""Post-dominators of chains: the last element that all that is computed of an element goes through.

    e = exp(x),  d = 1 / (1 + e),  s = x * d;  sum(s), max(s)  -->  of e and of d: s

Whoever reads e reads s instead, at the same index: where s is kept, neither e, d nor what lies
between is computed again. In terms of graphs: the last post-dominator that elementwise ops lead to.
"""

from __future__ import annotations

from heapq import heappop, heappush

from hlo.analysis.fusibility import is_elementwise
from hlo.ir.instruction import Instruction


class PostDominators:
    """Remembers where instructions stand."""

    def __init__(self) -> None:
        self._positions: dict[Instruction, int] = {}

    def of(self, start: Instruction) -> Instruction:
        """The last element that all readers of `start` go through, `start` itself if none."""
        found, dims = start, start.shape.dims
        queue: list[tuple[int, Instruction]] = []
        queued: set[Instruction] = set()
        reached = start
        while True:
            for user in reached.users:
                if user not in queued:
                    queued.add(user)
                    heappush(queue, (self._position(user), user))
            if not queue:
                return found
            _, reached = heappop(queue)
            # the root is an output: it is read where it is stored
            if reached.is_root or not is_elementwise(reached) or reached.shape.dims != dims:
                return found
            if not queue and _is_as_small(reached, start):
                found = reached

    def _position(self, instruction: Instruction) -> int:
        if instruction not in self._positions:
            assert instruction.computation is not None, "what is compiled stands in a computation"
            members = instruction.computation.instructions
            self._positions.update({member: k for k, member in enumerate(members)})
        return self._positions[instruction]


def _is_as_small(value: Instruction, start: Instruction) -> bool:
    """Whether keeping the value takes no more memory, and the same kind of lanes."""
    own, other = value.shape.dtype, start.shape.dtype
    return own.is_float and other.is_float and own.item_bytes <= other.item_bytes
