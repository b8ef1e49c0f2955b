"""Regions: small kernels in a row that do not need each other, one parallel loop together.

    nodes --regions--> runs of nodes; a unit of the loop is a whole kernel

A kernel with too little work to be split leaves all threads but one idle; many of them together
keep all busy: a model's parameters are updated by one small kernel each. Kernels are not changed,
hence no bits either. Products are among them where they need no memory of a thread. Does not know:
how long a kernel takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct, field

from hlo.analysis.legality import family_of
from hlo.backend.ir.kernel import KernelSequence
from hlo.backend.planning.allocations import Allocation, AllocationKind, Node, Run
from hlo.ops.table import KernelFamily

MOST = 64  # The most kernels of a region: each is compared with the others.
_FAMILIES = (KernelFamily.LOOPS, KernelFamily.CONTRACTION)
_SIMPLE = frozenset(
    {
        AllocationKind.ARENA,
        AllocationKind.ARGUMENT,
        AllocationKind.RESULT,
        AllocationKind.DONATED,
        AllocationKind.CONSTANT,
    }
)


class _Uses(Struct):
    """Memory that kernels use: bytes of the arena, and other allocations by number."""

    numbers: set[int] = field(default_factory=set)
    bytes: list[tuple[int, int]] = field(default_factory=list)

    def add(self, numbers: Iterable[int], allocations: Sequence[Allocation]) -> None:
        for n in numbers:
            allocation = allocations[n]
            if allocation.kind is AllocationKind.ARENA:
                self.bytes.append((allocation.offset, allocation.offset + allocation.size))
            else:
                self.numbers.add(n)

    def meets(self, other: _Uses) -> bool:
        return not self.numbers.isdisjoint(other.numbers) or any(
            low < other_high and other_low < high
            for low, high in self.bytes
            for other_low, other_high in other.bytes
        )


class ParallelRegion(Struct):
    """Its kernels, and their time in microseconds."""

    nodes: list[Run] = field(default_factory=list)
    us: float = 0.0
    used: _Uses = field(default_factory=_Uses)
    written: _Uses = field(default_factory=_Uses)

    def took(self, node: Run, us: float, allocations: Sequence[Allocation]) -> bool:
        """Whether the node needs none of the others; it is one of them then."""
        used, written = _Uses(), _Uses()
        used.add(node.allocations, allocations)
        written.add((*node.results, *node.temporaries), allocations)
        if len(self.nodes) == MOST or written.meets(self.used) or used.meets(self.written):
            return False
        self.nodes.append(node)
        self.us += us
        for mine, its in ((self.used, used), (self.written, written)):
            mine.numbers |= its.numbers
            mine.bytes += its.bytes
        return True


def regions(
    nodes: Iterable[Node],
    allocations: Sequence[Allocation],
    alone_us: Callable[[Run], float | None],
) -> Iterator[ParallelRegion]:
    """Nodes in a row that may run at once; alone_us: the time of one, None if it is not small."""
    found = ParallelRegion()
    for node in nodes:
        us = alone_us(node) if isinstance(node, Run) and _is_plain(node, allocations) else None
        if us is not None and isinstance(node, Run) and found.took(node, us, allocations):
            continue
        yield found
        found = ParallelRegion()
        if us is not None and isinstance(node, Run):
            found.took(node, us, allocations)
    yield found


def _is_plain(node: Run, allocations: Sequence[Allocation]) -> bool:
    """Whether it is one loop nest, in memory that is nobody else's."""
    match node.implementation:
        case KernelSequence(calls=(call,)):
            is_staged = family_of(node.instruction) in _FAMILIES and not call.kernel.scratch_bytes
            return is_staged and all(allocations[n].kind in _SIMPLE for n in node.allocations)
    return False
