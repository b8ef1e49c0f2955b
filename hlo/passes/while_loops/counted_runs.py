"""Counted runs: what a loop looks up at neighbouring places from its counter on is a slice.

    i = 0, 1, .. n - k:  gather(x, i + iota(k))  =>  dynamic-slice(x, i), of k elements

JAX writes x[i + arange(k)] so (windows of a signal, taps of a filter), with a select that wraps
places below zero; x[i - arange(k)] is such a slice, turned over (diagonals of a table that dynamic
programming fills). A slice is read a vector at a time and other passes know it, where places in
memory are gathered one by one. All places have to be inside of x in every trip, so that nothing is
clamped or wrapped.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from hlo.analysis.integer_ranges import Range, ranges
from hlo.analysis.while_loops.loop_state import element_index, unchanged_elements
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.indexing import GatherAttributes
from hlo.ops.making import make, number_of
from hlo.passes.patterns.matching import is_plain, splat_literal

_MOST_BEHIND = 24  # Instructions between a gather and what its places are counted from.


class _Line(Struct, frozen=True):
    """number + the sum of scalars + step j, at place j of an array."""

    step: int = 0
    number: int = 0
    scalars: tuple[Instruction, ...] = ()


def counted_runs(body: Computation, loop: Instruction, counted: Mapping[int, Range]) -> bool:
    """Take slices in a loop's body where it gathers runs. O(instructions).

    counted: of the state's elements that are counted, the least and the greatest value.
    """
    gathers = [i for i in body.instructions if i.opcode == "gather"]
    if not gathers:
        return False
    lines = _Lines(body, loop, counted)
    changed = False
    for gather in gathers:
        found = _slice(gather, lines)
        if found is not None:
            body.replace_uses(gather, found)
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
    dims = [n for k, n in enumerate(places.shape.dims) if k != own.index_vector_dim]
    if len(dims) != 1 or dims[0] < 2 or not (is_plain(x.shape) and is_plain(gather.shape)):
        return None
    row = places.operands[0] if places.opcode == "reshape" else places
    line = lines.line(row) if row.shape.rank == 1 else None
    if line is None or abs(line.step) != 1 or not line.scalars:
        return None
    low, high = lines.extent(line, dims[0])
    most = min(x.shape.dims[d] - 1, places.shape.dtype.int_range[1])
    return None if low < 0 or high > most else _taken(gather, x, d, line)


def _taken(gather: Instruction, x: Instruction, d: int, line: _Line) -> Instruction:
    """The elements of x along dimension d that a line says."""
    count = gather.shape.dims[d]
    start, *more = line.scalars
    for scalar in more:
        start = make(gather, "add", start, scalar)
    first = line.number - (count - 1 if line.step < 0 else 0)
    dtype = start.shape.dtype
    if first:
        start = make(gather, "add", start, number_of(gather, first, dtype))
    starts = [start if k == d else number_of(gather, 0, dtype) for k in range(x.shape.rank)]
    sizes = tuple(count if k == d else n for k, n in enumerate(x.shape.dims))
    shape = Shape.array(x.shape.dtype, sizes)
    found = make(gather, "dynamic-slice", x, *starts, shape=shape, dynamic_slice_sizes=sizes)
    return found if line.step > 0 else make(gather, "reverse", found, dimensions=(d,))
