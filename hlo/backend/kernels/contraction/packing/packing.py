"""Packing: one factor of a contraction copied into panels, in the product's order.

    memory, any strides --> the packing's form

Four ways to read: along the free set where it is contiguous, along depth as it lies or with a
transpose in registers, by gathers.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.arithmetic import add, advanced, divided, split_index, strided, times
from hlo.backend.ir.control import loop, looped, void, when, when_rest
from hlo.backend.ir.values import counted, every_lane
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.packing.form import Packing, PanelRange
from hlo.backend.kernels.contraction.packing.joining import (
    ask_ahead,
    rows_of_words,
    tell_of_words,
    word_of,
)
from hlo.backend.kernels.contraction.packing.strided import stretch_of, vector_at
from hlo.backend.kernels.contraction.problem.places import (
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
    elif source.is_free_contiguous or packing.is_in_vectors:
        _pack_along_free(w, packing, block)
    elif packing.is_turned:
        _pack_transposed(w, packing, block)
    else:
        _pack_gathered(w, packing, block)


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
            if block.told is not None:
                tell_of_words(w, [word for (word,) in found], block.told)
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


# -- by gathers --------------------------------------------------------------------------------


def _pack_gathered(w: Writer, packing: Packing, block: PanelRange) -> None:
    """for panel: for vector: for k: one gather, or two loads where runs are as long as a vector, or
    those of the stretch that holds neighbours a few elements apart.
    """
    ring, source, found = packing.ring, packing.source, stretch_of(packing)

    def at_vector(start: Value, target: Value) -> None:
        if found is None:
            depths(_fetcher(w, packing, start), target)
            return
        vector = vector_at(w, packing, found, start)
        if len(source.free) == 1:  # masks of one run take no longer
            depths(vector.parted(w), target)
            return
        when(
            w,
            vector.is_whole(w),
            lambda: depths(vector.whole(w), target),
            lambda: depths(vector.parted(w), target),
        )

    def depths(fetch: Callable[[Value], Parts], target: Value) -> None:
        def at_depth(j: Value, _: list[Value]) -> list[Value]:
            k = add(w, block.depth_begin, j)
            memory = address_of(block.source)
            base = element_address(w, memory, strided(w, k, source.depth), source.dtype)
            to = advanced(w, target, times(w, k, packing.k_step), ring.scalar)
            put(w, packing, fetch(base), to)
            return []

        loop(w, block.depth_size, [], at_depth)

    each_vector(w, packing, block, at_vector)


def _fetcher(w: Writer, packing: Packing, start: Value) -> Callable[[Value], Parts]:
    """A vector of the free set from index `start`, as a function of the address of index 0."""
    ring, source = packing.ring, packing.source
    size, stride = source.free[-1]
    if stride == 1 and size >= ring.lanes:
        return _two_loads(w, packing, start)
    offsets = _clamped_offsets(w, packing, start)
    return lambda base: gathered(w, ring, source.dtype, base, offsets)


def _two_loads(w: Writer, packing: Packing, start: Value) -> Callable[[Value], Parts]:
    """A vector meets the end of a run at most once: what follows comes by a second load."""
    ring, source = packing.ring, packing.source
    lanes, run = ring.lanes, source.free[-1][0]
    left = w.binary("sub", w.int(run), w.binary("urem", start, w.int(run)))
    first = strided(w, start, source.free)
    last = w.int(source.free_size - 1)
    following = w.intrinsic("llvm.umin", "i64", w.binary("add", start, left), last)
    second = w.binary("sub", strided(w, following, source.free), left)
    here = w.compare("icmp ult", counted("i64", lanes), w.splat(left, lanes))
    valid = below(w, start, source.free_size, lanes)
    ones = every_lane(lanes)
    there = w.binary("and", valid, w.binary("xor", here, ones))
    here = w.binary("and", valid, here)

    def fetch(base: Value) -> Parts:
        near = element_address(w, base, first, source.dtype)
        far = element_address(w, base, second, source.dtype)
        a = loaded(w, ring, source.dtype, near, lanes, here)
        b = loaded(w, ring, source.dtype, far, lanes, there)
        return tuple(w.select(here, x, y) for x, y in zip(a, b, strict=True))

    return fetch


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
