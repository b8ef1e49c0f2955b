"""The loops of folds that walk through memory row by row, as nodes of a schedule."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.reducers import reducer_of
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.reading import read_by
from hlo.backend.kernels.lane_axis import lane_axis
from hlo.backend.kernels.part import Part, Walk
from hlo.backend.loops.schedule import Axis, Cache, Fill, Loop, Node, Place, Role, Tail, axis_name


def stream_nodes(elemental: Elemental, part: Part, places: Sequence[Place]) -> tuple[Node, ...]:
    """Of all walks: memory for columns, their start, the rows."""
    found: list[Node] = []
    left = list(places)
    for walk in part.walks:
        own, left = left[: walk.memories], left[walk.memories :]
        found += _walked(elemental, part, walk, own)
    return tuple(found)


def _walked(elemental: Elemental, part: Part, walk: Walk, places: Sequence[Place]) -> list[Node]:
    columns = lane_axis(part, part.block)
    size = part.block or part.extents[-1]
    names = " and ".join(fold.name for fold in walk.folds)
    totals = f"totals of {names}" if walk.block else names
    found: list[Node] = []
    place = Place.SCRATCH if Place.SCRATCH in places else Place.STACK
    total_bytes = size * sum(d.item_bytes for d in walk.dtypes)
    dtypes = " and ".join(dict.fromkeys(d.name for d in walk.dtypes))
    found.append(Cache(names, (walk.memories, size), dtypes, total_bytes, place))
    found.append(Loop(columns, (Fill(totals, "start"),)))
    if walk.surplus:
        found.append(Loop(columns, (Fill(f"surplus of {names}", "0"),)))
    *outer, length = walk.extents
    whole = length // walk.rows * walk.rows
    forms = " and ".join(dict.fromkeys(reducer_of(fold).name for fold in walk.folds))
    reads = dict.fromkeys(name for fold in walk.folds for name in read_by(elemental, fold))
    order = "in order" if any(fold.shape.is_tuple for fold in walk.folds) else "by pairs"
    text = f"{forms} of {walk.rows} rows {order}, reads {', '.join(reads)}"
    name = axis_name(len(outer), "r")
    chunk = Loop(columns, (Fill(names, text),))
    if walk.block:
        rows = Loop(Axis(name, walk.block, Role.REDUCED, walk.rows, of=whole), (chunk,))
        block = (
            Loop(columns, (Fill(names, "start"),)),
            rows,
            Loop(columns, (Fill(totals, f"{forms} of {totals} and {names}"),)),
        )
        inner: list[Node] = [Loop(Axis(name, whole, Role.REDUCED, walk.block), block)]
        if whole < length:
            rest = Fill(totals, f"{forms} of the last {length - whole} rows")
            inner.append(Loop(columns, (rest,)))
    else:
        tail = Tail.SHORT if whole < length else Tail.NONE
        axis = Axis(name, length, Role.REDUCED, walk.rows, tail=tail)
        inner = [Loop(axis, (chunk,))]
    for k in reversed(range(len(outer))):
        inner = [Loop(Axis(axis_name(k, "r"), outer[k], Role.REDUCED), tuple(inner))]
    return found + inner
