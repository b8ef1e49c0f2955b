"""Stores of vectors whose lanes lie between each other's: those of a row's places, a row a lane.

Few are written turn by turn. More are turned in registers and written row by row: of v0 .. v5, for
each lane l, v0[l] .. v5[l] and what follows in the register, which the next row lies over; the last
row ends where it ends. To take six vectors turn by turn costs LLVM 30 to 60 ms. A part of a longer
row is turned alike, as many places as a power of two, and nothing follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.lanes import masked, types
from hlo.backend.lanes.access import Memory, lane_zero, mask_of, store
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.transposed import transposed, turned_parts
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.vectors import MOST_INTERLEAVED, MOST_LANES, MOST_TURNS
from hlo.indexing.affine import Expr, stride

_FEWEST_TURNED = 4  # Fewer places of a row are scattered as soon as they are turned.


def store_all(
    nest: Nest, memory: Memory, positions: Sequence[Expr], values: Sequence[Lanes]
) -> None:
    """Write elements at several positions, one after the other; neighbours whose lanes lie as far
    apart as there are of them as one run.
    """
    begin = 0
    while begin < len(positions):
        first = positions[begin]
        count = max(1, stride(first) or 1)
        start = size = 0
        if _is_masked_row(nest, memory, positions[begin : begin + count], count):
            _store_masked(nest, memory, first, values[begin : begin + count])
            begin += count
            continue
        if _is_run(positions[begin : begin + count], count):
            start, size = begin, count
        elif part := _part_of_row(positions[begin : begin + MOST_TURNS], count):
            start, size = begin, part
        elif (again := _last_of_row(positions, begin)) and _part_of_row(again, count):
            start, size = begin + _neighbours(positions[begin:]) - len(again), len(again)
        if not size:
            store(nest, memory, first, values[begin])
            begin += 1
            continue
        _store_run(nest, memory, positions[start], values[start : start + size])
        begin = start + size


def _part_of_row(positions: Sequence[Expr], count: int) -> int:
    """How many of the first positions are neighbours that are turned together, in rows of `count`
    elements; 0 for none.
    """
    first = positions[0]
    most = min(len(positions), first.lanes, count)
    if mask_of(first) is not None or most < _FEWEST_TURNED:
        return 0
    part = 1 << (_neighbours(positions[:most]).bit_length() - 1)
    return part if part >= _FEWEST_TURNED else 0


def _neighbours(positions: Sequence[Expr]) -> int:
    """How many of the first positions follow each other."""
    near = 1
    while near < len(positions) and _follows(positions[0], positions[near], near):
        near += 1
    return near


def _last_of_row(positions: Sequence[Expr], begin: int) -> Sequence[Expr]:
    """The last places of a row, the fewest that are turned, some of which have been written before;
    none where there are not so many.
    """
    end = begin + _neighbours(positions[begin:])
    return positions[max(0, end - _FEWEST_TURNED) : end] if end - begin < _FEWEST_TURNED else ()


def _follows(first: Expr, at: Expr, places: int) -> bool:
    """Whether a position lies so many places behind the first."""
    return at.terms == first.terms and at.constant == first.constant + places


def _is_run(positions: Sequence[Expr], count: int) -> bool:
    """Whether so many positions are neighbours, and their lanes fill what is between."""
    first = positions[0]
    if first.lanes == 1 or not 2 <= count <= MOST_TURNS or len(positions) != count:
        return False
    if count > MOST_INTERLEAVED and (count > first.lanes or mask_of(first) is not None):
        return False
    return all(_follows(first, at, k) for k, at in enumerate(positions))


def _is_masked_row(nest: Nest, memory: Memory, positions: Sequence[Expr], count: int) -> bool:
    """Whether so many positions are a whole row for each lane that a mask lets through, too many
    to be written turn by turn.
    """
    first, mask = positions[0], mask_of(positions[0])
    if mask is None or not MOST_INTERLEAVED < count <= min(first.lanes, MOST_LANES):
        return False
    if len(positions) != count or not nest.target.isa.masks_loads_of(memory.dtype.bits):
        return False
    return _neighbours(positions) == count


def _store_masked(nest: Nest, memory: Memory, first: Expr, values: Sequence[Lanes]) -> None:
    """Write rows that lie one after the other by way of the stack, as vectors of which a mask lets
    some through: to scatter them costs a branch an element where elements are narrow.
    """
    w, element, mask = nest.w, types.storage_scalar(memory.dtype), mask_of(first)
    count, lanes = len(values), first.lanes
    assert mask is not None, "rows without a mask are stored as they are"
    nest.stores(memory.leaf)
    raw = _encoded(nest, memory, first, values)
    rows = _stack(nest, count * lanes * types.scalar_bits(element) // 8)
    begin = 0
    while begin < count:
        size = min(1 << ((count - begin).bit_length() - 1), MOST_TURNS)
        size = max(size, _FEWEST_TURNED)
        begin = min(begin, count - size)
        at = w.address(rows, w.int(begin), element) if begin else rows
        _store_rows(w, at, raw[begin : begin + size], partial(transposed, nest), count)
        begin += size
    base = Expr({lane_zero(a): k for a, k in first.terms.items()}, first.constant)
    pointer = nest.pointer(memory.base, base, element)
    for k in range(count):
        live = masked.part_of_repeated(w, mask, count, k)
        offset = w.int(k * lanes)
        part = w.load(w.address(rows, offset, element), raw[0].type, 1)
        masked.store(w, part, w.address(pointer, offset, element), 1, live)


def _stack(nest: Nest, size_bytes: int) -> Value:
    """Memory outside of all loops, which all stores of that size share: each is done with it."""
    key = "rows on the stack", size_bytes
    with nest.at(0) as level:
        found = level.memo.get(key)
        if not isinstance(found, Value):
            found = nest.w.alloca(f"[{size_bytes} x i8]", nest.target.vector_bytes)
            level.memo[key] = found
    return found


def _encoded(nest: Nest, memory: Memory, first: Expr, values: Sequence[Lanes]) -> list[Value]:
    raw = []
    for lanes in values:
        (value,) = (nest.w.splat(v, first.lanes) for v in types.parts(lanes))
        raw.append(types.encoded(nest.w, nest.target, value, memory.dtype))
    return raw


def _store_run(nest: Nest, memory: Memory, first: Expr, values: Sequence[Lanes]) -> None:
    """Write vectors of lanes turn by turn."""
    w, element = nest.w, types.storage_scalar(memory.dtype)
    nest.stores(memory.leaf)
    raw = _encoded(nest, memory, first, values)
    base = Expr({lane_zero(a): k for a, k in first.terms.items()}, first.constant)
    pointer = nest.pointer(memory.base, base, element)
    step = stride(first)
    if len(raw) > MOST_INTERLEAVED or len(raw) != step:
        assert step is not None, "lanes lie a row apart"
        _store_rows(w, pointer, raw, partial(transposed, nest), step)
        return
    mask = mask_of(first)
    for k, part in enumerate(w.turn_by_turn(raw)):
        live = mask and masked.part_of_repeated(w, mask, len(raw), k)
        if live is None or live.mask is None or any(live.mask):
            at = w.address(pointer, w.int(k * first.lanes), element) if k else pointer
            masked.store(w, part, at, 1, live)


def store_turns(w: Writer, pointer: Value, values: Sequence[Value]) -> None:
    """Write whole vectors turn by turn, outside of a nest: at most MOST_TURNS of them, and as many
    as a vector has lanes.
    """
    if len(values) > MOST_INTERLEAVED:
        _store_rows(w, pointer, values, partial(turned_parts, w), len(values))
        return
    for k, part in enumerate(w.turn_by_turn(values)):
        at = w.address(pointer, w.int(k * part.lanes), part.scalar_type)
        w.store(part, at, 1)


def _store_rows(
    w: Writer,
    pointer: Value,
    values: Sequence[Value],
    turned: Callable[[list[Value]], list[Value]],
    step: int,
) -> None:
    """Write the lanes of the values, at least so many as there are values; rows lie `step` elements
    apart, which is how many values there are, or they are a power of two.
    """
    lanes, count, element = values[0].lanes, len(values), values[0].scalar_type
    width = 1 << (count - 1).bit_length()
    rows = turned([*values, *[w.zero(values[0].type)] * (width - count)])
    for lane in range(lanes):
        pieces = [(0, width)] if lane < lanes - 1 else _pieces(count)
        # Squares of so many rows lie side by side.
        square, k = divmod(lane, width)
        for first, size in pieces:
            begin = square * width + first
            at = w.address(pointer, w.int(lane * step + first), element)
            w.store(_part(w, rows[k], begin, size), at, 1)


def _part(w: Writer, row: Value, begin: int, size: int) -> Value:
    """So many neighbouring lanes; one is a scalar."""
    return w.extract(row, begin) if size == 1 else w.shuffle(row, None, range(begin, begin + size))


def _pieces(count: int) -> list[tuple[int, int]]:
    """Powers of two, the largest first, that are as many elements together: first and width."""
    found: list[tuple[int, int]] = []
    first = 0
    while first < count:
        width = 1 << ((count - first).bit_length() - 1)
        found.append((first, width))
        first += width
    return found
