"""Band limits: tiles and depths of a product that need not be computed.

Bands of its index sets say so, or the bounds with which a block calls it.

    Bands of a contraction --BandLimits--> whether a tile is wanted; which depths it sums over
    Bounded, low and high  --BandLimits--> the tiles, panels, depths and rows between them

The result of a product under a mask is wanted in a band. A factor that is zero outside of a band
adds nothing there, if what it meets is finite (zero_check.py has that checked). What is left out of
a sum are whole blocks of its chain (sum_blocks.py) and what follows its last term: each block that
is made has the terms, in their order, that it has in the whole sum, and sums begin at +0, so that
no bit changes but the sign of a sum that came to -0 by underflow. Tiles that share rows, and panels
that share columns, sum over the same depths, so that what both write has the same bits.

Beside bounds a factor is anything: not one depth there is added. Tiles that reach beyond them write
what nobody reads, unless the result is added to what others have added up: then rows are stored
between them alone, and panels of columns end where they do.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.analysis.bands import FAR
from hlo.analysis.decisions import GRANULE
from hlo.backend.ir.arithmetic import add, divided, times
from hlo.backend.ir.functions import HIGH, LOW
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.packing.form import Panels
from hlo.backend.kernels.contraction.problem.axes import Bands
from hlo.backend.kernels.contraction.problem.bounds import bounds_in, within_bounds
from hlo.backend.kernels.contraction.products.plan import ProductPlan

SAMPLES = 16  # Tiles, and panels, that stand for all.
Range = tuple[Value, Value]  # [first, last)


class Depths(Struct, frozen=True):
    """The depths of one pass: how many, how far into each factor they begin, and the first's
    number.
    """

    count: Value
    lhs: Value
    rhs: Value
    first: Value


class BandLimits:
    """What of a plan's tiles is computed, in the function being written."""

    def __init__(self, w: Writer, plan: ProductPlan) -> None:
        self.w, self.plan = w, plan
        self.bands = plan.contraction.bands

    def is_wanted(self, tiles: Range, panels: Range) -> Value | None:
        """Whether some of these tiles have elements of the result's band; None: all have."""
        w, band = self.w, self.bands.result
        if band.is_all:
            return None
        rows, columns = _reach(w, self.plan.rows, tiles), _reach(w, self.plan.columns, panels)
        found: list[Value] = []
        if band.low > -FAR:  # the last column less the first row
            most = w.binary("sub", columns[1], rows[0])
            found.append(w.compare("icmp sgt", most, w.int(band.low)))
        if band.high < FAR:  # the first column less the last row
            least = w.binary("sub", columns[0], rows[1])
            found.append(w.compare("icmp slt", least, w.int(band.high)))
        return found[0] if len(found) == 1 else w.binary("and", *found)

    def within(self, side: str, own: Range) -> Range:
        """What of some tiles, or panels, is between the bounds; perhaps nothing."""
        panels = self.plan.rows if side == "rows" else self.plan.columns
        return within_bounds(self.w, own, panels.step)

    def stored(self, start: Value, first: Value) -> Range:
        """Of a tile that begins at a row, and is stored from one of its own on, the rows between
        the bounds.
        """
        w, step = self.w, self.w.int(self.plan.rows.step)
        low, high = (w.binary("sub", bound, start) for bound in (LOW, HIGH))
        return (
            w.intrinsic("llvm.smax", "i64", first, low),
            w.intrinsic("llvm.smin", "i64", step, high),
        )

    def between(self) -> Range:
        """The bounds as depths: of words, those of which some element is between them."""
        bounded = self.plan.contraction.bounded
        assert bounded is not None, "a bounded product"
        return bounds_in(self.w, bounded.group)

    def is_met(self, first: Value, count: Value) -> Value:
        """Whether some of these depths are between the bounds."""
        w, (low, high) = self.w, self.between()
        begins = w.compare("icmp ult", first, high)
        return w.binary("and", begins, w.compare("icmp ugt", add(w, first, count), low))

    def _bounded(self, given: Depths) -> Depths:
        """The given depths that are between the bounds: one at least."""
        w, (axis,), (low, high) = self.w, self.plan.nest, self.between()
        begin = w.binary("sub", low, given.first)
        begin = w.intrinsic("llvm.smax", "i64", begin, w.int(0))
        end = w.binary("sub", high, given.first)
        end = w.intrinsic("llvm.smin", "i64", end, given.count)
        return Depths(
            w.binary("sub", end, begin),
            add(w, given.lhs, times(w, begin, axis.lhs)),
            add(w, given.rhs, times(w, begin, axis.rhs)),
            add(w, given.first, begin),
        )

    def depths(self, tile: Value, panel: Value, given: Depths) -> Depths:
        """Those of the given depths, one at least, that a tile sums over."""
        w, plan, bands = self.w, self.plan, self.bands
        if plan.contraction.bounded_side == "depth":
            return self._bounded(given)
        if not bands.has_depths:
            return given
        zero, last = w.int(0), w.binary("sub", given.count, w.int(1))
        begin, end = zero, given.count
        sides = ((bands.lhs, plan.rows, tile), (bands.rhs, plan.columns, panel))
        for band, panels, own in sides:
            first, behind = _reach(w, panels, one(w, own))
            if band.low > -FAR:
                least = w.binary("sub", add(w, first, w.int(band.low)), given.first)
                begin = w.intrinsic("llvm.smax", "i64", begin, least)
            if band.high < FAR:
                most = w.binary("sub", add(w, behind, w.int(band.high)), given.first)
                end = w.intrinsic("llvm.smin", "i64", end, most)
        block = plan.cut.rounds if plan.cut else 1
        begin = w.intrinsic("llvm.smin", "i64", begin, last)
        begin = times(w, divided(w, begin, block), block)
        count = w.intrinsic("llvm.smax", "i64", w.binary("sub", end, begin), w.int(1))
        (axis,) = plan.nest
        return Depths(
            count,
            add(w, given.lhs, times(w, begin, axis.lhs)),
            add(w, given.rhs, times(w, begin, axis.rhs)),
            add(w, given.first, begin),
        )


def is_addable(plan: ProductPlan) -> bool:
    """Whether the columns of a bounded product whose result is added to what lies there are stored
    once, and those between the bounds alone. Rows are, one by one.
    """
    return plan.contraction.bounded_side == "rows" or (
        not plan.columns.overlaps and GRANULE % plan.columns.step == 0
    )


def one(w: Writer, panel: Value) -> Range:
    """The range of one."""
    return panel, add(w, panel, w.int(1))


def _reach(w: Writer, panels: Panels, own: Range) -> Range:
    """The indices of some panels, and of those that share some with them: the last two."""
    if panels.count == 1:
        return w.int(0), w.int(panels.end)
    first, last = (times(w, end, panels.step) for end in own)
    if not panels.overlaps:
        return first, last
    least = w.int((panels.count - 2) * panels.step)
    is_last = w.compare("icmp ugt", last, least)
    return (
        w.intrinsic("llvm.umin", "i64", first, least),
        w.select(is_last, w.int(panels.end), last),
    )


def share_of(plan: ProductPlan) -> float:
    """Which part of all products of a plan are computed, about: of some tiles and panels."""
    bands, k = plan.contraction.bands, plan.contraction.k
    if bands.is_all:
        return 1.0
    rows, columns = _some(plan.rows), _some(plan.columns)
    return sum(_share(bands, k, i, j) for i in rows for j in columns) / (len(rows) * len(columns))


def _some(panels: Panels) -> list[tuple[int, int]]:
    """The indices of panels that stand for all."""
    count = min(panels.count, SAMPLES)
    return [_known(panels, (2 * n + 1) * panels.count // (2 * count)) for n in range(count)]


def _known(panels: Panels, panel: int) -> tuple[int, int]:
    first = panel * panels.step
    return min(first, max(0, panels.end - panels.step)), min(first + panels.step, panels.end)


def _share(bands: Bands, k: int, rows: tuple[int, int], columns: tuple[int, int]) -> float:
    """Of the depths of a tile."""
    band = bands.result
    if columns[1] - rows[0] <= band.low or columns[0] - rows[1] >= band.high:
        return 0.0
    begin = max(0, rows[0] + bands.lhs.low, columns[0] + bands.rhs.low)
    end = min(k, rows[1] + bands.lhs.high, columns[1] + bands.rhs.high)
    return max(0, end - begin) / k if k else 1.0
