"""Turning: few columns or rows of a factor, copied in the order in which vectors meet them.

Columns along depth, as a matrix of long rows reads them; rows of narrow numbers across depth, as
the ring's numbers, which vectors of columns meet one by one.

rhs[k, n]  --columns_along_depth-->  copy[n, k], rows of whole vectors  --on_copy--> Contraction
lhs[m, k]  --rows_as_numbers------>  copy[k, m], rows of whole vectors  --on_rows--> Contraction
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.kernels.contraction.packing.form import Packing, Panels, Source
from hlo.backend.kernels.contraction.packing.panels import packed_strides
from hlo.backend.kernels.contraction.problem.axes import Axes, Axis, Contraction, Operand, only
from hlo.backend.kernels.contraction.problem.ring import Ring, is_plain, partial_type
from hlo.backend.kernels.contraction.vectors.plan import is_dots, streams_columns
from hlo.backend.kernels.contraction.vectors.word_plan import dots_of_words
from hlo.indexing.affine import row_major_strides

LEAST_CONVERTED_ROWS = 3  # Of fewer the numbers of a step wait in registers.


def columns_along_depth(c: Contraction, ring: Ring) -> Packing:
    """One panel, whose lanes are the depths of a column: depth and columns have changed places. A
    column takes an odd number of cache lines, so that they lie in different sets of the cache. Of
    complex numbers the real parts come first: they are taken apart once, not for every row.
    """
    per_line = ring.target.machine.line_bytes // ring.scalar_bytes
    lines = -(-c.k // per_line) | 1
    width = -(-lines * per_line // ring.lanes) * ring.lanes
    source = Source(c.rhs.dtype, _strides(c.depth, "rhs"), _strides(c.columns, "rhs"))
    return Packing(ring, source, Panels(1, width, c.k, c.k))


def on_copy(c: Contraction, packing: Packing, place: int) -> Contraction:
    """The contraction whose rhs is that copy, in buffer `place`."""
    number = partial_type(packing.ring)
    moved = packed_strides([(a.size, a.rhs) for a in c.batch], packing)
    return replace(
        c,
        batch=tuple(replace(a, rhs=step) for a, (_, step) in zip(c.batch, moved, strict=True)),
        columns=_with_rhs(c.columns, packing.k_step),
        depth=_with_rhs(c.depth, 1),
        rhs=Operand(number.component, place, apart=packing.part_step if number.is_complex else 0),
    )


def elements_along_depth(c: Contraction, place: int) -> Contraction:
    """The contraction whose rhs is copied with depth and columns exchanged to buffer `place`, its
    elements as they are: those of words that lie along depth then.
    """
    columns, depth = _with_rhs(c.columns, c.k), _with_rhs(c.depth, 1)
    return replace(c, columns=columns, depth=depth, rhs=Operand(c.rhs.dtype, place))


def meets_words(c: Contraction, ring: Ring) -> bool:
    """Whether few columns, which lie in rows, would meet words as they lie, if they were copied so:
    2048 x 4 x 1024 of bytes take 0.17 of the time that numbers of the ring take, of 8 columns 0.13
    (Emerald Rapids, two threads).
    """
    is_plain = c.rhs == Operand(c.rhs.dtype, c.rhs.buffer) and not c.differs("rhs")
    if not is_plain or not len(c.columns) == len(c.depth) == 1:
        return False
    is_matrix = (c.columns[0].rhs, c.depth[0].rhs) == (1, c.n)
    return (
        is_matrix and dots_of_words(elements_along_depth(c, c.rhs.buffer).swapped, ring) is not None
    )


def rows_as_numbers(c: Contraction, ring: Ring) -> Packing | None:
    """One panel of all rows, if each of their numbers is met by many vectors of columns: a number
    of another type is converted for each of these, which takes as long as the product.
    """
    if is_plain(c.lhs.dtype, ring) or ring.parts > 1 or c.m < LEAST_CONVERTED_ROWS:
        return None
    if not streams_columns(c, ring) or is_dots(c, ring):
        return None
    source = Source(c.lhs.dtype, _strides(only(c.rows, "lhs"), "lhs"), _strides(c.depth, "lhs"))
    return Packing(ring, source, Panels(1, -(-c.m // ring.lanes) * ring.lanes, c.m, c.m))


def on_rows(c: Contraction, packing: Packing, place: int) -> Contraction:
    """The contraction whose lhs is that copy, in buffer `place`."""
    moved = packed_strides([(a.size, a.lhs) for a in c.batch], packing)
    depth = (replace(c.depth[0], lhs=packing.k_step),)
    steps = row_major_strides([a.size for a in c.rows])
    return replace(
        c,
        batch=tuple(replace(a, lhs=step) for a, (_, step) in zip(c.batch, moved, strict=True)),
        rows=tuple(replace(a, lhs=step) for a, step in zip(c.rows, steps, strict=True)),
        depth=depth,
        lhs=Operand(partial_type(packing.ring), place),
    )


def _strides(axes: Axes, side: str) -> tuple[tuple[int, int], ...]:
    return tuple((a.size, getattr(a, side)) for a in axes)


def _with_rhs(axes: Axes, step: int) -> Axes:
    """Axes that move rhs as one, by `step` for the innermost one."""
    found: list[Axis] = []
    for axis in reversed(axes):
        found.insert(0, replace(axis, rhs=step))
        step *= axis.size
    return tuple(found)
