"""The loops of a product, as a schedule has them: what --emit=loops shows of a plan.

ProductPlan, ProductForm --product_schedule--> units over batch, row blocks and column blocks;
packed panels as caches where they are made; depth; tiles of rows x vectors; the store
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.microkernels.microkernel import UNKNOWN, unrolled
from hlo.backend.kernels.contraction.packing.form import Panels
from hlo.backend.kernels.contraction.packing.nest import Share, packing_nodes
from hlo.backend.kernels.contraction.problem.axes import Operand
from hlo.backend.kernels.contraction.problem.nests import DEPTH, FREE, SUMS, batches, cached, stored
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.products.band_limits import share_of
from hlo.backend.kernels.contraction.products.finishing import waits
from hlo.backend.kernels.contraction.products.form import ProductForm
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.row_prefetch import tiles_ahead
from hlo.backend.loops.one_nest import Nodes, around, schedule_of
from hlo.backend.loops.schedule import (
    Axis,
    Cache,
    Fill,
    Loop,
    LoopSchedule,
    Prefetch,
    Reduction,
    Role,
    Tail,
    axis_name,
)

_READINGS = {
    Reading.IN_PLACE: "read in place",
    Reading.IN_UNIT: "packed by each unit, unless the one before has",
    Reading.IN_TILE: "packed by groups of tiles",
    Reading.PACKED: "packed before",
}


def product_schedule(plan: ProductPlan, epilogue: Epilogue | None) -> LoopSchedule:
    """The loops of product.py's kernel."""
    form = ProductForm(plan, has_epilogue=epilogue is not None)
    return _Loops(form, epilogue).schedule()


def _remarks(plan: ProductPlan) -> tuple[str, ...]:
    tile = f"{plan.rows.step} rows by {plan.vectors} x {plan.ring.lanes} lanes"
    count = plan.depth_blocks
    found = [
        f"sums: {plan.sums.plan}, chains of {plan.sums.chain} additions at most",
        f"products: {_instruction(plan)}",
        f"tiles: {tile}, {plan.rows.count} x {plan.columns.count} of them",
        f"units: {plan.row_blocks} x {plan.column_blocks} blocks of the result",
        f"lhs: {_READINGS[plan.lhs]}",
        f"rhs: {_READINGS[plan.rhs]}",
        f"depth: {count} block" + "s" * (count != 1) + f" of {plan.depth_block}",
    ]
    if plan.turns:
        found.append("result: a vector of columns at a time, all rows turned in registers")
    if plan.group:
        found.append(f"groups: {plan.group} tiles meet all panels of a unit")
    if (share := share_of(plan)) < 1:
        found.append(f"bands: {share:.2f} of the products are wanted")
    return tuple(found)


def _instruction(plan: ProductPlan) -> str:
    """What multiplies, and adds."""
    ring = plan.ring
    if ring.dot is not None:
        return f"{ring.dot.intrinsic.removeprefix('llvm.')}" + (", add" * (not ring.dot.adds))
    each = f" of {ring.dtype_name}" + ", four a complex one" * (ring.parts > 1)
    return ("multiply-add" if ring.rounds and ring.fused else "multiply, add") + each


class _Loops:
    """The loops being made."""

    def __init__(self, form: ProductForm, epilogue: Epilogue | None) -> None:
        self.form = form
        self.epilogue = epilogue
        self.plan, self.c, self.ring = form.plan, form.c, form.ring
        self.addition = "or" if form.ring.result.is_pred else "add"

    # -- units -----------------------------------------------------------------------------------

    def schedule(self) -> LoopSchedule:
        """Parallel axes around what a unit does; what it packs where its panels change."""
        plan = self.plan
        order = "bij" if not plan.group else "bji" if self.c.differs("rhs") else "jbi"
        axes = tuple(self._parallel(name) for name in order)
        body = (*self._caches(), *self._inner())
        for axis in reversed(axes):
            body = around((axis,), (*self._packed_at(axis, axes), *body))
        body = (*self._packed_at(None, axes), *body)
        return schedule_of(axes, body, _remarks(plan), scratch_bytes=sum(self.form.scratch_sizes))

    def _packed_at(self, at: Axis | None, axes: tuple[Axis, ...]) -> Nodes:
        """The factors that units pack whole, where `at` is the innermost axis that changes them."""
        found: Nodes = ()
        for side, reading in self.form.readings.items():
            moved = FREE[side] + ("b" if self.c.differs(side) else "")
            innermost = None
            for axis in axes:
                innermost = axis if axis.name in moved and axis.rounds > 1 else innermost
            is_first = self.plan.depth_first and side == "rhs"
            if reading is Reading.IN_UNIT and not is_first and innermost is at:
                found += self._packed(side)
        return found

    def _parallel(self, name: str) -> Axis:
        if name == "b":
            return batches(self.c)
        panels = self._panels(name)
        blocks, each = self._blocks(name)
        return Axis(
            name,
            panels.end,
            Role.PARALLEL,
            panels.step * each,
            lanes=self.ring.lanes if name == "j" and each == 1 else 1,
            tail=self._tail(name) if each == 1 else Tail.NONE,
            parts=blocks if panels.count % blocks else 0,
            is_bounded=self._is_bounded(name),
        )

    def _is_bounded(self, name: str) -> bool:
        """Whether a block runs over what its rows see of an axis alone."""
        return {"i": "rows", "j": "columns"}.get(name, "depth") == self.c.bounded_side

    def _panels(self, name: str) -> Panels:
        return self.plan.rows if name == "i" else self.plan.columns

    def _blocks(self, name: str) -> tuple[int, int]:
        """Of rows or columns, and the tiles or panels of each."""
        plan = self.plan
        if name == "i":
            return plan.row_blocks, plan.tiles_per_block
        return plan.column_blocks, plan.panels_per_block

    def _tail(self, name: str) -> Tail:
        panels = self._panels(name)
        if panels.overlaps:
            return Tail.OVERLAPPING
        return Tail.MASKED if name == "j" and panels.exceeds(panels.end) else Tail.NONE

    # -- rows and columns of a unit ----------------------------------------------------------------

    def _over(self, name: str, body: Nodes, group: int = 0) -> Nodes:
        """A unit's tiles or panels, or a group of them, one after the other."""
        blocks, count = self._blocks(name)
        panels = self._panels(name)
        if ((group or count) == 1 and (group or blocks) > 1) or (panels.end == 1 and name == "i"):
            return body  # the loop outside has such steps
        is_part = blocks > 1 or group > 0
        return (Loop(self._axis(name, group or count, is_part=is_part), body),)

    def _axis(self, name: str, count: int, *, is_part: bool) -> Axis:
        panels, lanes = self._panels(name), self.ring.lanes if name == "j" else 1
        role = Role.VECTOR if name == "j" else Role.SERIAL
        extent = count * panels.step if is_part or name == "j" else panels.end
        extent = min(extent, panels.end)
        of = panels.end if is_part else 0
        return Axis(
            name, extent, role, panels.step, lanes, self._tail(name), of=of,
            is_bounded=self._is_bounded(name),
        )  # fmt: skip

    def _groups(self, body: Nodes) -> Nodes:
        """Groups of the unit's tiles of rows."""
        plan, rows = self.plan, self.plan.rows
        blocks, count = self._blocks("i")
        if blocks == 1 and plan.group >= count:
            return body
        extent = min(count * rows.step, rows.end)
        of = rows.end if blocks > 1 else 0
        tail = self._tail("i") if plan.group == 1 else Tail.NONE
        axis = Axis("i", extent, Role.SERIAL, plan.group * rows.step, tail=tail, of=of)
        return (Loop(axis, body),)

    def _row(self, *, again: bool) -> Axis:
        """The rows of a tile one by one. again: but for those that the tile before has as well."""
        rows = self.plan.rows
        return Axis("i", rows.step, Role.SERIAL, of=rows.end if again and rows.overlaps else 0)

    # -- what a unit does --------------------------------------------------------------------------

    def _inner(self) -> Nodes:
        plan, form = self.plan, self.form
        if plan.depth_first:
            tiles = self._tiles_that_pack() if form.packs_first else self._over("i", self._tile())
            inner = self._grouped() if plan.group else self._over("j", tiles)
            is_packed = plan.rhs is Reading.IN_UNIT and not form.packs_first
            packed = self._packed("rhs") if is_packed else ()
            blocks = Loop(self._depth_blocks(), (*packed, *inner))
            return (*self._over("j", self._cleared()), blocks, *self._over("j", self._finished()))
        if plan.group:
            return self._grouped()
        tiles = self._over("i", self._tile())
        if form.staged:
            tiles = (*self._cleared(), Loop(self._depth_blocks(), tiles), *self._finished())
        return self._over("j", tiles)

    def _tiles_that_pack(self) -> Nodes:
        """The first tile of rows, which packs a panel, and the others."""
        plan, rows = self.plan, self.plan.rows
        first = (self._cache("rhs"), *self._tile(packs=True))
        if plan.tiles_per_block == 1:
            return first
        others = (plan.tiles_per_block - 1) * rows.step
        axis = Axis("i", others, Role.SERIAL, rows.step, tail=self._tail("i"), of=rows.end)
        return (*first, Loop(axis, self._tile()))

    def _grouped(self) -> Nodes:
        plan = self.plan
        packed = self._packed("lhs") if plan.lhs is Reading.IN_TILE else ()
        tiles = self._over("i", self._tile(), plan.group)
        return self._groups((*packed, *self._over("j", tiles)))

    def _depth_blocks(self) -> Axis:
        return Axis(DEPTH, self.c.k, Role.REDUCED, self.plan.depth_block)

    def _cleared(self) -> Nodes:
        return self._over("i", (Loop(self._row(again=False), (Fill(SUMS, "0"),)),))

    def _finished(self) -> Nodes:
        return self._over("i", self._stores())

    def _stores(self) -> Nodes:
        """A tile's sums to the result: by rows, or a vector of columns at a time, whose sums wait
        for each other where they are finished one by one.
        """
        store, rows = stored(self.c, self.epilogue), self._row(again=True)
        if not self.plan.turns:
            return (Loop(rows, (store,)),)
        lanes = self.ring.lanes
        columns = Axis("j", self.plan.vectors * lanes, Role.VECTOR, lanes, lanes, of=self.c.n)
        return around((columns, rows) if waits(self.ring, self.epilogue) else (columns,), (store,))

    def _tile(self, *, packs: bool = False) -> Nodes:
        """The sums of a tile, and where they go. packs: whether it packs its columns."""
        if not self.c.k:
            made: Nodes = (Fill(SUMS, "0"),)
        else:
            sums = self._sums("tile" if self.form.staged else SUMS, packs=packs)
            made = (*self._prefetches(), sums)
        if self.form.staged:
            return (*made, Fill(SUMS, f"{self.addition} of sums and tile"))
        if self.form.is_direct:
            return (*made, stored(self.c, self.epilogue))
        return (*made, *self._stores())

    def _prefetches(self) -> Nodes:
        """A tile's part of the next batch's factors, of the next group's rows, or of the next
        block's columns.
        """
        plan, buffers = self.plan, {side: getattr(self.c, side).buffer for side in FREE}
        found = [
            Prefetch(f"p{buffers[a.side]}", a.step_bytes) for a in self.form.prefetched_factors
        ]
        if self.form.row_prefetch_bytes:
            rows = tiles_ahead(plan) * plan.rows.step
            found.append(Prefetch(f"p{buffers['lhs']}", rows * self.c.k * self.ring.scalar_bytes))
        if (lines := self.form.row_lines) is not None:
            found.append(Prefetch(f"p{buffers['rhs']}", plan.depth_block * lines.row_bytes))
        if (asked := self.form.column_lines) is not None:
            found.append(Prefetch(f"p{buffers['rhs']}", asked.ahead_bytes))
        return tuple(found)

    def _sums(self, name: str, *, packs: bool) -> Reduction:
        plan, ring = self.plan, self.ring
        form = f"{self.addition} of products"
        if ring.dot is not None:
            dot = ring.dot
            form += f" of {dot.group} {dot.element.name}"
            form += f" by {dot.other.name}" if dot.other else ""
        results = plan.rows.step * plan.vectors
        places = {side: self._source(side, packed=side) for side in FREE}
        if packs:
            places["rhs"] = self._source("rhs")
        reads, fills = tuple(dict.fromkeys(places.values())), ("rhs",) * packs
        axes = tuple(self._depths())
        return Reduction(name, form, axes, ring.lanes, results, reads=reads, fills=fills)

    # -- depth -------------------------------------------------------------------------------------

    def _depths(self) -> Iterator[Axis]:
        """The loops of a tile over depth, and the blocks of its sums."""
        plan, cut = self.plan, self.form.cut
        is_part = self.form.staged and self.c.k % plan.depth_block > 0
        is_part = is_part or self.c.bands.has_depths or self.c.bounded_side == "depth"
        count = UNKNOWN if is_part else Value(str(plan.depth_block), "i64")
        micro, tile = self.form.microkernel(count), self.form.assembly(count)
        for level, loop in enumerate(micro.depth):
            size = loop.known or plan.depth_block
            blocks = cut.blocks(level) if cut else ()
            is_inner = level + 1 == len(micro.depth)
            if tile is not None:
                step = tile.unroll if is_inner else 1
            else:
                for rounds in blocks:
                    loop = loop.block(rounds)
                step = unrolled(micro, (loop, *micro.depth[level + 1 :]))
            role = Role.REDUCED if step else Role.UNROLLED
            if not step and blocks:
                role, step = Role.REDUCED, blocks[-1]
            apart, of = blocks[-1:] == (1,), self.c.k if is_part else 0
            own = blocks[: len(blocks) - apart]
            yield Axis(
                axis_name(level, "r"), size, role, step or 1, of=of, blocks=own, apart=apart,
                is_bounded=self._is_bounded(DEPTH),
            )  # fmt: skip

    # -- panels ------------------------------------------------------------------------------------

    def _source(self, side: str, *, packed: str = "") -> str:
        """Where a factor is read. packed: the name of its panels in scratch."""
        factor: Operand = getattr(self.c, side)
        place = factor.read_from
        reading = self.form.readings[side]
        if reading is Reading.IN_PLACE or not packed:
            return place
        return f"panels of {place}" if reading is Reading.PACKED else packed

    def _packed(self, side: str) -> Nodes:
        """The panels that a unit packs, or a group of its tiles."""
        plan, packing, name = self.plan, self.form.packings[side], FREE[side]
        blocks, count = self._blocks(name)
        total = self._panels(name).count
        if plan.lhs is Reading.IN_TILE and side == "lhs":
            is_part, count = True, plan.group
        else:
            is_part = total % blocks > 0
        depth = packing.panel_depth or self.c.k
        is_cut = self.form.staged and packing.panel_depth > 0 and self.c.k > depth
        share = Share(count, depth, total * is_part, self.c.k * is_cut)
        source = self._source(side)
        return (self._cache(side), *packing_nodes(packing, side, source, share))

    def _cache(self, side: str) -> Cache:
        packing = self.form.packings[side]
        size = self.form.scratch[0 if side == "lhs" else 1]
        panels = size // packing.panel_size
        if packing.by_rows:
            return cached(side, (panels, packing.panels.step, packing.row_step), packing.ring)
        depth = packing.panel_depth or self.c.k
        return cached(side, (panels, depth, packing.k_step), packing.ring)

    def _caches(self) -> Nodes:
        """Sums that wait, and those of blocks that a tile sets aside."""
        _, _, waiting, aside = self.form.scratch
        row = self.form.packings["rhs"].k_step
        found = [cached(SUMS, (waiting // row, row), self.ring)] if waiting else []
        if aside:
            rows = self.plan.rows.step
            found.append(cached("sums of blocks", (rows, aside // rows), self.ring))
        return tuple(found)
