"""Contraction: out[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n], each index a set of axes.

    dot | convolution --> Contraction(batch, rows, columns, depth) --> packing and products

Every axis says how far one step of it moves in lhs, rhs and out (elements, 0: not at all), so that
dimension numbers, transposes, strides, groups and windows are all gone from here on. `rows` do not
move rhs, `columns` do not move lhs (but see `normal`), `depth` does not move out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.bands import ALL, Band
from hlo.analysis.decisions import COLUMNS, ROWS, decisions_of
from hlo.indexing.affine import row_major_strides
from hlo.indexing.queries import OperandDims, operand_dims
from hlo.indexing.reductions import term_extents
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction


class Axis(Struct, frozen=True):
    """One index: its size and its stride in each array."""

    size: int
    lhs: int = 0
    rhs: int = 0
    out: int = 0

    @property
    def swapped(self) -> Axis:
        return Axis(self.size, self.rhs, self.lhs, self.out)


Axes = tuple[Axis, ...]
FEW_ROWS = 8


class Start(Struct, frozen=True):
    """An integer in a buffer, clamped to 0..most: a factor begins so many strides further."""

    buffer: int
    dtype: DType
    most: int
    stride: int


class Computed(Struct, frozen=True):
    """A factor that is in no memory: what computes it from arrays, and these in a fusion's body and
    in the sequence's buffers.
    """

    root: Instruction
    arrays: tuple[Instruction, ...]
    buffers: tuple[int, ...]


class Joined(Struct, frozen=True):
    """Elements that become words while they are packed: `group` of them along depth, `step`
    elements of memory apart, as elements of another type that holds their numbers.
    """

    group: int
    step: int
    element: DType


class Operand(Struct, frozen=True):
    """One factor in memory. buffer: its place in the sequence's buffers; offset: of element 0, and
    what the run adds to it. prologue: where its elements are computed when they are read; it is
    seen as an array in the default order. spare: elements behind it whose memory may be read.
    joined: how a step of depth is several elements, which lie apart. apart: of complex numbers in a
    copy, elements from the real part, which is the dtype's, to the imaginary one.
    """

    dtype: DType
    buffer: int
    offset: int = 0
    starts: tuple[Start, ...] = ()
    prologue: Computed | None = None
    spare: int = 0
    joined: Joined | None = None
    apart: int = 0

    @property
    def read_from(self) -> str:
        """The buffers that it is read from, as a schedule names them."""
        buffers = self.prologue.buffers if self.prologue else (self.buffer,)
        return ", ".join(f"p{buffer}" for buffer in buffers)

    @property
    def read_bytes(self) -> float:
        """Bytes of memory that an element takes to be read, or those of a word."""
        elements = self.joined.group if self.joined else 1
        if self.prologue is None:
            return elements * self.dtype.item_bytes
        size = self.prologue.root.shape.size
        arrays = [array.shape for array in self.prologue.arrays]
        return elements * sum(min(a.size, size) * a.dtype.item_bytes for a in arrays) / size

    @property
    def steps(self) -> tuple[int, ...]:
        """What the place of element 0 is a sum of multiples of."""
        return (self.offset, *(start.stride for start in self.starts))


class Bands(Struct, frozen=True):
    """Of one axis of rows, one of columns and one of depth what matters. result: elements by row
    and column. lhs, rhs: elements by row, or column, and depth, that are not zero. is_rest_made:
    whether an epilogue writes the result beside its band, of any sums.
    """

    result: Band = ALL
    lhs: Band = ALL
    rhs: Band = ALL
    is_rest_made: bool = True

    @property
    def swapped(self) -> Bands:
        return Bands(self.result.transposed, self.rhs, self.lhs, self.is_rest_made)

    @property
    def has_depths(self) -> bool:
        """Whether tiles do without some depths."""
        return not (self.lhs.is_all and self.rhs.is_all)

    @property
    def is_all(self) -> bool:
        return self.result.is_all and not self.has_depths


class Bounded(Struct, frozen=True):
    """Of an index set, "rows", "columns" or "depth", which has so many elements, a kernel in a
    block runs over those between two bounds alone (analysis/blocks/seen_columns.py). is_added:
    whether the result is added to what lies there, of which the rest has to stay. group: elements
    of a step along depth, where those are words.
    """

    side: str
    size: int
    is_added: bool = False
    group: int = 1

    @property
    def swapped(self) -> Bounded:
        other = {"rows": "columns", "columns": "rows"}.get(self.side, self.side)
        return replace(self, side=other)


class Contraction(Struct, frozen=True):
    """The index sets, outermost axis first, and the arrays. bands: what of them matters. zeros:
    what is said of the factors, which the run has to find so. bounded: what is between bounds.
    """

    batch: Axes
    rows: Axes
    columns: Axes
    depth: Axes
    lhs: Operand
    rhs: Operand
    out: DType
    out_buffer: int = 2
    bands: Bands = Bands()
    zeros: Bands = Bands()
    bounded: Bounded | None = None

    @property
    def bounded_side(self) -> str:
        """The set that is bounded, if it is one axis still; else "": all of it is computed."""
        if self.bounded is None:
            return ""
        side, size = self.bounded.side, -(-self.bounded.size // self.bounded.group)
        axes: Axes = getattr(self, side)
        return side if len(axes) == 1 and axes[0].size == size else ""

    @property
    def adds(self) -> bool:
        """Whether a bounded result is added to what lies there."""
        return bool(self.bounded_side) and self.bounded is not None and self.bounded.is_added

    @property
    def batches(self) -> int:
        return extent(self.batch)

    def differs(self, side: str) -> bool:
        """Whether a factor is another one from batch to batch."""
        return any(getattr(axis, side) for axis in self.batch)

    @property
    def m(self) -> int:
        return extent(self.rows)

    @property
    def n(self) -> int:
        return extent(self.columns)

    @property
    def k(self) -> int:
        return extent(self.depth)

    @property
    def flops(self) -> int:
        return 2 * self.batches * self.m * self.n * self.k

    @property
    def is_diagonal(self) -> bool:
        """Whether the columns move lhs too."""
        return any(a.lhs for a in self.columns)

    @property
    def swapped(self) -> Contraction:
        """The same result with lhs and rhs exchanged."""
        return replace(
            self,
            batch=tuple(a.swapped for a in self.batch),
            rows=tuple(a.swapped for a in self.columns),
            columns=tuple(a.swapped for a in self.rows),
            depth=tuple(a.swapped for a in self.depth),
            lhs=self.rhs,
            rhs=self.lhs,
            bands=self.bands.swapped,
            zeros=self.zeros.swapped,
            bounded=self.bounded and self.bounded.swapped,
        )


def extent(axes: Axes) -> int:
    """Number of index values of a set."""
    return math.prod(a.size for a in axes)


def reach(c: Contraction, side: str) -> int:
    """Elements of a factor's memory from the first that is read to the last."""
    return 1 + sum(map(abs, _extents(c, side)))


def first_read(c: Contraction, side: str) -> int:
    """The first element of a factor's memory that is read, counted from its element 0: before that
    where axes run backwards, as those of a reversed kernel do.
    """
    return sum(min(0, moved) for moved in _extents(c, side))


def _extents(c: Contraction, side: str) -> list[int]:
    """How far each axis moves a factor, from its first index to its last."""
    axes = (*c.batch, *c.rows, *c.columns, *c.depth)
    return [(a.size - 1) * int(getattr(a, side)) for a in axes]


def only(axes: Axes, side: str) -> Axes:
    """The axes as one array has them."""
    return tuple(Axis(a.size, **{side: getattr(a, side)}) for a in axes)


def static_offset(index: int, axes: Axes, side: str) -> int:
    """Offset of a linear index that is known now."""
    offset = 0
    for axis in reversed(axes):
        index, part = divmod(index, axis.size)
        offset += part * getattr(axis, side)
    return offset


def merged(axes: Iterable[Axis]) -> Axes:
    """Fewer axes with the same meaning: unit axes go, axes join where strides allow."""
    result: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if result and _continues(result[-1], axis):
            axis = replace(axis, size=result.pop().size * axis.size)
        result.append(axis)
    return tuple(result)


def _continues(outer: Axis, inner: Axis) -> bool:
    return (outer.lhs, outer.rhs, outer.out) == tuple(
        stride * inner.size for stride in (inner.lhs, inner.rhs, inner.out)
    )


def normal(contraction: Contraction, lanes: int, *, keeps_sides: bool = False) -> Contraction:
    """Axes ordered and merged; the columns are the set that holds out's innermost axis, unless the
    factors stay on their sides.

    Columns that do not form one run of out beside the innermost ones become batch axes. When the
    innermost axis is a batch's and runs through all three arrays (depthwise), it is the columns,
    which then move lhs too.
    """
    c = replace(
        contraction,
        batch=_by_out(contraction.batch),
        rows=_by_out(contraction.rows),
        columns=_by_out(contraction.columns),
        depth=_ordered_depth(contraction.depth),
    )
    if c.batch and c.batch[-1] == Axis(c.batch[-1].size, 1, 1, 1):
        return replace(
            c,
            batch=_by_out((*c.batch[:-1], *c.columns, *c.rows[:-1])),
            rows=c.rows[-1:],
            columns=c.batch[-1:],
            bands=Bands(),
            zeros=Bands(),
        )
    if not keeps_sides and _innermost(c.rows) < _innermost(c.columns):
        c = c.swapped
    run = len(c.columns)
    while run > 1 and c.columns[run - 2].out == c.columns[run - 1].out * c.columns[run - 1].size:
        run -= 1
    run = max(run - 1, 0)
    if c.m <= FEW_ROWS and c.columns and c.columns[-1].rhs == 1 and c.columns[-1].size >= lanes:
        run = len(c.columns) - 1  # each run is read in place: packing costs more than short units
    outer = c.columns[:run]
    return replace(c, batch=_by_out((*c.batch, *outer)), columns=c.columns[run:])


def _by_out(axes: Axes) -> Axes:
    return merged(sorted(axes, key=lambda a: -a.out))


def _innermost(axes: Axes) -> int:
    """out's stride of the last axis; a set of one index never comes first."""
    return axes[-1].out if axes else 1 << 62


def _ordered_depth(depth: Axes) -> Axes:
    """In the order of the operand that merges better when it is followed."""
    by_lhs = merged(sorted(depth, key=lambda a: (-abs(a.lhs), -abs(a.rhs))))
    by_rhs = merged(sorted(depth, key=lambda a: (-abs(a.rhs), -abs(a.lhs))))
    return by_rhs if len(by_rhs) < len(by_lhs) else by_lhs


def dot_contraction(dot: Instruction) -> Contraction:
    """The index sets of a dot."""
    lhs, rhs = (operand.shape for operand in dot.operands)
    sides = [row_major_strides(shape.dims) for shape in (lhs, rhs)]

    def axis(size: int, pair: OperandDims, out: int = 0) -> Axis:
        left, right = (0 if d is None else s[d] for s, d in zip(sides, pair, strict=True))
        return Axis(size, left, right, out)

    own, contracted = operand_dims(dot)
    out = row_major_strides(dot.shape.dims)
    free = list(zip(map(axis, dot.shape.dims, own, out), own, strict=True))
    return Contraction(
        batch=tuple(a for a, pair in free if None not in pair),
        rows=tuple(a for a, (_, right) in free if right is None),
        columns=tuple(a for a, (left, _) in free if left is None),
        depth=tuple(map(axis, term_extents(dot), contracted)),
        lhs=Operand(lhs.dtype, 0),
        rhs=Operand(rhs.dtype, 1),
        out=dot.shape.dtype,
    )


def bounded_in(dot: Instruction) -> Bounded | None:
    """What of a dot in a block is between bounds, as its text says; None where that is nothing, or
    one of several dimensions of a set.
    """
    said = decisions_of(dot)
    if dot.opcode != "dot" or not (said.sums or 0 <= said.bounded < dot.shape.rank):
        return None
    own, _ = operand_dims(dot)
    if said.sums == COLUMNS:
        longer = [n for n in term_extents(dot) if n != 1]
        return Bounded("depth", longer[0]) if len(longer) == 1 else None
    left, right = own[said.bounded]
    if left is not None and right is not None:
        return None
    number = 0 if right is None else 1
    dims = [n for n, pair in zip(dot.shape.dims, own, strict=True) if pair[1 - number] is None]
    longer = [n for n in dims if n != 1]
    side = ("rows", "columns")[number]
    return Bounded(side, longer[0], said.sums == ROWS) if len(longer) == 1 else None


def result_bands(dot: Instruction, live: tuple[int, int, Band]) -> Bands:
    """What of a dot's result matters. live: a band of two dimensions; of those of one row and one
    column each it is one of the contraction's, until its axes are others.
    """
    first, second, band = live
    own, _ = operand_dims(dot)
    rows = [d for d, (_, right) in enumerate(own) if right is None]
    columns = [d for d, (left, _) in enumerate(own) if left is None]
    return Bands(band) if (rows, columns) == ([first], [second]) else Bands()
