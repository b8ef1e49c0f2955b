"""Stable merge sort of a row's positions, for any comparator.

Runs of 1, 2, 4, ... are merged from one half of the scratch memory to the other; the right element
goes first only where the comparator says so. Whatever it says, the result is a permutation.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.writer import Value
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import repeat_while

COMPARED = 200  # What a comparison and the branch on it take, in plain operations.
Before = Callable[[Value, Value], Value]  # (left position, right position) -> i1


def scratch_bytes(count: int) -> int:
    """Two arrays of positions."""
    return 8 * max(1, count)


def operations(count: int) -> int:
    """About how many plain operations a sort takes."""
    return COMPARED * count * max(1, (count - 1).bit_length())


def merged(nest: Nest, count: int, scratch: Value, before: Before) -> Value:
    """The address of the sorted positions (i32)."""
    w = nest.w
    first, second = scratch, w.address(scratch, w.int(max(1, count)), "i32")

    def number(j: Value, _: list[Value]) -> list[Value]:
        w.store(w.cast("trunc", j, "i32"), w.address(first, j, "i32"))
        return []

    nest.loop(0, count, 1, [], number)

    def test(state: list[Value]) -> Value:
        return w.compare("icmp ult", state[0], w.int(count))

    def widen(state: list[Value]) -> list[Value]:
        width, source, target = state
        _merge_runs(nest, count, (width, source, target), before)
        return [w.binary("shl", width, w.int(1)), target, source]

    return repeat_while(nest, [w.int(1), first, second], test, widen)[1]


def _merge_runs(nest: Nest, count: int, state: tuple[Value, Value, Value], before: Before) -> None:
    """Every pair of neighbouring runs of `width` positions from source to target."""
    w = nest.w
    width, source, target = state
    end = w.int(count)

    def test(at: list[Value]) -> Value:
        return w.compare("icmp ult", at[0], end)

    def pair(at: list[Value]) -> list[Value]:
        low = at[0]
        middle = w.intrinsic("llvm.umin", "i64", w.binary("add", low, width), end)
        high = w.intrinsic("llvm.umin", "i64", w.binary("add", middle, width), end)

        def step(k: Value, heads: list[Value]) -> list[Value]:
            left, right = heads
            a, b = (_position(nest, source, h, count) for h in heads)
            over = w.compare("icmp uge", left, middle)
            there = w.compare("icmp ult", right, high)
            first = before(b, a)
            takes = w.binary("and", there, w.binary("or", over, first))
            chosen = w.cast("trunc", w.select(takes, b, a), "i32")
            w.store(chosen, w.address(target, k, "i32"))
            moved = w.cast("zext", takes, "i64")
            rest = w.binary("sub", w.int(1), moved)
            return [w.binary("add", left, rest), w.binary("add", right, moved)]

        nest.loop(low, high, 1, [low, middle], step)
        return [high]

    repeat_while(nest, [w.int(0)], test, pair)


def _position(nest: Nest, source: Value, head: Value, count: int) -> Value:
    """The position at a run's head; some position of the row where the run is used up."""
    w = nest.w
    safe = w.intrinsic("llvm.umin", "i64", head, w.int(count - 1))
    return w.cast("zext", w.load(w.address(source, safe, "i32"), "i32"), "i64")
