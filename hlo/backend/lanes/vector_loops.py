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


def vector_loop(
    nest: Nest,
    low: int,
    length: int,
    lanes: int,
    unroll: int,
    carried: list[Value],
    body: LaneBody,
    *,
    shortens: bool = False,
) -> list[Value]:
    """`body` over [low, low + length): `unroll` vectors a round, the rest in one batch.

    shortens: the last elements may be taken as short vectors instead of a masked one.
    """
    step = lanes * unroll
    rounds, rest = divmod(length, step)
    high = low + length
    if rounds == 1:
        starts = [low + k * lanes for k in range(unroll)]
        carried = body([fixed(nest, s, lanes, high) for s in starts], carried)
    elif rounds:
        end = low + rounds * step
        carried = nest.loop(low, end, step, carried, _round(nest, (low, end), lanes, unroll, body))
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


def vector_loop_within(
    nest: Nest,
    limits: tuple[int, int],
    within: tuple[Value, Value],
    lanes: int,
    unroll: int,
    carried: list[Value],
    body: LaneBody,
) -> list[Value]:
    """As `vector_loop` over [limits), without full rounds that miss [within), bounds known at run
    time; the last round may reach beyond these.
    """
    w, (low, high), (begin, end) = nest.w, limits, within
    step = lanes * unroll
    last = high - (high - low) % step
    if last - low > step:
        ahead = w.binary("sub", w.intrinsic("llvm.smax", "i64", begin, w.int(low)), w.int(low))
        whole = w.binary("mul", w.binary("udiv", ahead, w.int(step)), w.int(step))
        most = w.intrinsic("llvm.smin", "i64", w.binary("add", end, w.int(step - 1)), w.int(last))
        run = _round(nest, (low, last), lanes, unroll, body)
        carried = nest.loop(w.binary("add", whole, w.int(low)), most, step, carried, run)
        low = last
    return vector_loop(nest, low, high - low, lanes, unroll, carried, body)


def vector_loop_bounded(
    nest: Nest,
    limits: tuple[int, int],
    bounds: tuple[Value, Value],
    lanes: int,
    unroll: int,
    carried: list[Value],
    body: LaneBody,
) -> list[Value]:
    """As `vector_loop` over what of [limits) is within [bounds), known at run time: multiples of a
    round's step, or where all limits end.
    """
    w, (low, high), (begin, end) = nest.w, limits, bounds
    step = lanes * unroll
    last = high - (high - low) % step
    if last > low:
        first = w.intrinsic("llvm.smax", "i64", begin, w.int(low))
        behind = w.intrinsic("llvm.smin", "i64", end, w.int(last))
        run = _round(nest, (low, last), lanes, unroll, body)
        carried = nest.loop(first, behind, step, carried, run)
    if last == high:
        return carried
    is_met = w.compare("icmp sgt", end, w.int(last))
    once = w.select(is_met, w.int(1), w.int(0))

    def rest(_: Value, values: list[Value]) -> list[Value]:
        return vector_loop(nest, last, high - last, lanes, unroll, values, body)

    return nest.loop(w.int(0), once, 1, carried, rest)


def _round(
    nest: Nest, limits: tuple[int, int], lanes: int, unroll: int, body: LaneBody
) -> Callable[[Value, list[Value]], list[Value]]:
    """A full round of vectors within limits."""
    low, high = limits
    # The first vector of a batch ends so early that the last one is within the length too.
    last = high - lanes * unroll + lanes - 1

    def run(counter: Value, values: list[Value]) -> list[Value]:
        v = nest.variable(counter, low, last, lanes)
        return body([v + k * lanes for k in range(unroll)], values)

    return run


def fixed(nest: Nest, start: int, lanes: int, high: int) -> Expr:
    """The vector of positions from a known start, masked where it passes the end."""
    left = high - start
    mask = None
    if left < lanes:
        mask = masked.first_of(left, lanes)
    last = min(start + lanes, high) - 1
    variable = Variable(str(start), start, last, nest.depth, lanes, nest.w.int(start), mask)
    return Expr({variable: 1}, 0)


def vector_loop_between(
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
