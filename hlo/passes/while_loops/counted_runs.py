"""Counted runs: what a loop looks up at neighbouring places from its counter on is a slice.

    i = 0, 1, .. n - k:  gather(x, i + iota(k))       =>  dynamic-slice(x, i), of k elements
                         scatter(x, i + iota(k), u)   =>  dynamic-update-slice(x, f(slice, u), i)

JAX writes x[i + arange(k)] so (windows of a signal, taps of a filter), with a select that wraps
places below zero; x[i - arange(k)] is such a slice, turned over (diagonals of a table that dynamic
programming fills), and x.at[i + arange(k)].add(u) (frames that overlap) changes one. A slice is
read a vector at a time and other passes know it, where places in memory are gathered one by one.
All places have to be inside of x in every trip, so that nothing is clamped, wrapped or left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.integer_ranges import Range, ranges
from hlo.analysis.while_loops.loop_state import element_index, unchanged_elements
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.indexing import GatherAttributes, ScatterAttributes
from hlo.ops.making import make, number_of
from hlo.passes.patterns.indexing import combines, replaces
from hlo.passes.patterns.matching import is_plain, splat_literal

_MOST_BEHIND = 24  # Instructions between a gather and what its places are counted from.


class _Line(Struct, frozen=True):
    """number + the sum of scalars + step j, at place j of an array."""

    step: int = 0
    number: int = 0
    scalars: tuple[Instruction, ...] = ()


def counted_runs(body: Computation, loop: Instruction, counted: Mapping[int, Range]) -> bool:
    """Take slices in a loop's body where it gathers or scatters runs. O(instructions).

    counted: of the state's elements that are counted, the least and the greatest value.
    """
    lookups = [i for i in body.instructions if i.opcode in ("gather", "scatter")]
    if not lookups:
        return False
    lines = _Lines(body, loop, counted)
    changed = False
    for one in lookups:
        found = _slice(one, lines) if one.opcode == "gather" else _update(one, lines)
        if found is not None:
            body.replace_uses(one, found)
            changed = True
    return changed


class _Lines:
    """Which arrays of a body are lines, and between which ends its integers stay."""

    def __init__(self, body: Computation, loop: Instruction, counted: Mapping[int, Range]) -> None:
        (parameter,) = body.parameters
        starts = loop.operands[0].operands
        self._iotas = {
            element
            for element in unchanged_elements(body)
            if starts[element_index(element)].opcode == "iota" and element.shape.rank == 1
        }
        known = {iota: (0, iota.shape.dims[0] - 1) for iota in self._iotas}
        for user in parameter.users:
            if user.opcode == "get-tuple-element" and element_index(user) in counted:
                known[user] = counted[element_index(user)]
        self.ranges = ranges(body, known)

    def line(self, value: Instruction, left: int = _MOST_BEHIND) -> _Line | None:
        """What an array of integers is as a line; None where it is none."""
        number = splat_literal(value)
        if number is not None:
            return _Line(number=int(number))
        if value in self._iotas or (value.opcode == "iota" and value.shape.rank == 1):
            return _Line(step=1)
        if not value.shape.dims:
            return _Line(scalars=(value,)) if value in self.ranges else None
        if not left:
            return None
        source = self._source(value)
        if source is not None:
            return self.line(source, left - 1)
        if value.opcode not in ("add", "subtract"):
            return None
        a, b = (self.line(o, left // 2) for o in value.operands)
        return None if a is None or b is None else _joined(value.opcode, a, b)

    def _source(self, value: Instruction) -> Instruction | None:
        """The array that another one is, whatever the run is given."""
        operands = value.operands
        match value.opcode:
            case "reshape" if operands[0].shape.size == value.shape.size and value.shape.rank == 1:
                return operands[0]
            case "broadcast" if not operands[0].shape.dims or operands[0].shape.size == 1:
                return operands[0] if not operands[0].shape.dims else None
            case "maximum" | "minimum":
                a, b = (self.ranges.get(o) for o in operands)
                if a is None or b is None:
                    return None
                if value.opcode == "minimum":
                    a, b = b, a
                return operands[0] if a[0] >= b[1] else operands[1] if b[0] >= a[1] else None
            case "select" if operands[0].opcode == "compare" and operands[0]["direction"] == "LT":
                a, b = (self.ranges.get(o) for o in operands[0].operands)
                if a is None or b is None:
                    return None
                return operands[2] if a[0] >= b[1] else operands[1] if a[1] < b[0] else None
        return None

    def extent(self, line: _Line, count: int) -> Range:
        """Between which ends a line of so many places stays."""
        ends = [self.ranges[s] for s in line.scalars]
        low, high = sorted((0, line.step * (count - 1)))
        first = line.number + sum(e[0] for e in ends)
        return first + low, line.number + sum(e[1] for e in ends) + high


def _joined(opcode: str, a: _Line, b: _Line) -> _Line | None:
    if opcode == "add":
        return _Line(a.step + b.step, a.number + b.number, a.scalars + b.scalars)
    if b.scalars:
        return None
    return _Line(a.step - b.step, a.number - b.number, a.scalars)


def _slice(gather: Instruction, lines: _Lines) -> Instruction | None:
    """The slice that a gather takes, None where it is no run of one dimension."""
    x, places = gather.operands
    own = GatherAttributes.of(gather.attributes)
    if len(own.start_index_map) != 1 or own.operand_batching_dims or not gather.users:
        return None
    (d,) = own.start_index_map
    whole = (*x.shape.dims[:d], 1, *x.shape.dims[d + 1 :])
    others = tuple(k for k in range(x.shape.rank) if k != d)
    if own.collapsed_slice_dims != (d,) or own.slice_sizes != whole or own.offset_dims != others:
        return None
    line = _run(x, places, d, own.index_vector_dim, lines)
    if line is None or not is_plain(gather.shape):
        return None
    found = _taken(gather, x, _starts(gather, d, line), gather.shape)
    return found if line.step > 0 else make(gather, "reverse", found, dimensions=(d,))


def _update(scatter: Instruction, lines: _Lines) -> Instruction | None:
    """The slice that a scatter changes, put back; None where it is no run of one dimension. No two
    places are one, so that nothing is combined twice.
    """
    own = ScatterAttributes[Computation].of(scatter.attributes)
    if len(scatter.operands) != 3 or len(own.scatter_dims_to_operand_dims) != 1:
        return None
    x, places, u = scatter.operands
    (d,) = own.scatter_dims_to_operand_dims
    others = tuple(k for k in range(x.shape.rank) if k != d)
    if own.inserted_window_dims != (d,) or own.update_window_dims != others:
        return None
    if own.input_batching_dims or any(u.shape.dims[k] != x.shape.dims[k] for k in others):
        return None
    combine = own.to_apply
    if not is_plain(u.shape) or not (replaces(combine) or combines(combine, x, u)):
        return None
    line = _run(x, places, d, own.index_vector_dim, lines)
    if line is None or not scatter.users:
        return None
    starts = _starts(scatter, d, line)
    value = u if line.step > 0 else make(scatter, "reverse", u, dimensions=(d,))
    if not replaces(combine):
        value = make(scatter, combine.root.opcode, _taken(scatter, x, starts, u.shape), value)
    return make(scatter, "dynamic-update-slice", x, value, *starts)


def _run(x: Instruction, places: Instruction, d: int, vector: int, lines: _Lines) -> _Line | None:
    """The line that an array of places is, if these are all inside of x, in turn or backwards."""
    dims = [n for k, n in enumerate(places.shape.dims) if k != vector]
    if len(dims) != 1 or dims[0] < 2 or not is_plain(x.shape):
        return None
    row = places.operands[0] if places.opcode == "reshape" else places
    line = lines.line(row) if row.shape.rank == 1 else None
    if line is None or abs(line.step) != 1 or not line.scalars:
        return None
    low, high = lines.extent(line, dims[0])
    most = min(x.shape.dims[d] - 1, places.shape.dtype.int_range[1])
    if low < 0 or high > most:
        return None
    return line if line.step > 0 else replace(line, number=line.number - dims[0] + 1)


def _starts(like: Instruction, d: int, line: _Line) -> list[Instruction]:
    """Where a slice begins in each dimension: at the least place of a line in dimension d."""
    start, *more = line.scalars
    for scalar in more:
        start = make(like, "add", start, scalar)
    dtype = start.shape.dtype
    if line.number:
        start = make(like, "add", start, number_of(like, line.number, dtype))
    rank = like.shape.rank
    return [start if k == d else number_of(like, 0, dtype) for k in range(rank)]


def _taken(
    like: Instruction, x: Instruction, starts: list[Instruction], shape: Shape
) -> Instruction:
    sizes = shape.dims
    whole = Shape.array(x.shape.dtype, sizes)
    return make(like, "dynamic-slice", x, *starts, shape=whole, dynamic_slice_sizes=sizes)
