"""Residuals: arrays of which one loop writes a row in each trip, and another reads it in one.

    first: r[i] = f(q, k), a[i] = q, b[i] = k      second: .. r[n - 1 - j] .., r read by nobody else

As JAX differentiates a scan over layers: what gradients need of a layer's values is stacked. Both
loops go through each row once, so that what the second one reads at a row is what the first one had
in the trip that wrote it. The other rows of that trip are there as well, and so are what the first
loop never changes and the number of the trip. What is computed of these alone can be computed
again, as the same expression of the same values.

`plan_of` says which arrays need not be kept: those of large rows, for which memory would hold a
number for each pair of tokens of each layer, that come from others by moves, reductions, at most
MOST_COST additions an element, and products whose result is at least LEAST_GAIN times as large as
their factors, as scores are beside queries and keys; with them what are sums and maxima of such
values, so that who reads both finds them computed side by side, as in a program without loops.
Arrays of large rows that do not are kept, and others are computed from them.

Of rows of any size, those of long arrays are computed again that are a few additions an element on
one row that is kept, as the slopes s (1 - s) and 1 - t^2 of gates are: memory is neither written
nor read for them. Gradients of an LSTM with 32 x 128 numbers take 0.86 to 0.94 of the time, of a
GRU with 64 x 128 0.86 to 0.91 (Zen 5); with arrays that caches hold it is up to 1.03.
"""

from __future__ import annotations

from collections.abc import Collection, Set

from msgspec import Struct

from hlo.analysis.fusibility import op_cost
from hlo.analysis.large_values import LEAST_SCORES_BYTES
from hlo.analysis.while_loops.loop_state import Counter, counter, element_index, unchanged_elements
from hlo.analysis.while_loops.row_updates import (
    RowOrder,
    is_counter,
    reads_of,
    row_dim,
    row_order,
    row_update,
)
from hlo.analysis.work import work_of
from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON
from hlo.ops.table import INDEX_MAPS, Trait, opcodes

# Additions for each element that is not kept: to write it and to read it again takes as long as
# some twenty, its bytes in memory are worth more. Softmax takes 40, a random number over 100.
MOST_COST = 64
LIGHT_COST = 8  # The same of rows that are small themselves.
LEAST_LIGHT_BYTES = COMMON.second_cache.bytes // 2  # Of their arrays: a core's cache holds others.
LEAST_GAIN = 4  # A product's bytes beside those of its factors.

_MOVES = opcodes(INDEX_MAPS) - opcodes(Trait.UPDATES | Trait.FREE)
# Those on elements that give the same of the same operands, as often as they run.
STEADY_ELEMENTWISE = opcodes(Trait.ELEMENTWISE) - opcodes(Trait.RANDOM | Trait.COLLECTIVE)


class Rows(Struct, frozen=True):
    """An array of a loop's state of which each trip writes a row: its number there, the op that
    puts the row in, and the order of the rows.
    """

    number: int
    update: Instruction
    order: RowOrder

    @property
    def row(self) -> Instruction:
        """What a trip puts in."""
        return self.update.operands[1]


class Residual(Struct, frozen=True):
    """Rows that only another loop reads: their number in its state, and the slices in its body."""

    rows: Rows
    number: int
    reads: tuple[Instruction, ...]


class Plan(Struct, frozen=True):
    """What the second loop computes again: members of the first one's body, operands first, for
    arrays that nobody keeps, from values that are rows of arrays that somebody does.
    """

    first: Instruction
    second: Instruction
    counter: Counter  # the first loop's
    dropped: tuple[Residual, ...]
    members: tuple[Instruction, ...]
    kept: dict[Instruction, Rows]


def plan_of(first: Instruction, second: Instruction) -> Plan | None:
    """What the second loop had better compute again; None: nothing. Both are extensible."""
    known, other = counter(first), counter(second)
    if known is None or other is None or min(known.iterations, other.iterations) < 1:
        return None
    bodies = (first.called_computations()[0], second.called_computations()[0])
    if not all(map(_is_plain, (*first.called_computations(), *second.called_computations()))):
        return None
    written = _written(first, bodies[0], known)
    found = (_residual(first, second, rows, other) for rows in written)
    residuals = [r for r in found if r is not None]
    if not residuals:
        return None
    order = {value: at for at, value in enumerate(post_order(bodies[0]))}
    residuals.sort(key=lambda residual: order[same_elements(residual.rows.row)[-1]])
    kept: dict[Instruction, Rows] = {}
    for rows in written:
        if all(rows is not residual.rows for residual in residuals):
            kept |= dict.fromkeys(same_elements(rows.row), rows)
    sources = _sources(bodies[0], known)
    dropped, members, pays = list[Residual](), set[Instruction](), False
    for residual in residuals:
        row = residual.rows.row
        of_one = {v for v, rows in kept.items() if rows.order == residual.rows.order}
        again = _again(row, of_one | sources)
        is_turned = any(d.rows.order != residual.rows.order for d in dropped)
        is_light = again is not None and _is_light(residual.rows, again)
        if again is None or is_turned or not (is_light or _is_cheaper(row, again, members)):
            kept |= dict.fromkeys(same_elements(row), residual.rows)
        else:
            members |= again
            dropped.append(residual)
            pays |= is_light or _is_large(row)
    if not pays:
        return None
    ordered = tuple(sorted(members, key=order.__getitem__))
    return Plan(first, second, known, tuple(dropped), ordered, kept)


def same_elements(row: Instruction) -> list[Instruction]:
    """A row, and what it has all elements of in another shape or order, each the next one's move.

    Reshapes and transposes are undone without loss, so that each can be had from the row.
    """
    chain = [row]
    while chain[-1].opcode in ("reshape", "transpose"):
        chain.append(chain[-1].operands[0])
    return chain


def _is_plain(computation: Computation) -> bool:
    """Whether nothing waits for its very execution, nor has a size that the run chooses."""
    return all(
        "control-predecessors" not in i.attributes and not i.shape.is_dynamic
        for i in computation.instructions
    )


def _written(loop: Instruction, body: Computation, known: Counter) -> list[Rows]:
    """The arrays of which each trip writes a row, all rows in all."""
    found = []
    for number in range(len(body.root.operands)):
        update = row_update(loop, number, known)
        if update is not None:
            target, row, *starts = update.operands
            dim = row_dim(target.shape, row.shape)
            assert dim is not None, "a row's update has a dimension of rows"
            order = row_order(starts[dim], body, known, target.shape.dims[dim])
            assert order is not None, "a row's update goes through them"
            found.append(Rows(number, update, order))
    return found


def _residual(
    first: Instruction, second: Instruction, rows: Rows, known: Counter
) -> Residual | None:
    """Rows of the first loop that nobody but the second one reads, each of its trips one."""
    (state,) = second.operands
    ends = [u for u in first.users if element_index(u) == rows.number]
    if len(ends) != 1 or ends[0].is_root or list(ends[0].users) != [state]:
        return None
    numbers = [n for n, start in enumerate(state.operands) if start is ends[0]]
    body, condition = second.called_computations()
    unchanged = {element_index(e) for e in unchanged_elements(body)}
    if len(numbers) != 1 or numbers[0] not in unchanged or reads_of(condition, numbers[0]):
        return None
    target, row = rows.update.operands[:2]
    dim = row_dim(target.shape, row.shape)
    reads = []
    for element in reads_of(body, numbers[0]):
        if element is None or body.root.operands.count(element) > 1:
            return None
        for read in element.users:
            if read is body.root:
                continue
            if read.opcode != "dynamic-slice" or read.operands[0] is not element:
                return None
            if read.shape.dims != row.shape.dims or dim is None:
                return None
            if row_order(read.operands[1 + dim], body, known, target.shape.dims[dim]) is None:
                return None
            reads.append(read)
    return Residual(rows, numbers[0], tuple(reads))


def _sources(body: Computation, known: Counter) -> Set[Instruction]:
    """What a trip has of the state that does not come from other trips: what never changes, and
    the counter.
    """
    elements = [u for u in body.parameters[0].users if u.opcode == "get-tuple-element"]
    return unchanged_elements(body) | {e for e in elements if is_counter(e, body, known)}


def _again(row: Instruction, known: Collection[Instruction]) -> set[Instruction] | None:
    """What has to be computed for a row from known values; None where that is not possible."""
    members = set[Instruction]()
    waiting = [row]
    while waiting:
        value = waiting.pop()
        if value in known or value in members:
            continue
        if not _may_be_again(value) or not value.shape.is_array or not _is_worth(value, row):
            return None
        members.add(value)
        waiting += value.operands
    return members


def _may_be_again(value: Instruction) -> bool:
    """Whether an instruction gives the same of the same operands, wherever it stands."""
    is_other = value.opcode in ("constant", "iota") or value.opcode in ("reduce", "dot")
    return is_other or value.opcode in _MOVES or value.opcode in STEADY_ELEMENTWISE


def _is_worth(value: Instruction, row: Instruction) -> bool:
    """Whether a product is short beside the row that it is computed for, or cheaper than to keep
    what it gives.
    """
    if value.opcode != "dot":
        return True
    factors = sum(o.shape.size_bytes for o in value.operands)
    is_short = 2 * work_of(value).flops <= MOST_COST * row.shape.size
    return is_short or value.shape.size_bytes >= LEAST_GAIN * factors


def _is_large(value: Instruction) -> bool:
    return value.shape.size_bytes >= LEAST_SCORES_BYTES


def _is_cheaper(
    row: Instruction, again: Collection[Instruction], members: Collection[Instruction]
) -> bool:
    """Whether to compute a row, beside members that are computed anyway, takes less than to keep
    it: one that is large, or of few numbers that come from what is, as sums along rows of scores.
    """
    sizes = [value.shape.size for value in (row, *again) if _is_large(value)]
    fresh = [value for value in again if value not in members]
    return bool(sizes) and _cost(fresh) <= MOST_COST * max(sizes)


def _is_light(rows: Rows, again: Collection[Instruction]) -> bool:
    """Whether rows of a long array are a few additions for each element of a row that is kept."""
    size = rows.row.shape.size
    leaves = {o for member in again for o in member.operands if o not in again}
    sizes = [leaf.shape.size for leaf in leaves if not leaf.shape.is_scalar]
    is_simple = all(
        m.opcode in STEADY_ELEMENTWISE or m.opcode in _MOVES or m.opcode == "constant"
        for m in again
    )
    is_long = rows.update.shape.size_bytes >= LEAST_LIGHT_BYTES
    is_of_one = not sizes or sizes == [size]
    return is_long and is_simple and is_of_one and _cost(again) <= LIGHT_COST * size


def _cost(members: Collection[Instruction]) -> int:
    """Additions of what is no product."""
    total = 0
    for member in members:
        if member.opcode == "reduce":
            total += work_of(member).operations
        elif member.opcode != "dot":
            total += op_cost(member) * member.shape.size
    return total
