"""The loops of a Cholesky factorisation, as a schedule has them.

    FactorForm --factor_schedule--> the triangle to scratch, groups of blocks of rows, and back

b counts matrices, i rows, j columns (lanes), r the rows above that are taken away.
"""

from __future__ import annotations

from hlo.backend.kernels.linear_algebra.cholesky_form import FactorForm
from hlo.backend.kernels.linear_algebra.groups import GROUP
from hlo.backend.loops.one_nest import Nodes, around, schedule_of
from hlo.backend.loops.schedule import (
    Axis,
    Cache,
    Fill,
    Loop,
    LoopSchedule,
    Node,
    Reduction,
    Role,
    Storage,
    Store,
    Tail,
)

FACTOR = "u"
ROW, COLUMN, ABOVE = "i", "j", "r"


def factor_schedule(form: FactorForm) -> LoopSchedule:
    """The loops of cholesky.py's kernel."""
    f = form.factor
    remarks = (
        f"Cholesky: {f.size} x {f.size}, batch of {f.batch}",
        f"tiles: {form.rows} rows by {form.vectors} x {form.ring.lanes} lanes, in registers",
        f"groups: {GROUP} rows, what lies above them is read once for all"
        if form.is_grouped
        else f"groups: none, as there are no more than {GROUP} rows",
        "columns: those of the triangle, whose number differs from row to row",
    )
    if not f.batch or not f.size:
        return schedule_of((), (), remarks, scratch_bytes=form.scratch_bytes)
    made = _Loops(form)
    axes = (Axis("b", f.batch, Role.PARALLEL),)
    body = (made.cache(), *made.loaded(), *made.factored(), made.stored())
    return schedule_of(axes, around(axes, body), remarks, scratch_bytes=form.scratch_bytes)


class _Loops:
    """What a unit does to its matrix."""

    def __init__(self, form: FactorForm) -> None:
        self.form, self.factor, self.ring = form, form.factor, form.ring
        self.index = (*(("b",) if form.factor.batch > 1 else ()), ROW, COLUMN)

    def cache(self) -> Cache:
        """U: rows of a stride, and the inverses of a block's pivots behind."""
        form, ring = self.form, self.ring
        parts = (ring.parts,) if ring.parts > 1 else ()
        dims = (*parts, form.plane // form.stride, form.stride)
        return Cache(FACTOR, dims, ring.dtype_name, form.scratch_bytes, Storage.SCRATCH)

    def _rows(self, body: Nodes, extent: int, step: int = 1, of: int = 0) -> Loop:
        return Loop(Axis(ROW, extent, Role.SERIAL, step, of=of), body)

    def _columns(self, node: Node, lanes: int, vectors: int = 1, *, is_part: bool = True) -> Loop:
        """Columns from the diagonal on, or up to it; all of them where they are no part."""
        n = self.factor.size
        step = lanes * vectors
        masked = n % lanes > 0 and not isinstance(node, Reduction)
        tail = Tail.PREDICATED if masked else Tail.NONE
        return Loop(Axis(COLUMN, n, Role.VECTOR, step, lanes, tail, of=is_part * n), (node,))

    # -- in and out ------------------------------------------------------------------------------

    def loaded(self) -> Nodes:
        """The triangle into scratch memory."""
        form, n = self.form, self.factor.size
        cleared = Fill(FACTOR, "0, left of the diagonal and beyond the matrix")
        read: Node
        if self.factor.lower:
            fill = Fill(FACTOR, "squares turned in registers, of p0")
            read = self._rows((self._columns(fill, form.square),), n, form.square)
        else:
            read = self._rows(
                (self._columns(Fill(FACTOR, "rows of p0"), self.ring.lanes),), form.blocks
            )
        return self._rows((cleared,), form.blocks), read

    def stored(self) -> Loop:
        """The factor, and the other triangle."""
        form, n = self.form, self.factor.size
        other = "p0" if self.factor.reports else "0"
        if not self.factor.lower:
            store = Store("result", 0, self.index, f"{FACTOR}, {other} left of the diagonal")
            return self._rows((self._columns(store, self.ring.lanes, is_part=False),), n)
        square = form.square
        squares = Store("result", 0, self.index, f"squares of {FACTOR}, turned in registers")
        beyond = Store("result", 0, self.index, f"{other}, right of the diagonal")
        fill = self._rows((self._columns(beyond, square),), square, of=n)
        return self._rows((self._columns(squares, square), fill), n, square)

    # -- factor ----------------------------------------------------------------------------------

    def factored(self) -> Nodes:
        """Groups of rows, each without what lies above it, then block by block."""
        form, n = self.form, self.factor.size
        body: Nodes = ()
        if form.is_grouped:
            tile = self._rows(self._tile(n, Fill(FACTOR, "rest")), GROUP, form.rows, of=form.blocks)
            body += (self._tiles(tile),)
        diagonal = Fill(FACTOR, "rest by its pivots, those of the diagonal square")
        beside = self._tiles(*self._tile(GROUP, Fill(FACTOR, "rest by the block's pivots")))
        block = (*self._tile(GROUP, diagonal), beside)
        body += (self._rows(block, min(GROUP, form.blocks), form.rows, of=form.blocks),)
        return around((Axis(ROW, form.blocks, Role.SERIAL, GROUP),), body)

    def _tiles(self, *nodes: Node) -> Loop:
        """Tiles from a column on."""
        n, form = self.factor.size, self.form
        return Loop(Axis(COLUMN, n, Role.VECTOR, form.width, self.ring.lanes, of=n), nodes)

    def _tile(self, most: int, then: Node) -> Nodes:
        """A tile without what rows above account for, which are `most` at most."""
        n = self.factor.size
        above = Axis(ABOVE, min(most, n), Role.REDUCED, of=n)
        count = self.form.rows * self.form.vectors
        return (
            Reduction("rest", "a less products", (above,), self.ring.lanes, count, reads=(FACTOR,)),
            then,
        )
