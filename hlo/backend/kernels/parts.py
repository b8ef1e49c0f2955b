"""Parts: a kernel's results cut into boxes, each with the loops that suit it.

outputs --parts_of--> [Part]: a box of index space, its loops, what is parallel, what is lanes
"""

from __future__ import annotations

import itertools
from math import prod

from hlo.analysis.reducers import reducer_of
from hlo.backend.kernels.outputs import Output
from hlo.backend.kernels.part import LIGHT, Part, Squares
from hlo.backend.kernels.units import UNITS, choose_units
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.folds import (
    FEWEST_TURNED,
    MOST_ROW_OPS,
    MOST_ROW_READS,
    UNROLLED,
    most_turned,
)
from hlo.backend.loops.trace import Trace, trace
from hlo.backend.loops.vectors import MOST_LANES, fitting, narrowed
from hlo.indexing import affine, spaces
from hlo.indexing.affine import Expr, Index, Variable

_BOXES = 12  # at most so many copies of the code for the sides of seams
_BOX_OPS = 300  # and at most so many ops in all of them together
_BLOCK_SIDES = (256, 64)  # elements of a block of squares along and across the operand's rows
_SHORT_FOLD = 16  # elements per row that leave lanes idle, or cost a tree of lanes for little
_LEAST_STRIPS = 4  # for a few cores, rather than full lines of every row


def parts_of(expression: Expression, outputs: list[Output], lanes: int) -> list[Part]:
    """Groups of outputs with equal (or leading) dimensions, each cut into boxes."""
    found: list[Part] = []
    machine = expression.target.machine
    for primary, outer in _groups(outputs):
        whole = Part(machine, primary, outer, (0,) * len(primary[0].dims), primary[0].dims)
        if whole.size:
            found += [_planned(expression, box, lanes) for box in _boxes(expression, whole)]
    return found


def _groups(outputs: list[Output]) -> list[tuple[list[Output], list[Output]]]:
    left = sorted(outputs, key=lambda o: (-prod(o.dims), -len(o.dims)))
    groups = []
    while left:
        dims = left[0].dims
        same = [o for o in left if o.dims == dims]
        outer = [o for o in left if o.dims != dims and o.rows == dims[: len(o.rows)]]
        outer = [o for o in outer if o.alias is None]
        groups.append((same, outer))
        taken = {o.leaf for o in (*same, *outer)}
        left = [o for o in left if o.leaf not in taken]
    return groups


def traced(expression: Expression, part: Part, index: Index) -> Trace:
    """What the part's results need at an index."""
    roots = [(o.source, index, o.path) for o in part.outputs]
    roots += [(o.source, o.row_index(index), o.path) for o in part.outer]
    return trace(expression, roots)


# -- boxes -----------------------------------------------------------------------------------


def _boxes(expression: Expression, whole: Part) -> list[Part]:
    """The part cut where a condition changes, if that takes few boxes and repeats no reduction."""
    variables = [
        Variable(f"d{k}", n, n + size - 1)
        for k, (n, size) in enumerate(zip(whole.low, whole.dims, strict=True))
    ]
    index = tuple(affine.of(v) for v in variables)
    found = whole.trace = traced(expression, whole, index)
    whole.variables = variables
    cuts = _cuts(found, variables)
    count = prod(len(c) + 1 for c in cuts)
    ops = found.ops + len(found.reads)
    if count == 1 or count > _BOXES or count * ops > _BOX_OPS or found.reductions or whole.outer:
        return [whole]
    spans = [
        list(itertools.pairwise([v.low, *sorted(c), v.high + 1]))
        for v, c in zip(variables, cuts, strict=True)
    ]
    boxes = []
    for box in itertools.product(*spans):
        low = tuple(a for a, _ in box)
        dims = tuple(b - a for a, b in box)
        boxes.append(Part(whole.machine, whole.outputs, [], low, dims))
    # A cut may uncover another one (a pad of a concatenate).
    for made in boxes:
        made.remarks.append(f"boxes: {count}, of {ops} operations each, for {_BOX_OPS} at most")
    return [inner for box in boxes for inner in ([box] if count == 1 else _recut(expression, box))]


def _recut(expression: Expression, box: Part) -> list[Part]:
    variables = [
        Variable(f"d{k}", n, n + size - 1)
        for k, (n, size) in enumerate(zip(box.low, box.dims, strict=True))
    ]
    found = traced(expression, box, tuple(affine.of(v) for v in variables))
    if not any(_cuts(found, variables)):
        return [box]
    return _boxes(expression, box)


def _cuts(found: Trace, variables: list[Variable]) -> list[set[int]]:
    """Per dimension, the positions at which some condition begins or ceases to hold."""
    cuts: list[set[int]] = [set() for _ in variables]
    for condition in found.conditions:
        e = condition.index
        if len(e.terms) != 1:
            continue
        ((atom, k),) = e.terms.items()
        if not isinstance(atom, Variable) or atom not in variables:
            continue
        low, high = condition.low - e.constant, condition.high - e.constant
        if k < 0:
            k, low, high = -k, -high, -low
        for cut in (-(-low // k), high // k + 1):
            if atom.low < cut <= atom.high:
                cuts[variables.index(atom)].add(cut)
    return cuts


# -- loops -----------------------------------------------------------------------------------


def _planned(expression: Expression, part: Part, lanes: int) -> Part:
    """Loop extents, lanes, units and unrolling of a box."""

    kept = _choose_order(expression, part)
    dims = [part.dims[d] for d in part.order or range(len(part.dims))]

    def met(inner: Index) -> list[Expr]:
        index = part._placed(inner)
        found = part.trace = traced(expression, part, index)
        places = [affine.linear(index, o.frame) for o in part.outputs]
        places += [affine.linear(o.row_index(index), o.dims) for o in part.outer]
        return found.expressions() + places

    part.extents, part.variables = spaces.factored_with(dims, met)
    if len(part.variables) != len(part.extents):
        part.variables = spaces.variables_of(part.extents)
        part.trace = traced(expression, part, part.index([affine.of(v) for v in part.variables]))
    part.lanes = lanes
    part.vector_bytes = expression.target.vector_bytes
    if _choose_strip(part, kept):
        return part
    part.turned = bool(part.extents) and _folds_short_rows(part)
    part.in_lanes = part.turned or (bool(part.extents) and not _is_row_fold(part))
    _choose_tile(part)
    if part.in_lanes and part.tile is None:
        _choose_lanes(part)
    choose_units(part)
    return part


def _choose_order(expression: Expression, part: Part) -> int:
    """The dimensions that all folds keep come first; their number of elements, 0 if they differ."""
    variables, found = part.variables, part.trace
    if len(variables) != len(part.dims):  # not looked at yet
        variables = [Variable(f"d{k}", 0, n - 1) for k, n in enumerate(part.dims)]
        found = traced(expression, part, part._placed(tuple(affine.of(v) for v in variables)))
    sets = {
        tuple(d for d, v in enumerate(variables) if any(e.depends_on(v) for e in index))
        for _, index in found.reductions
    }
    long = [d for d, n in enumerate(part.dims) if n > 1]
    if len(sets) != 1 or not all(reducer_of(r).reassociates for r, _ in found.reductions):
        return 0
    if not all(e.is_made_of(variables) for _, index in found.reductions for e in index):
        return 0  # folds at an index known at run time only
    (kept,) = sets
    if not kept or set(kept) == set(long):
        return 0
    if list(kept) != long[: len(kept)]:
        part.order = (*kept, *(d for d in range(len(part.dims)) if d not in kept))
        part.remarks.append(f"order: dimensions {part.order}, as all folds keep {kept}")
    return prod(part.dims[d] for d in kept)


def _choose_strip(part: Part, kept: int) -> bool:
    """Lanes over what folds keep: where that is contiguous, or what they fold is very short."""
    count = next((c for c in range(1, len(part.extents)) if prod(part.extents[:c]) == kept), 0)
    if not count or part.extents[count - 1] < part.lanes:
        return False
    folded = prod(part.extents[count:])
    place = part.outputs[0].place(part.index([affine.of(v) for v in part.variables]))
    is_contiguous = place.coefficient(part.variables[count - 1]) == 1
    if not is_contiguous and (folded > _SHORT_FOLD or part.order):
        return False
    part.strip, part.lane_loop, part.prefix = True, count - 1, count - 1
    vectors = -(-part.extents[count - 1] // part.lanes)
    units = prod(part.extents[: count - 1])
    most = min(4 if is_contiguous else 1 + (folded > 8), vectors)
    while most > 1 and units * vectors < _LEAST_STRIPS * most:
        most //= 2
    part.in_one = part.weight > LIGHT
    why = "contiguous" if is_contiguous else f"around rows of {folded}"
    part.remarks.append(f"lanes: over the {part.extents[count - 1]} that all folds keep, {why}")
    part.copies = min(range(1, most + 1), key=lambda n: _visits(vectors, n, in_one=part.in_one))
    visits = _visits(vectors, part.copies, in_one=part.in_one)
    part.remarks.append(
        f"batch: {part.copies} vectors, {visits} visits of a row for {vectors}, {most} at most"
    )
    step = part.copies * part.lanes
    wanted = -(-UNITS // units)
    part.block = max(step, part.extents[count - 1] // wanted // step * step)
    if part.block >= part.extents[count - 1]:
        part.block = 0
    part.remarks.append(f"units: {part.units} of {UNITS} wanted")
    return True


def _visits(vectors: int, copies: int, *, in_one: bool) -> int:
    """Of rows' places by batches of vectors; to find the place costs as much as a vector."""
    whole, rest = divmod(vectors, copies)
    return whole * (copies + 1) + (copies + 1 if rest and in_one else rest + 1 if rest else 0)


def _is_row_fold(part: Part) -> bool:
    """Whether lanes should run inside the reductions rather than over the last dimension."""
    last = part.variables[-1]
    along, across = 0, 0
    for read in part.trace.reads:
        if not any(read.position.depends_on(v) for v in read.folded):
            continue
        step = read.position.coefficient(last)
        inner = [v for v in read.folded if read.position.coefficient(v) == 1 and v.high > 0]
        if not read.position.depends_on(last):
            continue
        if step != 1 and inner and prod(v.high + 1 for v in read.folded) >= 8:
            along += 1
        else:
            across += 1
    if along <= across:
        return False
    part.remarks.append(f"lanes: inside the folds, {along} reads run along them, {across} across")
    return all(reducer_of(r).reassociates for r, _ in part.trace.reductions)


def _folds_short_rows(part: Part) -> bool:
    """Whether lanes may take a row each, which they read from end to end together."""
    last = part.variables[-1]
    if (
        not 2 * part.lanes <= part.extents[-1]
        or part.lanes > MOST_LANES
        or part.trace.conditions
        or not part.trace.reductions
    ):
        return False
    most = min(most_turned(reduce) for reduce, _ in part.trace.reductions)
    along = [r for r in part.trace.reads if r.folded]
    if not along or not all(r.position.depends_on(last) for r in along):
        return False
    for read in along:
        length = prod(v.high + 1 for v in read.folded)
        if length > UNROLLED and len({r.source for r in along}) * length > MOST_ROW_READS:
            return False
        if not FEWEST_TURNED <= length <= most or length * (1 + part.weight) > MOST_ROW_OPS:
            return False
        if len(read.folded) > 1 or read.position.coefficient(read.folded[0]) != 1:
            return False
        if (read.position.coefficient(last) or 0) < 2:
            return False
    part.remarks.append(f"lanes: a row each, turned in registers, {most} elements at most")
    return True


def _choose_tile(part: Part) -> None:
    """The loop along which reads that are strided for the lanes are contiguous."""
    if not part.in_lanes or part.trace.reductions or part.outer:
        return
    last = part.variables[-1]
    lanes = min(part.lanes, 16)
    counts: dict[int, int] = {}
    for read in part.trace.reads:
        step = read.position.coefficient(last)
        if step is None or abs(step) < 2 or read.dtype.is_complex:
            continue
        for k, v in enumerate(part.variables[:-1]):
            if read.position.coefficient(v) == 1 and part.extents[k] >= lanes:
                counts[k] = counts.get(k, 0) + 1
    if counts and part.extents[-1] >= 4:
        part.tile = max(counts, key=lambda k: counts[k])
        part.lanes = lanes
        part.squares = _squares(part)
        reads = counts[part.tile]
        part.remarks.append(f"tile: loop {part.tile} by {lanes}, {reads} reads run along it")
        if part.squares is not None:
            large = part.machine.second_cache.bytes
            part.remarks.append(f"squares: results of {large} bytes or more, whole lines")


def _choose_lanes(part: Part) -> None:
    """Shorter vectors for short loops, unless folds that go along lanes want full ones."""
    length, last, full = part.extents[-1], part.variables[-1], part.lanes
    if not part.trace.reductions:
        part.lanes = fitting(length, full)
    elif all(any(e.depends_on(last) for e in index) for _, index in part.trace.reductions):
        part.lanes = narrowed(length, full)
    if part.lanes < full:
        part.remarks.append(f"lanes: {part.lanes} of {full}, which take a loop of {length}")


def _squares(part: Part) -> Squares | None:
    """Blocks where the results are large and whole lines."""
    assert part.tile is not None
    if not all(_fills_lines(part, o) for o in part.outputs):
        return None
    rows, columns = (n // part.lanes * part.lanes for n in _BLOCK_SIDES)
    line_bytes = part.machine.line_bytes
    if any(columns % (line_bytes // o.array.dtype.item_bytes) for o in part.outputs):
        return None
    return Squares(rows, columns)


def _fills_lines(part: Part, output: Output) -> bool:
    """Whether a result's rows begin and end with lines, and it does not stay in the cache that it
    passes.
    """
    size_bytes, line_bytes = output.array.dtype.item_bytes, part.machine.line_bytes
    large = part.machine.second_cache.bytes
    if output.alias is not None or output.array.size * size_bytes < large:
        return False
    if part.extents[-1] * size_bytes % line_bytes or part.extents[-1] < part.lanes:
        return False
    place = output.place(part.index([affine.of(v) for v in part.variables]))
    *outer, last = part.variables
    steps = [place.coefficient(v) for v in outer]
    return (
        place.coefficient(last) == 1
        and place.constant * size_bytes % line_bytes == 0
        and all(k is not None and k * size_bytes % line_bytes == 0 for k in steps)
    )
