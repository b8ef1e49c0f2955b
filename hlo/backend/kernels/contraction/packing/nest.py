"""The loops that pack a factor, as a schedule has them.

Packing, a part of its panels and depths --packing_nodes--> loops around one Fill
Packing as a kernel of its own --packing_schedule--> LoopSchedule
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.kernels.contraction.packing.assembly_copies import (
    CHUNK,
    bytes_ahead,
    in_chunks,
    is_across,
    panels_ahead,
    rows_at_once,
)
from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.backend.kernels.contraction.packing.interleaving import bytes_ahead as words_ahead
from hlo.backend.kernels.contraction.packing.panels import shares
from hlo.backend.kernels.contraction.packing.runs import offsets_of, runs_ahead, runs_met
from hlo.backend.kernels.contraction.packing.strided import stretch_of
from hlo.backend.kernels.contraction.problem.axes import Axes, extent
from hlo.backend.kernels.contraction.problem.nests import DEPTH, FREE
from hlo.backend.kernels.contraction.problem.ring import is_plain
from hlo.backend.loops.one_nest import Nodes, around, schedule_of
from hlo.backend.loops.schedule import (
    Axis,
    Fill,
    Loop,
    LoopSchedule,
    Prefetch,
    Role,
    Tail,
    axis_name,
)


class Share(Struct, frozen=True):
    """Panels and depths that are packed at a time.

    of_panels, of_depths: how many there are where a share may have fewer than that; else 0.
    """

    panels: int
    depths: int
    of_panels: int = 0
    of_depths: int = 0


def packing_nodes(packing: Packing, side: str, source: str, share: Share) -> Nodes:
    """The loops over a share of panels and depths."""
    made = _Packing(packing, side, source, share)
    if packing.by_rows:
        return made.rows()
    if in_chunks(packing):
        return made.chunks()
    is_free = packing.source.is_free_contiguous or (
        packing.is_in_vectors and packing.source.is_made
    )
    if is_free and not is_across(packing):
        return made.depths()
    return made.vectors()


class _Packing:
    """The loops being made."""

    def __init__(self, packing: Packing, side: str, source: str, share: Share) -> None:
        self.packing = packing
        self.value, self.free, self.source = side, FREE[side], source
        self.share = share
        self.lanes = packing.ring.lanes

    def _fill(self, way: str) -> Nodes:
        return (Fill(self.value, f"{way} {self.source}"),)

    def _panels(self) -> Axis:
        """One panel after the other, a row of one in vectors."""
        panels, share = self.packing.panels, self.share
        tail = Tail.MASKED if panels.exceeds(panels.end) else Tail.NONE
        return Axis(
            self.free,
            share.panels * panels.width,
            Role.VECTOR,
            panels.width,
            self.lanes,
            Tail.OVERLAPPING if panels.overlaps and share.panels > 1 else tail,
            of=share.of_panels * panels.width,
        )

    def _vectors(self) -> Axis:
        """The same, a vector of a panel at a time."""
        axis = self._panels()
        return Axis(self.free, axis.extent, Role.VECTOR, self.lanes, self.lanes, of=axis.of)

    def _depths(self, step: int = 1, *, of: int = 0) -> Axis:
        share = self.share
        return Axis(DEPTH, share.depths, Role.SERIAL, step, of=share.of_depths or of)

    # -- along the free set ----------------------------------------------------------------------

    def chunks(self) -> Nodes:
        """Rows of memory, some of them for all panels."""
        share, step = self.share, rows_at_once(self.packing)
        if share.depths <= step and not share.of_depths:
            return (Loop(self._panels(), (Loop(self._depths(), self._row()),)),)
        rows = Axis(DEPTH, step, Role.SERIAL, of=share.of_depths or share.depths)
        panels = Loop(self._panels(), (Loop(rows, self._row()),))
        return (Loop(self._depths(step), (panels,)),)

    def _row(self) -> Nodes:
        """A panel's row of memory, and that of another panel asked for."""
        panels, ring = self.packing.panels, self.packing.ring
        ahead = panels_ahead(self.packing) * panels.width * ring.scalar_bytes
        asked = (Prefetch(self.source, ahead),) if ahead else ()
        return (*asked, *self._fill("rows of"))

    def _asked(self) -> Nodes:
        """What a vector some panels ahead reads, asked for."""
        panels, dtype = self.packing.panels, self.packing.source.dtype
        ahead = runs_ahead(self.packing) * panels.step * dtype.item_bytes
        return (Prefetch(self.source, ahead),) if ahead else ()

    def depths(self) -> Nodes:
        """One row of memory for all panels, or as many as a word has elements."""
        joined = self.packing.source.joined
        ahead = words_ahead(self.packing) or bytes_ahead(self.packing)
        row: Nodes = (Prefetch(self.source, ahead),) if ahead else ()
        row += self._fill(f"words of {joined.group} rows of" if joined else "rows of")
        return (Loop(self._depths(), (Loop(self._panels(), row),)),)

    # -- along depth -----------------------------------------------------------------------------

    def rows(self) -> Nodes:
        """Rows of panels, as they lie or converted."""
        packing, share = self.packing, self.share
        run, step = packing.source.depth[-1][0], packing.panels.step
        rows = Axis(self.free, share.panels * step, Role.SERIAL, of=share.of_panels * step)
        if packing.is_part_of_run:
            return (Loop(rows, self._run(share.depths, share.of_depths)),)
        runs = self._depths(run)
        return (Loop(rows, (Loop(runs, self._run(run, 0, level=int(runs.rounds > 1))),)),)

    def _run(self, size: int, whole: int, *, level: int = 0) -> Nodes:
        if is_plain(self.packing.source.dtype, self.packing.ring):
            return self._fill("rows copied from")
        return (self._steps(size, whole, self.lanes, level, "rows of"),)

    def _steps(self, size: int, whole: int, step: int, level: int, way: str) -> Loop:
        """Steps along a run, what is left at its end masked, or in a step that ends with it."""
        lanes = step if step == self.lanes else 1
        role = Role.VECTOR if lanes > 1 else Role.SERIAL
        tail = Tail.OVERLAPPING if is_across(self.packing) else Tail.MASKED
        rest = (size % step or whole % step) > 0
        axis = Axis(
            axis_name(level, "r"), size, role, step, lanes, tail if rest else Tail.NONE,
            step if rest else 0, whole,
        )  # fmt: skip
        return Loop(axis, self._fill(way))

    def vectors(self) -> Nodes:
        """A vector of a panel after the other: runs, stretches, squares along depth or gathers."""
        packing, share = self.packing, self.share
        is_in_runs = runs_met(packing) > 0
        if is_in_runs or not (is_across(packing) or packing.is_turned):
            ways = ["gathered from"]
            if stretch_of(packing) is not None:
                ways = ["lanes picked from", "lanes of two runs picked from"]
                ways = ways[: len(packing.source.free)]
            elif is_in_runs:
                ways = ["runs of", "lanes of several runs of"][: 1 + (not packing.is_in_vectors)]
            asked = self._asked()
            step = len(offsets_of(packing.depth_rounds[1]))
            depths = tuple(Loop(self._depths(step), (*asked, *self._fill(way))) for way in ways)
            return (Loop(self._vectors(), depths),)
        way, square = "squares turned in registers, of", packing.square
        run = packing.source.depth[-1][0]
        if len(packing.source.depth) == 1 or packing.is_in_one_run:
            steps: Nodes = (self._steps(share.depths, share.of_depths, square, 0, way),)
        else:
            runs = self._depths(run)
            steps = (Loop(runs, (self._steps(run, 0, square, int(runs.rounds > 1), way),)),)
        return (Loop(self._vectors(), steps),)


def packing_schedule(packing: Packing, batch: Axes, side: str, source: str) -> LoopSchedule:
    """The loops of panels.py's kernel."""
    panels, depth = packing.panels, packing.source.depth_size
    group, chunks = shares(packing)
    part = Share(
        group,
        CHUNK if chunks > 1 else depth,
        panels.count if panels.count % group else 0,
        depth if chunks > 1 else 0,
    )
    body = packing_nodes(packing, side, source, part)
    axes = (
        Axis("b", extent(batch), Role.PARALLEL),
        Axis(FREE[side], panels.count * panels.width, Role.PARALLEL, group * panels.width),
        Axis(DEPTH, depth, Role.PARALLEL, CHUNK if chunks > 1 else depth),
    )
    order = "row by row" if packing.by_rows else "depth by depth"
    remark = f"panels: {panels.count} of {panels.width} lanes, {order}"
    return schedule_of(axes, around(axes, body), (remark,))
