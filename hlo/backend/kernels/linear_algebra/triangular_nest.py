"""The loops of a triangular solve, as a schedule has them.

    SystemForm --triangular_schedule--> a panel to scratch, blocks of unknowns, and back

b counts systems, j right-hand sides (lanes), i unknowns, r those that a block takes away.
"""

from __future__ import annotations

from hlo.backend.kernels.linear_algebra.triangular_form import SystemForm
from hlo.backend.loops.one_nest import Nodes, around, schedule_of
from hlo.backend.loops.schedule import (
    Axis,
    Cache,
    Fill,
    Loop,
    LoopSchedule,
    Reduction,
    Role,
    Storage,
    Store,
    Tail,
)

PANEL = "x"
UNKNOWN, KNOWN = "i", "r"


def triangular_schedule(form: SystemForm) -> LoopSchedule:
    """The loops of triangular.py's kernel."""
    s = form.system
    remarks = (
        f"triangular solve: {s.size} unknowns, batch of {s.batch}",
        f"panels: {form.panels} of {form.width} right-hand sides",
        f"blocks: {form.rows} unknowns in registers, each one before is read once for all",
    )
    if not s.size or not s.batch * s.count:
        return schedule_of((), (), remarks, scratch_bytes=form.scratch_bytes)
    tail = Tail.PREDICATED if form.is_masked else Tail.NONE
    axes = (
        Axis("b", s.batch, Role.PARALLEL),
        Axis("j", s.count, Role.PARALLEL, form.width, form.lanes, tail),
    )
    body = (
        _panel(form),
        _moved(form, is_stored=False),
        *_solved(form),
        _moved(form, is_stored=True),
    )
    return schedule_of(axes, around(axes, body), remarks, scratch_bytes=form.scratch_bytes)


def _panel(form: SystemForm) -> Cache:
    ring = form.ring
    parts = (ring.parts,) if ring.parts > 1 else ()
    dims = (form.system.size, *parts, form.width)
    return Cache(PANEL, dims, ring.dtype_name, form.scratch_bytes, Storage.SCRATCH)


def _moved(form: SystemForm, *, is_stored: bool) -> Loop:
    """The panel's right-hand sides into scratch memory, or the unknowns out of it."""
    apart = "" if form.system.across == 1 else ", lanes apart"
    order = ", from the last one" if form.system.step < 0 else ""
    index = (*(("b",) if form.system.batch > 1 else ()), UNKNOWN, "j")
    node = (
        Store("result", 0, index, PANEL + apart + order)
        if is_stored
        else Fill(PANEL, f"right-hand sides of p1{apart}{order}")
    )
    return Loop(Axis(UNKNOWN, form.system.size, Role.SERIAL), (node,))


def _solved(form: SystemForm) -> Nodes:
    """Blocks of unknowns; the last one may have fewer."""
    size, whole = form.system.size, form.whole
    found: Nodes = ()
    if whole:
        axis = Axis(UNKNOWN, whole, Role.SERIAL, form.rows)
        known = Axis(KNOWN, whole - form.rows, Role.REDUCED, of=size)
        found += (Loop(axis, _block(form, known, form.rows)),)
    if size > whole:
        found += _block(form, Axis(KNOWN, whole, Role.REDUCED), size - whole)
    return found


def _block(form: SystemForm, known: Axis, rows: int) -> Nodes:
    """Unknowns before are taken away, then those of the block solve each other."""
    side_by_side = rows * form.vectors
    triangle = Fill(PANEL, "rest solved in registers, " + ("by a unit diagonal"
        if form.system.is_unit else "by the diagonal of p0"))  # fmt: skip
    rest = Reduction(
        "rest", "x less products", (known,), form.lanes, side_by_side, reads=("p0", PANEL)
    )
    return (rest, triangle) if known.extent else (triangle,)
