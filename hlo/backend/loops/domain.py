"""Domains: a kernel's results cut into boxes of index space, each with what its elements need.

    outputs --domains_of--> [Domain]: a box without seams of a pad or a concatenate
    Domain --looped--> Domain: as few loops as make every access affine, and what is read in them

A box is cut where a condition changes, if that takes few boxes; results with other dimensions have
domains of their own, but for those of fewer dimensions, which a larger one's loops store as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.analysis.loop_order import loop_order
from hlo.analysis.reducers import reducer_of
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.outputs import Output, is_interleaved
from hlo.backend.loops.trace import Trace, trace
from hlo.backend.loops.vectors import MOST_APART, MOST_INTERLEAVED, takes_rows
from hlo.indexing import affine, spaces
from hlo.indexing.affine import DivMod, Expr, Index, Variable, row_major_strides

_BOXES = 12  # The most boxes: each has a copy of the code.
_MOST_PARTS = 64  # The most arrays that are put together of which each has loops of its own.
_ROUNDS = 16  # The fewest rounds that are worth a box of their own.
_CORE_VECTORS = 6  # A row of fewer is as quickly looked at element by element.
_CORE_SHARE = 8  # What is around the largest box is at most such a part of all.
_BOX_OPS = 300  # The most ops in the code of all boxes together.
_PART_OPS = 16  # Of all parts' elements: code for each part costs more than to choose among fewer.
_PART_READS = 8  # For elements of other parts: the same.
_FEWEST_FILLED = 4  # A vector that has such a part of its lanes is worth a loop.


class Domain(Struct, frozen=True, eq=False):
    """low + [0, dims): a box of the outputs' index space.

    outer: results of fewer dimensions, written where these are fixed. order: the dimensions as
    loops run over them (None: as they are). extents, variables: of the loops, the outermost first;
    trace: what is needed at the variables' index. remarks: why, one for each decision.
    """

    outputs: tuple[Output, ...]
    outer: tuple[Output, ...]
    low: tuple[int, ...]
    dims: tuple[int, ...]
    order: tuple[int, ...] | None = None
    extents: tuple[int, ...] = ()
    variables: tuple[Variable, ...] = ()
    trace: Trace = field(default_factory=Trace)
    remarks: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return prod(self.dims)

    @property
    def weight(self) -> int:
        """What an element costs, in plain ops."""
        return self.trace.weight

    @property
    def own_index(self) -> Index:
        """The result's index at the loop variables."""
        return self.index([affine.of(v) for v in self.variables])

    def index(self, values: Sequence[Expr]) -> Index:
        """The result's index for values of the loop variables."""
        order = self.order or tuple(range(len(self.dims)))
        inner = affine.reshaped(tuple(values), self.extents, [self.dims[d] for d in order])
        return self.placed(inner)

    def placed(self, inner: Index) -> Index:
        """The result's index for positions in the box, in the loops' order."""
        order = self.order or tuple(range(len(self.dims)))
        return tuple(inner[order.index(d)] + n for d, n in enumerate(self.low))

    def fixes(self, index: Index) -> int:
        """How many of the outer loops have to be open for an index to be known."""
        needed = [k for k, v in enumerate(self.variables) if any(e.depends_on(v) for e in index)]
        return max(needed, default=-1) + 1

    def reduces_around(self, loops: int) -> bool:
        """Whether so many of the outer loops fix the index of all reductions, if there are any."""
        return all(self.fixes(at) <= loops for _, at in self.trace.reductions)

    def lies_in_rows(self, loop: int) -> bool:
        """Whether the loops behind a loop go through a row of each result element by element, and
        the loop itself from row to row: its lanes may be turned and stored as rows.
        """
        index, variables = self.own_index, self.variables[loop:]
        steps = row_major_strides(self.extents[loop:])
        return all(
            is_interleaved(output)
            and all(
                output.place(index).coefficient(v) == k
                for v, k in zip(variables, steps, strict=True)
            )
            for output in self.outputs
        )


def domains_of(expression: Expression, outputs: Sequence[Output], lanes: int) -> list[Domain]:
    """Groups of outputs with equal (or leading) dimensions, each cut into boxes, none empty.

    lanes: of a full vector of the kernel.
    """
    found: list[Domain] = []
    for primary, outer in _groups(outputs):
        dims = primary[0].dims
        whole = Domain(tuple(primary), tuple(outer), (0,) * len(dims), dims)
        if whole.size:
            found += [box for box in _boxes(expression, whole, lanes) if box.size]
    return found


def looped(
    expression: Expression, domain: Domain, lanes: int, said: tuple[int, ...] = ()
) -> tuple[Domain, int]:
    """The domain with its loops; how many elements all reductions keep, 0 if they differ.

    lanes: of a full vector of the kernel; said: the order of loops that the fusion's text asks for,
    () for none.
    """
    domain, kept = _ordered(expression, domain, said)
    dims = [domain.dims[d] for d in (domain.order or range(len(domain.dims)))]
    traces: list[Trace] = []
    # The index at which the domain was looked at is the first one here, too.
    seen = () if domain.order or any(domain.low) or 1 in domain.dims else domain.variables

    def met(inner: Index) -> list[Expr]:
        index = domain.placed(inner)
        is_seen = bool(seen) and not traces
        traces.append(domain.trace if is_seen else traced(expression, domain, index))
        positions = [affine.linear(index, o.frame) for o in domain.outputs]
        positions += [affine.linear(o.row_index(index), o.dims) for o in domain.outer]
        return traces[-1].expressions() + positions

    extents, variables = spaces.factored_with(dims, met, seen)
    if domain.trace.conditions and _is_shattered(dims, extents, lanes):
        extents, variables = tuple(n for n in dims if n != 1), []
    if len(variables) == len(extents):
        return replace(domain, extents=extents, variables=tuple(variables), trace=traces[-1]), kept
    made = replace(domain, extents=extents, variables=tuple(spaces.variables_of(extents)))
    return replace(made, trace=traced(expression, made, made.own_index)), kept


def _is_shattered(dims: Sequence[int], extents: Sequence[int], lanes: int) -> bool:
    """Whether loops over places and rounds leave little of a row for lanes, which conditions part
    at several steps: as holes of holes do, of sums that are halved again and again.

    A combination of 50 columns back from halves of halves takes 0.5 of the time whole, under masks.
    """
    row, own = dims[-1] if dims else 1, list[int]()
    for extent in reversed(extents):
        if prod(own) < row:
            own.append(extent)
    return len(own) > 2 and row >= lanes > max(own) and own[0] <= lanes // _FEWEST_FILLED


def traced(expression: Expression, domain: Domain, index: Index) -> Trace:
    """What the domain's results need at an index."""
    roots = [(o.source, index, o.path) for o in domain.outputs]
    roots += [(o.source, o.row_index(index), o.path) for o in domain.outer]
    return trace(expression, roots)


def are_apart(domain: Domain) -> bool:
    """Whether each place in a row of results is another array's."""
    cuts = _cuts(domain.trace, list(domain.variables))
    return bool(cuts) and len(cuts[-1]) + 1 == domain.extents[-1]


def covers(place: Expr, size: int) -> bool:
    """Whether a position takes each value of [0, size) once while its loop variables run."""
    if not all(isinstance(a, Variable) for a in place.terms) or place.low != 0:
        return False
    count = 1
    for step, atom in sorted((abs(k), a.high - a.low + 1) for a, k in place.terms.items()):
        if step != count:
            return False
        count *= atom
    return count == size


def is_within(index: Index, dims: tuple[int, ...]) -> bool:
    """Whether an index is one of an array's for all values of the loop variables."""
    return all(e.low >= 0 and e.high < n for e, n in zip(index, dims, strict=True))


def _groups(outputs: Sequence[Output]) -> list[tuple[list[Output], list[Output]]]:
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


# -- boxes -----------------------------------------------------------------------------------


def _boxes(expression: Expression, whole: Domain, lanes: int) -> list[Domain]:
    """The domain cut where a condition changes, if that takes few boxes and repeats no
    reduction.
    """
    found, variables = _seen(expression, whole)
    whole = replace(whole, variables=tuple(variables), trace=found)
    cuts = _cuts(found, variables)
    if cuts and _is_few_wide(whole, lanes, len(cuts[-1]) + 1):
        cuts[-1].clear()
    if found.reductions:
        return _beside_padding(expression, whole) or [whole]
    if not any(cuts) or whole.outer:
        return [whole]
    spans = [
        list(itertools.pairwise([v.low, *sorted(c), v.high + 1]))
        for v, c in zip(variables, cuts, strict=True)
    ]
    if prod(map(len, spans)) <= _BOXES:
        grid = [_box(whole, box) for box in itertools.product(*spans)]
        if fits := _fitting(expression, whole, grid):
            # A cut may uncover another one (a pad of a concatenate).
            return [inner for box in fits for inner in _recut(expression, box, lanes)]
    elif fits := _parts(expression, whole, spans, lanes):
        return [inner for box in fits for inner in _recut(expression, box, lanes)]
    if len(slabs := _slabs(spans)) <= _BOXES:
        boxes = [_box(whole, box) for box in slabs]
        if fits := _fitting(expression, whole, boxes):
            return fits
    boxes = [_box(whole, box) for box in _slabs(list(map(_around_largest, spans)))]
    if len(boxes) <= _BOXES and _is_mostly(boxes[-1], whole, lanes):
        return _fitting(expression, whole, boxes) or [whole]
    return [whole]


def _parts(
    expression: Expression, whole: Domain, spans: list[list[tuple[int, int]]], lanes: int
) -> list[Domain]:
    """A grid's boxes along the outermost dimension that is cut in more than two, whole in the
    others: arrays that are put together, of which each has few cuts of its own. Uncut, each
    element would be computed, and read, as those of all parts are; none where that is little.
    """
    along = next((d for d, cut in enumerate(spans) if 2 < len(cut) <= _MOST_PARTS), None)
    if along is None:
        return []
    is_costly = whole.weight >= _PART_OPS and len(spans[along]) <= _BOXES
    if not is_costly and len(whole.trace.reads) < _PART_READS:
        return []
    every = [(cut[0][0], cut[-1][1]) for cut in spans]
    boxes = [_box(whole, [*every[:along], span, *every[along + 1 :]]) for span in spans[along]]
    parts = _fitting(expression, whole, boxes)
    if is_costly or not parts:
        return parts
    spared = len(whole.trace.reads) - max(len(part.trace.reads) for part in parts)
    is_long = min(part.size for part in parts) >= _ROUNDS * lanes
    return parts if is_long and spared >= _PART_READS else []


def _beside_padding(expression: Expression, whole: Domain) -> list[Domain]:
    """Results whose terms meet no padding, which are most, and those beside them: of rows that are
    filled up to whole blocks, of which each is reduced, all but the last. None where another
    dimension is cut too, or a reduction would be made for both.
    """
    found, variables = whole.trace, whole.variables
    spans = _filled(found, variables)
    if len(spans) != 1 or whole.outer:
        return []
    ((along, (low, high)),) = spans.items()
    kept = variables[along]
    begin, end = kept.low, kept.high + 1
    beside = end - begin - (high - low)
    is_own = all(any(e.depends_on(kept) for e in index) for _, index in found.reductions)
    if not is_own or not 0 < _CORE_SHARE * beside <= end - begin:
        return []
    every = [(v.low, v.high + 1) for v in variables]
    parts = [(a, b) for a, b in ((begin, low), (low, high), (high, end)) if a < b]
    return _fitting(
        expression, whole, [_box(whole, [*every[:along], p, *every[along + 1 :]]) for p in parts]
    )


def _filled(found: Trace, variables: Sequence[Variable]) -> dict[int, tuple[int, int]]:
    """Of the dimensions on which conditions depend beside what is reduced, [low, high) where these
    hold for all terms.
    """
    spans: dict[int, tuple[int, int]] = {}
    for condition in found.conditions:
        e = condition.index
        own = [v for v in variables if e.depends_on(v)]
        k = e.coefficient(own[0]) if len(own) == 1 else None
        if not k or k < 0:
            continue
        rest = e - affine.of(own[0]) * k
        low = -((rest.low - condition.low) // k)
        high = (condition.high - rest.high) // k + 1
        d = variables.index(own[0])
        before = spans.get(d, (own[0].low, own[0].high + 1))
        spans[d] = max(before[0], low), min(before[1], high)
    return {d: s for d, s in spans.items() if s[0] < s[1]}


def _is_few_wide(whole: Domain, lanes: int, parts: int) -> bool:
    """Whether rows are of so few results that lanes take a row each (choose_lanes.rows_of_few):
    each place in a row has code of its own then. More of them where each is another array's: what
    these have in common is computed once.
    """
    if len(whole.dims) < 2:
        return False
    *_, rows, length = whole.dims
    most_joined = MOST_APART if parts == length else 0
    return takes_rows(rows, length, lanes, most_joined=most_joined) and all(
        o.dims[-1] == whole.dims[-1] and is_interleaved(o) for o in whole.outputs
    )


def _box(whole: Domain, spans: Sequence[tuple[int, int]]) -> Domain:
    """A part of the domain, [begin, end) of each dimension."""
    return Domain(whole.outputs, (), tuple(a for a, _ in spans), tuple(b - a for a, b in spans))


def _fitting(expression: Expression, whole: Domain, boxes: list[Domain]) -> list[Domain]:
    """The boxes, looked at; none where their code is too much together, and they repeat some."""
    seen = []
    for box in boxes:
        found, variables = _seen(expression, box)
        seen.append(replace(box, variables=tuple(variables), trace=found))
    ops = sum(box.trace.ops + len(box.trace.reads) for box in seen)
    if ops > _BOX_OPS and sum(box.trace.ops for box in seen) > whole.trace.ops:
        return []
    remark = f"boxes: {len(seen)}, of {ops} operations together, for {_BOX_OPS} at most"
    return [replace(box, remarks=(remark,)) for box in seen]


def _slabs(spans: list[list[tuple[int, int]]]) -> list[list[tuple[int, int]]]:
    """A grid's largest box alone, and what is around it in as few as can be: in the outermost
    dimension whole slabs, in each further one what the largest span of those before leaves. The
    conditions in slabs are looked at element by element.
    """
    slabs: list[list[tuple[int, int]]] = []
    core: list[tuple[int, int]] = []
    for k, cut in enumerate(spans):
        largest = max(cut, key=lambda span: span[1] - span[0])
        rest = [(s[0][0], s[-1][1]) for s in spans[k + 1 :]]
        slabs += [[*core, span, *rest] for span in cut if span != largest]
        core.append(largest)
    return [*slabs, core]


def _around_largest(cut: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """A dimension's largest span, and what is before and behind it as one span each."""
    low, high = max(cut, key=lambda span: span[1] - span[0])
    around = [(cut[0][0], low), (low, high), (high, cut[-1][1])]
    return [(begin, end) for begin, end in around if begin < end]


def _is_mostly(core: Domain, whole: Domain, lanes: int) -> bool:
    """Whether code without conditions pays for the slabs around it, each at least a vector a row.

    A stencil of 9 to 17 places along rows that are reflected at their ends takes 0.4 to 0.8 of the
    time, of rows of half as many vectors or with twice as much around 1.1 to 2.7.
    """
    is_long = core.dims[-1] >= _CORE_VECTORS * lanes or core.dims[-1] == whole.dims[-1]
    return is_long and _CORE_SHARE * (whole.size - core.size) <= whole.size


def _recut(expression: Expression, box: Domain, lanes: int) -> list[Domain]:
    return _boxes(expression, box, lanes) if any(_cuts(box.trace, list(box.variables))) else [box]


def _seen(expression: Expression, domain: Domain) -> tuple[Trace, list[Variable]]:
    """What is needed at an element of the domain, and the variables that its index is made of."""
    variables = [
        Variable(f"x{k}", n, n + size - 1)
        for k, (n, size) in enumerate(zip(domain.low, domain.dims, strict=True))
    ]
    return traced(expression, domain, tuple(affine.of(v) for v in variables)), variables


def _cuts(found: Trace, variables: list[Variable]) -> list[set[int]]:
    """Per dimension, the positions at which some condition begins or ceases to hold; of one that
    holds at every second place, or every third, where whole rounds of these end.
    """
    cuts: list[set[int]] = [set() for _ in variables]
    for condition in found.conditions:
        e = condition.index
        if len(e.terms) != 1:
            continue
        ((atom, k),) = e.terms.items()
        if isinstance(atom, DivMod) and variables and (cut := _end_of_rounds(atom, variables)):
            cuts[-1].add(cut)
        if not isinstance(atom, Variable) or atom not in variables:
            continue
        low, high = condition.low - e.constant, condition.high - e.constant
        if k < 0:
            k, low, high = -k, -high, -low
        for cut in (-(-low // k), high // k + 1):
            if atom.low < cut <= atom.high:
                cuts[variables.index(atom)].add(cut)
    return cuts


def _end_of_rounds(atom: DivMod, variables: list[Variable]) -> int:
    """Where whole rounds end that a remainder of the last dimension goes through, so that rounds
    and their places are two loops; 0 for none.
    """
    last = variables[-1]
    if atom.is_quotient or atom.divisor > MOST_INTERLEAVED or set(atom.inner.terms) != {last}:
        return 0
    size = last.high - last.low + 1
    rest = size % atom.divisor
    return last.high + 1 - rest if rest and size >= _ROUNDS * atom.divisor else 0


# -- order -----------------------------------------------------------------------------------


def _ordered(expression: Expression, domain: Domain, said: tuple[int, ...]) -> tuple[Domain, int]:
    """The domain with the dimensions that all reductions keep first, and how many elements these
    have: 0 if reductions keep different ones.
    """
    variables, found = list(domain.variables), domain.trace
    if len(variables) != len(domain.dims):  # not looked at yet
        variables = [Variable(f"d{k}", 0, n - 1) for k, n in enumerate(domain.dims)]
        inner = tuple(affine.of(v) for v in variables)
        found = traced(expression, domain, domain.placed(inner))
    if not all(reducer_of(r).reassociates for r, _ in found.reductions):
        return domain, 0
    if not all(e.is_made_of(variables) for _, index in found.reductions for e in index):
        return domain, 0  # reductions at an index known at run time only
    kept = [
        [d for d, v in enumerate(variables) if any(e.depends_on(v) for e in index)]
        for _, index in found.reductions
    ]
    order = loop_order(domain.dims, kept, said)
    if order is None:
        return domain, 0
    if not order.is_own:
        remark = f"order: dimensions {order.dims}, as all reductions keep {tuple(kept[0])}"
        domain = replace(domain, order=order.dims, remarks=(*domain.remarks, remark))
    return domain, prod(domain.dims[d] for d in kept[0])
