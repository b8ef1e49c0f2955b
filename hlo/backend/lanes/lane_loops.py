"""A loop over lanes: full vectors in batches, then what is left, masked or in short vectors."""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value
from hlo.backend.lanes import masked
from hlo.backend.lanes.nest import Bound, Nest
from hlo.backend.loops.vectors import MOST_SHORT
from hlo.indexing.affine import Expr, Variable

# (the batch's indices, carried values) -> carried values. A last batch may be shorter.
LaneBody = Callable[[list[Expr], list[Value]], list[Value]]


def lane_loop(
    nest: Nest,
    low: int,
    length: int,
    lanes: int,
    unroll: int,
    carried: list[Value],
    body: LaneBody,
    *,
    shortens: bool = False,
    within: tuple[Value, Value] | None = None,
) -> list[Value]:
    """`body` over [low, low + length): `unroll` vectors a round, the rest in one batch.

    shortens: the last elements may be taken as short vectors instead of a masked one. within:
    bounds known at run time; full rounds that lie outside of them are left out.
    """
    step = lanes * unroll
    rounds, rest = divmod(length, step)
    high = low + length
    if rounds == 1:
        starts = [low + k * lanes for k in range(unroll)]
        carried = body([fixed(nest, s, lanes, high) for s in starts], carried)
    elif rounds:
        # The first vector of a batch ends so early that the last one is within the length too.
        last = low + (rounds - 1) * step + lanes - 1

        def run(counter: Value, values: list[Value]) -> list[Value]:
            v = nest.variable(counter, low, last, lanes)
            return body([v + k * lanes for k in range(unroll)], values)

        first, end = _rounds_within(nest, low, low + rounds * step, step, within)
        carried = nest.loop(first, end, step, carried, run)
    if rest:
        starts = list(range(low + rounds * step, high, lanes))
        rest = (high - starts[-1]) % lanes
        if shortens and 0 < rest.bit_count() <= MOST_SHORT:
            batch = [fixed(nest, s, lanes, high) for s in starts[:-1]]
            for size in (1 << k for k in reversed(range(rest.bit_length())) if rest >> k & 1):
                batch.append(fixed(nest, high - rest, size, high))
                rest -= size
            return body(batch, carried)
        carried = body([fixed(nest, s, lanes, high) for s in starts], carried)
    return carried


def _rounds_within(
    nest: Nest, low: int, high: int, step: int, within: tuple[Value, Value] | None
) -> tuple[Bound, Bound]:
    """The rounds of [low, high) that meet [begin, end); the last may reach beyond the end."""
    if within is None:
        return low, high
    w, (begin, end) = nest.w, within
    ahead = w.binary("sub", w.intrinsic("llvm.smax", "i64", begin, w.int(low)), w.int(low))
    whole = w.binary("mul", w.binary("udiv", ahead, w.int(step)), w.int(step))
    most = w.intrinsic("llvm.smin", "i64", w.binary("add", end, w.int(step - 1)), w.int(high))
    return w.binary("add", whole, w.int(low)), most


def fixed(nest: Nest, start: int, lanes: int, high: int) -> Expr:
    """The vector of positions from a known start, masked where it passes the end."""
    left = high - start
    mask = None
    if left < lanes:
        mask = masked.first_of(left, lanes)
    last = min(start + lanes, high) - 1
    variable = Variable(str(start), start, last, nest.depth, lanes, nest.w.int(start), mask)
    return Expr({variable: 1}, 0)


def lane_loop_between(
    nest: Nest,
    low: Bound,
    high: Value,
    limits: tuple[int, int],
    lanes: int,
    unroll: int,
    body: Callable[[list[Expr]], None],
    *,
    rest: tuple[int, int] | None,
) -> None:
    """`body` over [low, high) known at run time, within [limits).

    rest: lanes and unroll factor of what is left after the last full batch, if anything is; a
    smaller one than elements are left for run again and again.
    """
    step = lanes * unroll
    least, greatest = limits[0], limits[1] - 1
    # The first vector of a full batch ends so early that the last one is within the limits.
    latest = greatest + lanes - step

    def run(counter: Value, _: list[Value]) -> list[Value]:
        v = nest.variable(counter, least, latest, lanes)
        body([v + k * lanes for k in range(unroll)])
        return []

    if limits[1] - limits[0] >= step:
        nest.loop(low, high, step, [], run)
    if rest is None:
        return
    w = nest.w
    start = low if isinstance(low, Value) else w.int(low)
    whole = w.binary("sub", high, start)
    done = w.binary("mul", w.binary("sdiv", whole, w.int(step)), w.int(step))
    first = w.binary("add", start, done)
    masked_loop(nest, first, high, limits, rest[0], body, rest[1])


def masked_loop(
    nest: Nest,
    low: Bound,
    high: Value,
    limits: tuple[int, int],
    lanes: int,
    body: Callable[[list[Expr]], None],
    unroll: int = 1,
) -> None:
    """`body` over [low, high), `unroll` vectors a round, all masked as the last may have to be."""
    w, (least, limit) = nest.w, limits
    step = lanes * unroll

    def batch(counter: Value, _: list[Value]) -> list[Value]:
        left = w.binary("sub", high, counter)
        left32 = w.splat(w.cast("trunc", left, "i32"), lanes)
        variables = []
        for first in range(0, step, lanes):
            counting = counted("i32", lanes, first)
            mask = w.compare("icmp slt", counting, left32.of_type(counting.type))
            greatest = max(least, limit - 1 - first)
            variables.append(nest.variable(counter, least, greatest, lanes, mask) + first)
        body(variables)
        return []

    # The last round may be cut short: it runs while one element is left.
    nest.loop(low, w.binary("add", high, w.int(step - 1)), step, [], batch)
