"""List order: of what can run next, what frees most memory, or takes least.

The greedy order of XLA's list scheduler (hlo_memory_scheduler.cc), which wins where several readers
of large values are ready at once: the one that ends a value's life goes first. O(edges log edges).
"""

from __future__ import annotations

import heapq
from collections import defaultdict

from hlo.analysis.leaves import leaf_count, leaf_sizes, value_bytes
from hlo.analysis.legality import SOURCES, is_forwarding
from hlo.backend.planning.update_order import Order, Resolve, Source, results_of
from hlo.ir.instruction import Instruction


def list_order(own: Order, root: Instruction, resolve: Resolve) -> Order:
    """The instructions of a topological order, greedily by memory; ties as they stand."""
    return _ListOrder(own, root, resolve).order()


class _ListOrder:
    """A computation's instructions, put in an order one by one.

    readers: per value who has yet to run; reads: the values of an instruction's operands.

    What the root holds has its memory from the beginning: it takes none, and is never freed.
    """

    def __init__(self, own: Order, root: Instruction, resolve: Resolve) -> None:
        self.own = own
        self.place = {instruction: n for n, instruction in enumerate(own)}
        self.readers: dict[Source, set[Instruction]] = defaultdict(set)
        self.reads: dict[Instruction, list[Source]] = {}
        self.waits: dict[Instruction, int] = {}
        self.users: dict[Instruction, list[Instruction]] = defaultdict(list)
        for instruction in own:
            needed = dict.fromkeys(instruction.operands)
            self.waits[instruction] = len(needed)
            for operand in needed:
                self.users[operand].append(instruction)
            if instruction.opcode not in SOURCES and not is_forwarding(instruction):
                self.reads[instruction] = values = _values(instruction, resolve)
                for value in values:
                    self.readers[value].add(instruction)
        self.results: dict[Instruction, int] = defaultdict(int)
        for source, leaf in results_of(root, resolve):
            self.readers.pop((source, leaf), None)
            self.results[source] += leaf_sizes(source.shape)[leaf]

    def order(self) -> Order:
        done: dict[Instruction, None] = {}
        heap = [self._entry(i) for i in self.own if not self.waits[i]]
        heapq.heapify(heap)
        while heap:
            weight, place = heapq.heappop(heap)
            instruction = self.own[place]
            if instruction in done or weight > self._entry(instruction)[0]:
                continue  # a better entry of it is in the heap
            done[instruction] = None
            for value in self.reads.get(instruction, ()):
                left = self.readers.get(value)
                if left is not None:
                    left.discard(instruction)
                    if len(left) == 1:
                        (last,) = left
                        if not self.waits[last]:
                            heapq.heappush(heap, self._entry(last))
            for user in self.users[instruction]:
                self.waits[user] -= 1
                if not self.waits[user]:
                    heapq.heappush(heap, self._entry(user))
        return tuple(done)

    def _entry(self, instruction: Instruction) -> tuple[int, int]:
        """Bytes that it takes less those that it frees, and its position."""
        if instruction not in self.reads:
            return -(1 << 62), self.place[instruction]
        weight = value_bytes(instruction.shape) - self.results.get(instruction, 0)
        for source, leaf in self.reads[instruction]:
            left = self.readers.get((source, leaf))
            if left is not None and len(left) == 1:
                weight -= leaf_sizes(source.shape)[leaf]
        return weight, self.place[instruction]


def _values(instruction: Instruction, resolve: Resolve) -> list[Source]:
    """The values in memory that an instruction reads, each once; arguments are no one's to free."""
    found = {
        value: None
        for operand in instruction.operands
        for leaf in range(leaf_count(operand.shape))
        if (value := resolve(operand, leaf)) is not None and value[0].opcode not in SOURCES
    }
    return list(found)


def with_late_fills(order: Order) -> Order:
    """The order with what reads no memory (a broadcast of a constant, an iota) right before its
    first user.

    It frees nothing, so that it never helps to run earlier.
    """
    fills: set[Instruction] = set()
    waiting: dict[Instruction, None] = {}  # fills that nothing has used yet
    done: list[Instruction] = []
    for instruction in order:
        if _is_fill(instruction, fills):
            fills.add(instruction)
            waiting[instruction] = None
            continue
        stack = [instruction]
        while stack:
            top = stack[-1]
            late = [o for o in top.operands if o in waiting]
            if late:
                stack += late
            else:
                stack.pop()
                if top in waiting:
                    del waiting[top]
                    done.append(top)
        done.append(instruction)
    return (*done, *waiting)


def _is_fill(instruction: Instruction, fills: set[Instruction]) -> bool:
    if instruction.opcode in SOURCES or is_forwarding(instruction) or not instruction.users:
        return False
    return all(o.opcode == "constant" or o in fills for o in instruction.operands)
