"""Loops as they are opened: what a schedule makes of its axes, and what emission really opened.

    LoopNest --loops_of--> [Opened]: a tree of loops      equal to what a Record has seen

A record is kept only for --emit=loops and for tests. Reductions enter it while their code is
written: where they stand follows from where their value is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct, field

from hlo.backend.loops.schedule import (
    Axis,
    Hint,
    Loop,
    LoopNest,
    LoopSchedule,
    Node,
    Plan,
    Reduction,
    Role,
    Store,
    Tail,
)


class Opened(Struct):
    """One loop; low and high are None where one of them is known at run time only."""

    low: int | None
    high: int | None
    step: int
    inner: list[Step] = field(default_factory=list)


class Made(Struct):
    """A reduction and the loops that it opened."""

    reduction: Reduction
    inner: list[Step] = field(default_factory=list)


class Stored(Struct):
    """A store to an entry of the kernel's table of operands and results."""

    leaf: int


Step = Opened | Made | Stored
Steps = list[Step]


class Record(Struct):
    """What one kernel's emission did: its loops."""

    loops: Steps = field(default_factory=list)


class Schedules:
    """The schedules of kernels that were made, by the kernels' texts; what is no loop: its plan.

    opened: the loops that writing them opened.
    """

    def __init__(self) -> None:
        self.of: dict[str, LoopSchedule | Plan] = {}
        self.opened: dict[str, Steps] = {}

    def enter(self, text: str, schedule: LoopSchedule | Plan, record: Record | None = None) -> None:
        """A kernel's, the first time that it is made."""
        self.of.setdefault(text, schedule)
        if record is not None:
            self.opened.setdefault(text, record.loops)

    def enter_same(self, text: str, other: str) -> None:
        """A kernel's that calls another one, whose loops are its own."""
        self.of.setdefault(text, self.of[other])
        if other in self.opened:
            self.opened.setdefault(text, self.opened[other])


def opened(low: object, high: object, step: int, inner: Steps) -> Opened:
    """A loop between two bounds, numbers where they are known."""
    if isinstance(low, int) and isinstance(high, int):
        return Opened(low, high, step, inner)
    return Opened(None, None, step, inner)


def loops_of(nest: LoopNest) -> Steps:
    """What a nest's code opens: one loop over its units, what they hold inside of it."""
    return [*steps_of(nest.entry), Opened(None, None, 1, steps_of(nest.body))]


def units_of(nest: LoopNest) -> int:
    """What threads may take one by one: the rounds of its parallel axes together."""
    units, body = 1, nest.body
    while body and isinstance(loop := body[-1], Loop) and loop.axis.role is Role.PARALLEL:
        units, body = units * loop.axis.rounds, loop.body
    return units


def steps_of(nodes: Sequence[Node]) -> Steps:
    """What nodes open, one after the other."""
    found: Steps = []
    for node in nodes:
        match node:
            case Loop(axis=axis, body=body) if axis.role is Role.PARALLEL:
                found += steps_of(body)
            case Loop(axis=axis, body=body):
                versions = 1 + any(isinstance(n, Store) and Hint.VERSIONED in n.hints for n in body)
                for _ in range(versions):
                    found += over(axis, partial(steps_of, body))
            case Reduction():
                found.append(Made(node, reduced(node)))
            case Store(leaf=leaf):
                found.append(Stored(leaf))
    return found


Inner = Callable[[], Steps]


def over(axis: Axis, inner: Inner) -> Steps:
    """The loops over an axis, and what is written once more for its tail."""
    if axis.role is Role.UNROLLED:
        return [s for _ in range(axis.rounds) for s in inner()]
    if axis.role is Role.VECTOR and axis.tail in (Tail.PREDICATED, Tail.OVERLAPPING):
        return [Opened(None, None, axis.step, inner())]
    if axis.of:
        return _between(axis, inner)
    if axis.role is Role.SCANNED:
        return _scanned(axis, inner)
    if axis.role is Role.VECTOR:
        return _batches(axis, axis.extent, inner, 0)
    if axis.role is Role.REDUCED and axis.step > 1:
        short = axis.tail is Tail.SHORT and axis.extent % axis.step > 0
        rounds = axis.rounds - short
        found: Steps = [Opened(0, rounds * axis.step, axis.step, inner())] if rounds else []
        return found + (inner() if short else [])
    return [Opened(0, axis.rounds, 1, inner())]


def _between(axis: Axis, inner: Inner) -> Steps:
    """Over a part whose bounds are known at run time."""
    found: Steps = []
    if axis.of >= axis.step:
        found.append(Opened(None, None, axis.step, inner()))
    if axis.tail_step:
        found.append(Opened(None, None, axis.tail_step, inner()))
    return found


def _scanned(axis: Axis, inner: Inner) -> Steps:
    """Along an axis whose steps wait for each other: vectors, or single steps in blocks."""
    if axis.lanes > 1:
        whole = axis.extent // axis.step * axis.step
        found: Steps = [Opened(0, whole, axis.step, inner())] if whole else []
        return found + (inner() if whole < axis.extent else [])
    if axis.blocks:
        (size,) = axis.blocks
        return [Opened(0, -(-axis.extent // size) * size, size, [Opened(None, None, 1, inner())])]
    return [Opened(0, axis.extent, 1, inner())]


# -- reductions ------------------------------------------------------------------------------


def reduced(node: Reduction) -> Steps:
    """The loops of a reduction, row-major over its axes."""

    def along(axes: Sequence[Axis]) -> Steps:
        if not axes:
            return steps_of(node.body)
        axis, *rest = axes
        if axis.role is Role.UNROLLED:
            return along(rest)
        if axis.role is Role.VECTOR:
            return _vectors(axis, lambda: along(rest))
        return _stretch(axis.blocks, (0, axis.extent), lambda: along(rest))

    return along(node.axes)


def _vectors(axis: Axis, inner: Inner) -> Steps:
    """Vectors along an axis, in blocks of them where sums are long, and what is left."""
    if not axis.blocks:
        return _batches(axis, axis.extent, inner, 0)
    size = axis.blocks[-1]
    whole = axis.extent // size

    def block() -> Steps:
        return _batches(axis, size, inner, 0)

    groups = tuple(n // size for n in axis.blocks[:-1])
    found = _stretch(groups, (0, whole), block)
    if whole * size < axis.extent:
        found += _batches(axis, axis.extent - whole * size, inner, whole * size)
    return found


def _batches(axis: Axis, length: int, inner: Inner, low: int) -> Steps:
    rounds, rest = divmod(length, axis.step)
    found: Steps = []
    if rounds == 1:
        found += inner()
    elif rounds:
        first = None if axis.is_bounded else low
        end = None if axis.is_bounded else low + rounds * axis.step
        found.append(Opened(first, end, axis.step, inner()))
    return found + (inner() if rest else [])


def _stretch(sizes: Sequence[int], limits: tuple[int, int] | None, inner: Inner) -> Steps:
    """Blocks of the first size, made of smaller ones, of single steps at last."""
    size, smaller = (sizes[0], sizes[1:]) if sizes else (1, ())
    below: Inner = inner if not sizes else lambda: _stretch(smaller, None, inner)
    if limits is None:
        return [Opened(None, None, size, below())]
    low, high = limits
    return [Opened(low, high + size - 1, size, below())]
