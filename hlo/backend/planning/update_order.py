"""Update order: who reads a value stands before what is written over it, where both orders do.

    order, root leaves that replace parameter leaves --readers_first--> order

A dynamic-update-slice, a scatter or a loop works on its operand's memory, a loop's next state on
the last state's: a reader that comes later costs a copy of all of it, in every iteration. The order
is changed only as far as that takes: list scheduling by the old positions, with an edge from every
reader to the writer that none of its operands needs. O(edges), and O(n^2 / 64) where there are such
edges.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from hlo.analysis.leaves import leaf_count, leaf_sizes
from hlo.analysis.legality import SOURCES, alias, is_forwarding
from hlo.ir.computation import Computation
from hlo.ir.graph import control_predecessors
from hlo.ir.instruction import Instruction

Source = tuple[Instruction, int]  # An instruction that defines a leaf, and the leaf's number.
Resolve = Callable[[Instruction, int], Source | None]  # What defines a leaf; None: nothing does.
Order = tuple[Instruction, ...]
Replaced = Iterable[tuple[Source, Source]]  # A value, and what is to be written over it.

LARGEST = 8192  # Orders of more instructions stay as they are.


def results_of(root: Instruction, resolve: Resolve) -> set[Source]:
    """The values that a computation's root holds."""
    found = {resolve(root, leaf) for leaf in range(leaf_count(root.shape))}
    return {source for source in found if source is not None}


def readers_first(order: Order, replaced: Replaced, resolve: Resolve) -> tuple[Order, int]:
    """The order with readers before writers, and the bytes of the copies that this saves."""
    if len(order) > LARGEST:
        return order, 0
    writers = _writers(order, replaced, resolve)
    if not writers:
        return order, 0
    place = {instruction: n for n, instruction in enumerate(order)}
    edges, saved = _edges(order, writers, place, resolve)
    if not saved:
        return order, 0
    return _sorted(order, edges, place), saved


def _writers(
    order: Order, replaced: Replaced, resolve: Resolve
) -> dict[Source, dict[Instruction, None]]:
    """Per value the instructions that are to write over it."""
    found: dict[Source, dict[Instruction, None]] = defaultdict(dict)
    alive = set(order)
    for value, (writer, _) in replaced:
        if writer in alive and writer.opcode not in SOURCES:
            found[value][writer] = None
    for instruction in order:
        for operand, leaf in updated_operands(instruction):
            updated = resolve(operand, leaf)
            if updated is not None and updated[0].opcode not in ("constant", "iota"):
                found[updated][instruction] = None
    return found


def updated_operands(instruction: Instruction) -> Iterator[Source]:
    """The operand leaves on whose memory an instruction works."""
    match instruction.opcode:
        case "dynamic-update-slice":
            yield instruction.operands[0], 0
        case "scatter":
            for operand in instruction.operands[: (len(instruction.operands) - 1) // 2]:
                yield operand, 0
        case "while":
            (state,) = instruction.operands
            for leaf in range(leaf_count(state.shape)):
                yield state, leaf
        case "fusion":
            yield from _updated_by_fusion(instruction)


def _updated_by_fusion(fusion: Instruction) -> Iterator[Source]:
    """Operands whose parameter a result of the fused computation updates."""
    (callee,) = fusion.called_computations()
    root = callee.root
    results = root.operands if root.opcode == "tuple" else (root,)
    for result in results:
        if result.opcode in ("dynamic-update-slice", "scatter"):
            for operand, leaf in updated_operands(result):
                source = _forwarded(operand, leaf)
                if source is not None and source[0].opcode == "parameter":
                    yield fusion.operands[callee.parameters.index(source[0])], source[1]


def _forwarded(instruction: Instruction, leaf: int) -> Source | None:
    while instruction.opcode not in SOURCES and is_forwarding(instruction):
        found: Source | None = alias(instruction, leaf)
        if found is None:
            return None
        instruction, leaf = found
    return instruction, leaf


def _edges(
    order: Order,
    writers: dict[Source, dict[Instruction, None]],
    place: dict[Instruction, int],
    resolve: Resolve,
) -> tuple[dict[Instruction, list[Instruction]], int]:
    """Reader -> writers that should wait for it; the bytes that are read too late now."""
    needs = _ancestors(order, place)
    edges: dict[Instruction, list[Instruction]] = defaultdict(list)
    late: set[Source] = set()
    for reader in order:
        if reader.opcode in SOURCES or is_forwarding(reader):
            continue
        read = {
            source
            for operand in reader.operands
            for leaf in range(leaf_count(operand.shape))
            if (source := resolve(operand, leaf)) is not None
        }
        for value in read & writers.keys():
            for writer in writers[value]:
                if writer is reader or needs[place[reader]] >> place[writer] & 1:
                    continue
                edges[reader].append(writer)
                if place[writer] < place[reader]:
                    late.add(value)
    return edges, sum(max(1, leaf_sizes(i.shape)[leaf]) for i, leaf in late)


def _ancestors(order: Order, place: dict[Instruction, int]) -> list[int]:
    """Per position a bit set of the positions that the instruction needs, directly or not."""
    needs: list[int] = []
    for instruction in order:
        bits = 0
        for needed in (*instruction.operands, *control_predecessors(instruction)):
            at = place[needed]
            bits |= needs[at] | 1 << at
        needs.append(bits)
    return needs


def _sorted(
    order: Order, edges: dict[Instruction, list[Instruction]], place: dict[Instruction, int]
) -> Order:
    """List scheduling by position; where wishes contradict each other the first in line goes
    ahead."""
    hard: dict[Instruction, int] = {}
    users: dict[Instruction, list[Instruction]] = defaultdict(list)
    soft: dict[Instruction, int] = defaultdict(int)
    for instruction in order:
        needed = dict.fromkeys((*instruction.operands, *control_predecessors(instruction)))
        hard[instruction] = len(needed)
        for other in needed:
            users[other].append(instruction)
        for writer in edges.get(instruction, ()):
            soft[writer] += 1
    ready = [place[i] for i in order if not hard[i] and not soft[i]]
    held = [place[i] for i in order if not hard[i] and soft[i]]
    heapq.heapify(ready)
    heapq.heapify(held)
    done: dict[Instruction, None] = {}
    while ready or held:
        instruction = order[heapq.heappop(ready or held)]
        if instruction in done:
            continue
        done[instruction] = None
        for writer in edges.get(instruction, ()):
            soft[writer] -= 1
            if not soft[writer] and not hard[writer] and writer not in done:
                heapq.heappush(ready, place[writer])
        for user in users[instruction]:
            hard[user] -= 1
            if not hard[user]:
                heapq.heappush(held if soft[user] else ready, place[user])
    return tuple(done)


def next_state(body: Computation, resolve: Resolve) -> Iterator[tuple[Source, Source]]:
    """The leaves of a loop's state, and what the body hands on in their place."""
    (state,) = body.parameters
    for leaf in range(leaf_count(state.shape)):
        source = resolve(body.root, leaf)
        if source is not None and source[0] is not state:
            yield (state, leaf), source
