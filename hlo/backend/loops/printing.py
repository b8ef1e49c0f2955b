"""The text of a loop schedule: an indented nest, one line an axis, a cache, a reduction or a store.

LoopSchedule --print_schedule--> lines
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.backend.loops.schedule import (
    Axis,
    Cache,
    Direction,
    Fill,
    Join,
    Loop,
    LoopNest,
    LoopSchedule,
    Node,
    Prefetch,
    Reduction,
    Role,
    Source,
    Storage,
    Store,
    Tail,
    Tree,
)

_NOTE_COLUMN = 56  # Where the remarks of a line begin.


def print_schedule(schedule: LoopSchedule, *, remarks: bool = False) -> list[str]:
    """The lines below the kernel's own. remarks: with the reasons, before each box."""
    lines = [
        f"  table {t.value}[{t.entries}] {t.dtype}, by the codes of {t.source}"
        for t in schedule.tables
    ]
    for nest in schedule.nests:
        inner = "  "
        if len(schedule.nests) > 1:
            lines.append(f"  {_box(nest)}{_share(nest, schedule.units)}")
            inner = "    "
        lines += [f"{inner}# {remark}" for remark in nest.remarks if remarks]
        lines += [inner + line for line in _body((*nest.entry, *nest.body))]
    return lines


def _box(nest: LoopNest) -> str:
    spans = (f"{n}:{n + size}" for n, size in zip(nest.low, nest.dims, strict=True))
    return f"box [{', '.join(spans)}]"


def _share(nest: LoopNest, units: int) -> str:
    if (nest.count, nest.units) == (units, units):
        return ""
    own = "" if nest.count == nest.units else f", {nest.units} of its own"
    return f", units {nest.first}:{nest.first + nest.count}{own}"


def _body(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        match node:
            case Loop(axis=axis, body=body):
                yield f"for {print_axis(axis)}"
                yield from ("  " + line for line in _body(body))
            case Reduction(body=body):
                yield _noted(_reduction(node), _reads(node.reads, node.fills))
                yield from ("  " + line for line in _body(body))
            case Cache():
                yield _cache(node)
            case Fill(value=value, text=text):
                yield f"{value} = {text}"
            case Prefetch(value=value, ahead_bytes=ahead_bytes):
                yield f"prefetch {value}, {ahead_bytes} bytes ahead"
            case Store():
                yield _noted(_store(node), _reads(node.reads))


def _noted(line: str, note: str) -> str:
    return f"{line:<{_NOTE_COLUMN}}{note}" if note else line


def _reads(names: Sequence[str], fills: Sequence[str] = ()) -> str:
    text = f"  reads {', '.join(names)}" if names else ""
    return f"{text}, fills {', '.join(fills)}" if fills else text


def print_axis(axis: Axis) -> str:
    """`i in 128, parallel`"""
    text = f"{axis.name} in {_extent(axis)}{_step(axis)}"
    if axis.role in (Role.PARALLEL, Role.UNROLLED, Role.SCANNED, Role.REDUCED):
        text += f", {axis.role.value}"
    if axis.parts:
        text += f", in {axis.parts} even parts"
    return text + _blocks(axis) + _tail(axis)


def _extent(axis: Axis) -> str:
    part = "what a mask leaves of " if axis.is_bounded else ""
    return part + (f"{axis.extent} of {axis.of}" if axis.of > axis.extent else str(axis.extent))


def _step(axis: Axis) -> str:
    if axis.role is Role.VECTOR or axis.lanes > 1:
        times = f"{axis.vectors} x " if axis.vectors > 1 else ""
        return f" by {times}{axis.lanes} lane" + "s" * (axis.lanes != 1)
    return f" by {axis.step}" if axis.step > 1 else ""


def _tail(axis: Axis) -> str:
    text = "" if axis.direction is Direction.FORWARD else f", {axis.direction.value}"
    if axis.tail is Tail.NONE:
        return text
    if axis.tail_step and axis.tail_step != axis.step:
        return f"{text}, {axis.tail.value} by {axis.tail_step}"
    return f"{text}, {axis.tail.value}"


def _blocks(axis: Axis) -> str:
    sizes = (*axis.blocks, 1) if axis.apart else axis.blocks
    return f", blocks of {' of '.join(map(str, sizes))}" if sizes else ""


def _reduction(node: Reduction) -> str:
    """`m = maximum over j in 1024 by 4 x 16 lanes`"""
    over = " and ".join(_reduced(axis) for axis in node.axes) or "one element"
    text = f"{node.value} = {node.form} over {over}"
    if node.lanes > 1:
        text += f", in each of {node.lanes} lanes"
    if node.results > 1:
        text += f", {node.results} side by side"
    if node.accumulators > 1:
        text += f", {node.accumulators} accumulators"
    if node.tree is Tree.PAIRS:
        text += f", {node.tree.value}"
    if node.join in (Join.TOGETHER, Join.TESTED):
        text += f", {node.join.value}"
    return text if node.source is Source.DIRECT else f"{text}, {node.source.value}"


def _reduced(axis: Axis) -> str:
    written = ", written out" if axis.role is Role.UNROLLED else ""
    steps = f"{_step(axis)}{written}{_blocks(axis)}{_tail(axis)}"
    return f"{axis.name} in {_extent(axis)}{steps}"


def _cache(node: Cache) -> str:
    size = "" if node.storage is Storage.REGISTERS else f", {node.size_bytes} bytes"
    shares = f", in the memory of {node.shares}" if node.shares else ""
    dims = ",".join(map(str, node.dims))
    return f"cache {node.value}[{dims}] {node.dtype} {node.storage.value}{size}{shares}"


def _store(node: Store) -> str:
    index = ",".join(node.index)
    at = f" at {node.start}" if node.start else ""
    over = f", over {node.over}" if node.over else ""
    hints = "".join(f", {hint.value}" for hint in node.hints)
    return f"{node.result}[{index}]{at} = {node.value}{over}{hints}"
