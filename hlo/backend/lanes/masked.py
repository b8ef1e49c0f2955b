"""Masked runs: consecutive elements of which a mask lets some through. Others touch no memory.

A constant mask is written out, and one whose upper half is off makes a run of half the lanes, and
so on. That is fewer bytes, and right: without AVX-512, LLVM 22 reads the upper half of a vector
wider than the machine's although a mask switches it off, if the mask is a shuffle of a constant;
and anywhere it writes 32 bits for the one lane that is on of a vector of narrower ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.ir.values import every_lane, lanes_of, listed
from hlo.backend.ir.writer import Value, Writer, mangled, scalar_of, vector_of


def load(w: Writer, type: str, address: Value, align: int, mask: Value | None) -> Value:
    """The elements from an address on; lanes that are masked off are zero."""
    if mask is None:
        return w.load(address, type, align)
    lanes = mask.mask
    if lanes is None:
        return _load(w, type, address, align, mask)
    if not any(lanes):
        return w.zero(type)
    live = lanes[: _shortest(lanes)]
    narrow = vector_of(scalar_of(type), len(live))
    if all(live):
        return _widened(w, w.load(address, narrow, align), type)
    return _widened(w, _load(w, narrow, address, align, constant_mask(live)), type)


def _load(w: Writer, type: str, address: Value, align: int, mask: Value) -> Value:
    symbol = f"llvm.masked.load.{mangled(type)}.p0"
    w.declare(type, symbol, ["ptr", mask.type, type])
    operands = (address, mask, w.zero(type))
    return w.call(symbol, *operands, type=type, attributes=(f"align {align}", "", ""))


def store(w: Writer, value: Value, address: Value, align: int, mask: Value | None) -> None:
    """Write the elements from an address on; those that are masked off stay as they were."""
    lanes = None if mask is None else mask.mask
    if lanes is not None and any(lanes):
        live = lanes[: _shortest(lanes)]
        value = _low(w, value, len(live))
        mask = None if all(live) else constant_mask(live)
        if mask is not None and sum(live) == 1:
            address = w.address(address, w.int(live.index(True)), value.scalar_type)
            value, mask = w.extract(value, live.index(True)), None
    if mask is None:
        w.store(value, address, align)
        return
    symbol = f"llvm.masked.store.{mangled(value.type)}.p0"
    w.declare("void", symbol, [value.type, "ptr", mask.type])
    w.call(symbol, value, address, mask, attributes=("", f"align {align}", ""))


def gather(
    w: Writer,
    type: str,
    addresses: Value,
    align: int,
    mask: Value | None,
    others: Value | None = None,
) -> Value:
    """The elements at addresses; lanes that are masked off are those of `others`, or zero."""
    live = mask or every_lane(addresses.lanes)
    symbol = f"llvm.masked.gather.{mangled(type)}.v{addresses.lanes}p0"
    w.declare(type, symbol, [addresses.type, live.type, type])
    operands = (addresses, live, others or w.zero(type))
    return w.call(symbol, *operands, type=type, attributes=(f"align {align}", "", ""))


def scatter(w: Writer, value: Value, addresses: Value, align: int, mask: Value | None) -> None:
    """Write elements to addresses, those of masked lanes to none."""
    live = mask or every_lane(value.lanes)
    symbol = f"llvm.masked.scatter.{mangled(value.type)}.v{value.lanes}p0"
    w.declare("void", symbol, [value.type, addresses.type, live.type])
    w.call(symbol, value, addresses, live, attributes=("", f"align {align}", ""))


def below(w: Writer, start: Value, total: int, lanes: int) -> Value:
    """Which of `lanes` indices from start are less than total."""
    first = start.integer
    if first is None:
        return w.compare("icmp ult", w.counting(start, lanes), w.int(total, f"<{lanes} x i64>"))
    if lanes == 1:
        return w.int(first < total, "i1")
    return first_of(total - first, lanes)


def first_of(count: int, lanes: int) -> Value:
    """The mask with the first so many lanes of two or more."""
    return constant_mask([lane < count for lane in range(lanes)])


def doubled(w: Writer, mask: Value) -> Value:
    """Each lane of a mask twice: an element is a pair."""
    return _rearranged(w, mask, [lane // 2 for lane in range(2 * mask.lanes)])


def part_of(w: Writer, mask: Value, first: int, lanes: int) -> Value:
    """So many lanes of a mask from one on."""
    return _rearranged(w, mask, range(first, first + lanes)) if lanes < mask.lanes else mask


def part_of_repeated(w: Writer, mask: Value, count: int, part: int) -> Value:
    """Of a mask with each lane so many times, as many lanes as it has: the first, the next, .."""
    lanes = mask.lanes
    return _rearranged(w, mask, [(part * lanes + lane) // count for lane in range(lanes)])


def reversed_lanes(w: Writer, mask: Value) -> Value:
    """The lanes of a mask in the opposite order."""
    return _rearranged(w, mask, range(mask.lanes - 1, -1, -1))


def moved(w: Writer, mask: Value, order: Sequence[int | None]) -> Value:
    """The lanes of a mask in some order; those that are none of it are off."""
    lanes = mask.mask
    if lanes is not None:
        return constant_mask([lane is not None and lanes[lane] for lane in order])
    off = mask.lanes
    return w.shuffle(mask, w.zero(mask.type), [off if lane is None else lane for lane in order])


def _rearranged(w: Writer, mask: Value, order: Sequence[int]) -> Value:
    """A constant mask stays one that is written out: see the head of this file."""
    lanes = mask.mask
    if lanes is not None:
        return constant_mask([lanes[lane] for lane in order])
    return w.shuffle(mask, None, order)


def constant_mask(lanes: Sequence[bool]) -> Value:
    """The mask with these lanes, two or more."""
    return listed("i1", tuple(map(int, lanes)))


def _shortest(lanes: Sequence[bool]) -> int:
    """How many lanes a run has to have: halved while the upper half is off."""
    count = len(lanes)
    while count % 2 == 0 and not any(lanes[count // 2 : count]):
        count //= 2
    return count


def _low(w: Writer, value: Value, lanes: int) -> Value:
    """The first lanes of a vector."""
    if lanes == value.lanes:
        return value
    if lanes == 1:
        return w.extract(value, 0)
    return w.shuffle(value, None, range(lanes))


def _widened(w: Writer, low: Value, type: str) -> Value:
    """A vector of the type whose first lanes are these, zeros behind them.

    It is doubled with as many zeros each time: an order that names one zero again and again takes
    LLVM nearly twice as long, for the same code.
    """
    if low.lanes == 1 and low.type != type:
        return w.insert(w.zero(type), low, 0)
    while 2 * low.lanes <= lanes_of(type):
        low = w.end_to_end([low, w.zero(low.type)])
    return low
