"""Packing: one factor of a contraction copied into panels, in the product's order.

    memory, any strides --> the packing's form

Ways to read: along the free set where it is contiguous, along depth as it lies or with a transpose
in registers, and a vector of the free set after the other: by the runs that it meets, out of the
stretch that holds its lanes, by gathers.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.arithmetic import add, advanced, divided, split_index, strided, times
from hlo.backend.ir.control import loop, looped, void, when, when_rest
from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.packing.form import Fetch, Packing, PanelRange
from hlo.backend.kernels.contraction.packing.interleaving import (
    ask_ahead,
    flag_words,
    rows_of_words,
    word_of,
)
from hlo.backend.kernels.contraction.packing.runs import Ahead, RunsVector, offsets_of, runs_met
from hlo.backend.kernels.contraction.packing.strided import StretchVector, stretch_of
from hlo.backend.kernels.contraction.problem.addressing import (
    Place,
    Run,
    address_of,
    begin,
    moved,
    outside,
    read,
)
from hlo.backend.kernels.contraction.problem.ring import (
    Parts,
    element_address,
    gathered,
    is_plain,
    loaded,
)
from hlo.backend.lanes.masked import below, first_of
from hlo.backend.lanes.transposed import turned_parts


def pack(w: Writer, packing: Packing, block: PanelRange) -> None:
    """Write the copy. block.count and block.depth_size are at least 1."""
    source = packing.source
    if packing.by_rows:
        _pack_rows(w, packing, block)
    elif source.is_free_contiguous or (packing.is_in_vectors and source.is_made):
        _pack_along_free(w, packing, block)
    elif packing.is_turned and not runs_met(packing):
        _pack_transposed(w, packing, block)
    else:
        _pack_vectors(w, packing, block)


def _pack_along_free(w: Writer, packing: Packing, block: PanelRange) -> None:
    """for k: for panel: vectors. Reads whole rows, so that pages are met once."""
    ring, source, panels = packing.ring, packing.source, packing.panels
    lanes, masked = ring.lanes, panels.exceeds(source.free_size)

    def at_depth(i: Value, _: list[Value]) -> list[Value]:
        k = add(w, block.depth_begin, i)
        row = moved(w, block.source, k, source.depth, source.dtype)
        target = advanced(w, block.target, times(w, k, packing.k_step), ring.scalar)
        rows = rows_of_words(w, packing, row)

        def at_panel(p: Value, _: list[Value]) -> list[Value]:
            start = panels.start(w, add(w, block.first, p))
            to = advanced(w, target, times(w, p, packing.panel_size), ring.scalar)
            begin(ring, row)
            ask_ahead(w, packing, rows, start)
            found: list[Parts] = []
            for v in range(panels.width // lanes):
                at = add(w, start, w.int(v * lanes))
                mask = below(w, at, source.free_size, lanes) if masked else None
                offset = at if source.is_free_contiguous else strided(w, at, source.free)
                run = Run(offset, source.free_size, is_whole=not panels.overlaps)
                if source.joined is None:
                    found.append(read(w, ring, source.dtype, row, run, lanes, mask))
                else:
                    found.append((word_of(w, packing, rows, run, mask),))
                put(w, packing, found[v], advanced(w, to, v * lanes, ring.scalar))
            if block.flag is not None:
                flag_words(w, [word for (word,) in found], block.flag)
            return []

        with outside(row):
            loop(w, block.count, [], at_panel)
        return []

    loop(w, block.depth_size, [], at_depth)


def put(w: Writer, packing: Packing, parts: Parts, address: Value) -> None:
    """Store the parts of one vector of one k."""
    for i, part in enumerate(parts):
        to = advanced(w, address, i * packing.part_step, packing.ring.scalar)
        w.store(part, to, packing.ring.scalar_bytes)


# -- along depth, as it lies -------------------------------------------------------------------


def _pack_rows(w: Writer, packing: Packing, block: PanelRange) -> None:
    """for panel: for row: for run of depth: a copy. Rows go to the block's target as they come."""
    source, panels = packing.source, packing.panels
    run = source.depth[-1][0]

    def at_row(i: Value, _: list[Value]) -> list[Value]:
        p, r = split_index(w, i, (1 << 40, panels.step))
        start = panels.start(w, add(w, block.first, p))
        row = strided(w, add(w, start, r), source.free)
        at = element_address(w, address_of(block.source), row, source.dtype)
        to = advanced(w, block.target, times(w, i, packing.row_step), packing.ring.scalar)

        def at_run(i: Value, _: list[Value]) -> list[Value]:
            k = add(w, first, i)
            begin = element_address(w, at, strided(w, k, source.depth[:-1]), source.dtype)
            moved = advanced(w, to, times(w, k, run), packing.ring.scalar)
            _copy_run(w, packing, begin, moved, w.int(run))
            return []

        if packing.is_part_of_run:
            offset = strided(w, block.depth_begin, source.depth)
            begin = element_address(w, at, offset, source.dtype)
            moved = advanced(w, to, block.depth_begin, packing.ring.scalar)
            _copy_run(w, packing, begin, moved, block.depth_size)
            return []
        loop(w, runs, [], at_run)
        return []

    first, runs = (divided(w, v, run) for v in (block.depth_begin, block.depth_size))

    loop(w, times(w, block.count, panels.step), [], at_row)


def _copy_run(w: Writer, packing: Packing, source: Value, target: Value, run: Value) -> None:
    """`run` neighbours as ring numbers."""
    ring, dtype = packing.ring, packing.source.dtype
    if is_plain(dtype, ring):
        w.copy_bytes(target, source, times(w, run, ring.scalar_bytes))
        return

    def copy(k: Value, mask: Value | None) -> list[Value]:
        at = element_address(w, source, k, dtype)
        parts = loaded(w, ring, dtype, at, ring.lanes, mask)
        put(w, packing, parts, advanced(w, target, k, ring.scalar))
        return []

    whole, rest = _whole_and_rest(w, packing, run, ring.lanes)
    looped(w, whole, lambda i: void(copy(times(w, i, ring.lanes), None)))
    if rest:
        at = times(w, whole, ring.lanes)
        mask = below(w, w.int(0), rest, ring.lanes)
        when_rest(w, run, ring.lanes, lambda: void(copy(at, mask)))


def _whole_and_rest(w: Writer, packing: Packing, size: Value, step: int) -> tuple[Value, int]:
    """Steps of a run, and what is left at its end: of a part of depth, at the end of the last."""
    run = packing.source.depth[-1][0]
    rest = (run if size.integer is None else size.integer) % step
    return divided(w, size, step), rest


# -- by vectors of the free set ----------------------------------------------------------------


def each_vector(
    w: Writer, packing: Packing, block: PanelRange, body: Callable[[Value, Value], None]
) -> None:
    """for panel: for vector: body(first index of the free set, its place in the panel)."""
    ring, panels = packing.ring, packing.panels
    vectors = panels.width // ring.lanes

    def at_vector(i: Value, _: list[Value]) -> list[Value]:
        p, v = split_index(w, i, (1 << 40, vectors)) if vectors > 1 else (i, w.int(0))
        start = panels.start(w, add(w, block.first, p))
        start = add(w, start, times(w, v, ring.lanes))
        offset = add(w, times(w, p, packing.panel_size), times(w, v, ring.lanes))
        body(start, advanced(w, block.target, offset, ring.scalar))
        return []

    loop(w, times(w, block.count, vectors), [], at_vector)


# -- along depth, transposed -------------------------------------------------------------------


def _pack_transposed(w: Writer, packing: Packing, block: PanelRange) -> None:
    """for panel: for group of lanes: for run of depth: square blocks through the registers."""

    def at_vector(start: Value, target: Value) -> None:
        rows = _row_places(w, packing, block.source, start)
        with outside(rows[0]):
            if len(packing.source.depth) == 1:
                _pack_run(w, packing, rows, target, block.depth_begin, block.depth_size)
            else:
                _pack_runs(w, packing, rows, target, block)

    each_vector(w, packing, block, at_vector)


def _pack_runs(
    w: Writer, packing: Packing, rows: list[Place], target: Value, block: PanelRange
) -> None:
    """The block's runs of the innermost depth axis."""
    source, ring = packing.source, packing.ring
    run = source.depth[-1][0]
    if packing.is_in_one_run:
        own = [moved(w, row, block.depth_begin, source.depth, source.dtype) for row in rows]
        to = advanced(w, target, times(w, block.depth_begin, packing.k_step), ring.scalar)
        _pack_run(w, packing, own, to, w.int(0), block.depth_size)
        return
    first = divided(w, block.depth_begin, run)

    def at_run(j: Value, _: list[Value]) -> list[Value]:
        i = add(w, first, j)
        own = [moved(w, row, i, source.depth[:-1], source.dtype) for row in rows]
        to = advanced(w, target, times(w, i, run * packing.k_step), ring.scalar)
        _pack_run(w, packing, own, to, w.int(0), w.int(run))
        return []

    loop(w, divided(w, block.depth_size, run), [], at_run)


def _row_places(w: Writer, packing: Packing, base: Place, start: Value) -> list[Place]:
    """Where `lanes` consecutive free indices begin; those beyond the set repeat its last."""
    source, lanes = packing.source, packing.ring.lanes
    affine = len(source.free) == 1
    is_in_set = not packing.panels.exceeds(source.free_size)
    if isinstance(base, Value) and affine and is_in_set:
        first = element_address(w, base, times(w, start, source.free[0][1]), source.dtype)
        return [
            element_address(w, first, w.int(r * source.free[0][1]), source.dtype)
            for r in range(lanes)
        ]
    last = w.int(source.free_size - 1)
    places = []
    for r in range(lanes):
        index = add(w, start, w.int(r))
        if not is_in_set or not affine:
            index = w.intrinsic("llvm.umin", "i64", index, last)
        places.append(moved(w, base, index, source.free, source.dtype))
    return places


def _pack_run(
    w: Writer, packing: Packing, rows: list[Place], target: Value, first: Value, size: Value
) -> None:
    """depth [first, first + size) of one run: whole squares, then the rest with masks."""
    step = packing.square
    whole, rest = _whole_and_rest(w, packing, size, step)

    def square(i: Value, count: int) -> None:
        _pack_square(w, packing, rows, target, add(w, first, times(w, i, step)), count)

    looped(w, whole, lambda i: square(i, step))
    if rest:
        when_rest(w, size, step, lambda: square(whole, rest))


def _pack_square(
    w: Writer, packing: Packing, rows: list[Place], target: Value, k: Value, count: int
) -> None:
    """lanes x `count` elements, a square of 128 bits a side in each 128 bits of the vectors.

    Vector r holds the rows r, r + square, r + 2 square, ...; transposing within the 128-bit parts
    (cheap for the machine, and for LLVM: 64 shuffles over whole vectors take it 10 ms) is enough.
    """
    ring, source, square = packing.ring, packing.source, packing.square
    mask = None
    if count < square:
        mask = first_of(count, square)
    begin(ring, rows[0])
    run = Run(k, source.depth[-1][0], is_whole=packing.panel_depth == 0)
    found = [read(w, ring, source.dtype, row, run, square, mask) for row in rows]
    columns = []
    for i in range(ring.parts):
        parts = [numbers[i] for numbers in found]
        joined = [w.end_to_end(parts[r::square]) for r in range(square)]
        columns.append(turned_parts(w, joined))
    to = advanced(w, target, times(w, k, packing.k_step), ring.scalar)
    for i in range(count):
        at = advanced(w, to, i * packing.k_step, ring.scalar)
        put(w, packing, tuple(column[i] for column in columns), at)


# -- vector by vector of the free set ----------------------------------------------------------


def _pack_vectors(w: Writer, packing: Packing, block: PanelRange) -> None:
    """for panel: for vector: for some depths: what holds its lanes (runs.py, strided.py), or one
    gather.
    """
    several = len(packing.source.free) > 1

    def at_vector(start: Value, target: Value) -> None:
        def depths(fetch: Fetch) -> None:
            _each_depth(w, packing, block, target, start, fetch)

        if (vector := _vector_at(w, packing, start)) is None:
            depths(_gathered_at(w, packing, start))
        elif not several:  # masks of one run take no longer
            depths(vector.parted(w))
        elif packing.is_in_vectors:
            depths(vector.whole(w))
        else:
            when(
                w,
                vector.is_whole(w),
                lambda: depths(vector.whole(w)),
                lambda: depths(vector.parted(w)),
            )

    each_vector(w, packing, block, at_vector)


def _each_depth(
    w: Writer, packing: Packing, block: PanelRange, target: Value, start: Value, fetch: Fetch
) -> None:
    """A vector of the free set at each depth. Neighbouring depths stand one after the other, for to
    find a depth's place among several axes takes longer than to read there.
    """
    source, ring = packing.source, packing.ring
    outer, inner = packing.depth_rounds
    offsets = offsets_of(inner)
    memory, ahead = address_of(block.source), Ahead.of(w, packing, start)
    first = divided(w, block.depth_begin, len(offsets))

    def at_round(j: Value, _: list[Value]) -> list[Value]:
        i = add(w, first, j)
        base = element_address(w, memory, strided(w, i, outer), source.dtype)
        k = times(w, i, len(offsets) * packing.k_step)
        to = advanced(w, target, k, ring.scalar)
        if ahead is not None:
            ahead.ask(w, base)
        for n, offset in enumerate(offsets):
            at = element_address(w, base, w.int(offset), source.dtype)
            put(w, packing, fetch(at), advanced(w, to, n * packing.k_step, ring.scalar))
        return []

    loop(w, divided(w, block.depth_size, len(offsets)), [], at_round)


def _vector_at(w: Writer, packing: Packing, start: Value) -> RunsVector | StretchVector | None:
    """The vector of the free set from an index of it on; None where gathers serve."""
    source, found = packing.source, stretch_of(packing)
    if found is None and not runs_met(packing):
        return None
    run = w.int(source.free[-1][0])
    within = w.binary("urem", start, run) if len(source.free) > 1 else start
    left = w.binary("sub", run, within)
    if packing.panels.exceeds(source.free_size):
        is_there = w.compare("icmp slt", start, w.int(source.free_size))
        left = w.select(is_there, left, w.int(0))
    if found is None:
        return RunsVector(packing, start, left)
    return StretchVector(packing, found, start, left)


def _gathered_at(w: Writer, packing: Packing, start: Value) -> Fetch:
    ring, dtype = packing.ring, packing.source.dtype
    offsets = _clamped_offsets(w, packing, start)
    return lambda base: gathered(w, ring, dtype, base, offsets)


def _clamped_offsets(w: Writer, packing: Packing, start: Value) -> Value:
    source, lanes = packing.source, packing.ring.lanes
    narrow, wide = f"<{lanes} x i32>", f"<{lanes} x i64>"
    index = w.splat(w.cast("trunc", start, "i32"), lanes)
    index = w.binary("add", index, counted("i32", lanes))
    index = w.intrinsic("llvm.umin", narrow, index, w.int(source.free_size - 1, narrow))
    parts: list[tuple[Value, int]] = []
    for size, stride in reversed(source.free[1:]):
        parts.append((w.binary("urem", index, w.int(size, narrow)), stride))
        index = w.binary("udiv", index, w.int(size, narrow))
    parts.append((index, source.free[0][1]))
    offsets = w.int(0, wide)
    for part, stride in parts:
        moved = w.binary("mul", w.cast("zext", part, wide), w.int(stride, wide))
        offsets = w.binary("add", offsets, moved)
    return offsets
