"""How scans run, decided before any code is written: (program, lanes) -> axes."""

import re

import pytest

import hlo
from hlo.backend.loops.choose_scan import ScanSchedule, choose_scan
from hlo.backend.loops.opened import units_of
from hlo.backend.loops.printing import print_schedule
from hlo.backend.loops.schedule import Loop, LoopNest, LoopSchedule, Role, Tail

BODIES = {"decay": "t = {t}[] multiply(a, b)  ROOT r = {t}[] subtract(t, b)"}


def scanned(asked: str) -> ScanSchedule | None:
    """`op shape along d [from the end] in n lanes`, as it is chosen."""
    pattern = r"(\w+) (\w+)\[([\d,]+)\] along (\d)( from the end)? in (\d+) lanes"
    found = re.fullmatch(pattern, asked)
    assert found is not None
    op, kind, extents, along, is_reverse, lanes = found.groups()
    dims, d = [int(n) for n in extents.split(",")], int(along)
    sizes, pads = ["1"] * len(dims), ["0_0"] * len(dims)
    sizes[d] = str(dims[d])
    pads[d] = f"0_{dims[d] - 1}" if is_reverse else f"{dims[d] - 1}_0"
    return windowed(op, kind, extents, f"size={'x'.join(sizes)} pad={'x'.join(pads)}", int(lanes))


def windowed(op: str, kind: str, extents: str, window: str, lanes: int) -> ScanSchedule | None:
    """What is chosen for a reduce-window whose result is as large as its operand."""
    body = BODIES.get(op, f"ROOT r = {{t}}[] {op}(a, b)").format(t=kind)
    start = "(0, 0)" if kind.startswith("c") else "0"
    module = hlo.parse(f"""HloModule m
{op} {{ a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  {body} }}
ENTRY e {{
  x = {kind}[{extents}] parameter(0)
  z = {kind}[] constant({"false" if kind == "pred" else start})
  ROOT s = {kind}[{extents}] reduce-window(x, z), window={{{window}}}, to_apply={op}
}}
""")
    return choose_scan(module.entry.root, lanes)


def said(schedule: ScanSchedule) -> list[str]:
    """Its axes as --emit=loops prints them, the outermost first, and what else it decides."""
    nodes = tuple(Loop(axis, ()) for axis in schedule.axes)
    lines = print_schedule(LoopSchedule(1, 0, (LoopNest((), (), 1, 0, 1, nodes),)))
    found = [line.strip().removeprefix("for ") for line in lines]
    found += [f"{schedule.side_by_side} side by side"] * (schedule.side_by_side > 1)
    return found + [f"{schedule.carried} numbers carried"] * (schedule.carried > 1)


SCANS = {
    # Rows of memory, in lanes along themselves: four vectors at a time, as many as there are.
    "add f32[70,1000] along 1 in 16 lanes": [
        "i in 70, parallel", "j in 1000 by 4 x 16 lanes, scanned, masked tail",
    ],
    "add f32[70,1024] along 1 in 16 lanes": [
        "i in 70, parallel", "j in 1024 by 4 x 16 lanes, scanned",
    ],
    "add f32[70,96] along 1 in 16 lanes": [
        "i in 70, parallel", "j in 96 by 4 x 16 lanes, scanned, short tail",
    ],
    "add f32[70,20] along 1 in 16 lanes": [
        "i in 70, parallel", "j in 20 by 2 x 16 lanes, scanned, masked tail",
    ],
    "add f32[70,8] along 1 in 16 lanes": [
        "i in 70, parallel", "j in 8 by 16 lanes, scanned, masked tail",
    ],
    "add f32[40] along 0 in 16 lanes": [
        "i in 1, parallel", "j in 40 by 3 x 16 lanes, scanned, masked tail",
    ],
    "add f32[2,3,64,1] along 2 in 16 lanes": [
        "i in 6, parallel", "j in 64 by 4 x 16 lanes, scanned",
    ],
    "maximum f32[70,64] along 1 from the end in 16 lanes": [
        "i in 70, parallel", "j in 64 by 4 x 16 lanes, scanned, from the end",
    ],
    # Long rows: their base is carried as two numbers, and in larger blocks.
    "add f32[3,1025] along 1 in 16 lanes": [
        "i in 3, parallel", "j in 1025 by 4 x 16 lanes, scanned, masked tail", "2 numbers carried",
    ],
    "add f32[3,4096] along 1 in 16 lanes": [
        "i in 3, parallel", "j in 4096 by 4 x 16 lanes, scanned", "2 numbers carried",
    ],
    "add f32[3,5003] along 1 from the end in 16 lanes": [
        "i in 3, parallel", "j in 5003 by 8 x 16 lanes, scanned, from the end, masked tail",
        "2 numbers carried",
    ],
    "add c64[3,5120] along 1 in 16 lanes": [
        "i in 3, parallel", "j in 5120 by 8 x 16 lanes, scanned", "2 numbers carried",
    ],
    "add s32[3,5120] along 1 in 16 lanes": [
        "i in 3, parallel", "j in 5120 by 8 x 16 lanes, scanned",
    ],
    "maximum f32[3,5120] along 1 in 16 lanes": [
        "i in 3, parallel", "j in 5120 by 4 x 16 lanes, scanned",
    ],
    # Bytes: two vectors at a time, where they are of more than 32 lanes.
    "add s8[9,1024] along 1 in 64 lanes": [
        "i in 9, parallel", "j in 1024 by 2 x 64 lanes, scanned",
    ],
    "add s8[9,1024] along 1 in 32 lanes": [
        "i in 9, parallel", "j in 1024 by 4 x 32 lanes, scanned",
    ],
    "add s8[9,5000] along 1 in 64 lanes": [
        "i in 9, parallel", "j in 5000 by 2 x 64 lanes, scanned, masked tail",
    ],
    # Columns: a reduction in each lane, the last ones again in the last vector, or masked where
    # there is no other; long sums that round in blocks.
    "add f32[64,70] along 0 in 16 lanes": [
        "i in 1, parallel", "k in 70 by 16 lanes, parallel, overlapping tail", "j in 64, scanned",
    ],
    "add f32[300,64] along 0 in 16 lanes": [
        "i in 1, parallel", "k in 64 by 16 lanes, parallel", "j in 300, scanned, blocks of 64",
        "2 numbers carried",
    ],
    "add f32[2,65,9] along 1 from the end in 16 lanes": [
        "i in 2, parallel", "k in 9 by 16 lanes, parallel, every round masked",
        "j in 65, scanned, blocks of 64, from the end", "2 numbers carried",
    ],
    "add bf16[300,64] along 0 in 16 lanes": [
        "i in 1, parallel", "k in 64 by 16 lanes, parallel", "j in 300, scanned, blocks of 64",
        "2 numbers carried",
    ],
    "add s32[300,64] along 0 in 16 lanes": [
        "i in 1, parallel", "k in 64 by 16 lanes, parallel", "j in 300, scanned",
    ],
    "multiply f32[300,64] along 0 in 16 lanes": [
        "i in 1, parallel", "k in 64 by 16 lanes, parallel", "j in 300, scanned",
    ],
    # Few elements after the dimension: lanes over those before it.
    "add f32[100,30,2] along 1 in 16 lanes": [
        "k in 2, parallel", "i in 100 by 16 lanes, parallel, overlapping tail", "j in 30, scanned",
    ],
    "add f32[700,7] along 1 in 16 lanes": [
        "k in 1, parallel", "i in 700 by 16 lanes, parallel, overlapping tail", "j in 7, scanned",
        "4 side by side",
    ],
    "or pred[40,100] along 1 in 16 lanes": [
        "k in 1, parallel", "i in 40 by 16 lanes, parallel, overlapping tail", "j in 100, scanned",
    ],
    "decay f32[40,100] along 1 in 16 lanes": [
        "k in 1, parallel", "i in 40 by 16 lanes, parallel, overlapping tail", "j in 100, scanned",
    ],
    # Neither before nor after: no lanes at all.
    "maximum f32[5] along 0 in 16 lanes": [
        "i in 1, parallel", "k in 1, parallel", "j in 5, scanned",
    ],
    "add f32[40] along 0 in 1 lanes": [
        "i in 1, parallel", "k in 1, parallel", "j in 40, scanned",
    ],
    # Many reductions: four a unit, where a step is cheap.
    "maximum f32[30,512] along 0 in 16 lanes": [
        "i in 1, parallel", "k in 512 by 16 lanes, parallel", "j in 30, scanned", "4 side by side",
    ],
    "maximum f32[30,496] along 0 in 16 lanes": [
        "i in 1, parallel", "k in 496 by 16 lanes, parallel", "j in 30, scanned",
    ],
    "add f32[130,3,309] along 0 from the end in 16 lanes": [
        "i in 1, parallel", "k in 927 by 16 lanes, parallel, overlapping tail",
        "j in 130, scanned, blocks of 64, from the end", "4 side by side", "2 numbers carried",
    ],
    "decay f32[30,512] along 0 in 16 lanes": [
        "i in 1, parallel", "k in 512 by 16 lanes, parallel", "j in 30, scanned",
    ],
}  # fmt: skip


@pytest.mark.parametrize("asked", SCANS)
def test_a_scan_runs(asked: str) -> None:
    schedule = scanned(asked)
    assert schedule is not None
    assert said(schedule) == SCANS[asked]


@pytest.mark.parametrize("asked", SCANS)
def test_what_is_shown_has_the_schedule_s_units_and_axes(asked: str) -> None:
    schedule = scanned(asked)
    assert schedule is not None
    shown = schedule.loops(2)
    (nest,) = shown.nests
    assert shown.units == nest.units == units_of(nest) == schedule.units
    (loop,) = nest.body
    while isinstance(loop, Loop) and loop.axis.role is Role.PARALLEL:
        loop = loop.body[0]
    assert isinstance(loop, Loop)
    assert loop.axis == schedule.along


@pytest.mark.parametrize(
    ("columns", "units", "tail"), [(512, 8, Tail.NONE), (531, 9, Tail.OVERLAPPING)]
)
def test_folds_of_a_unit_may_overlap_those_of_another(columns: int, units: int, tail: Tail) -> None:
    schedule = scanned(f"add f32[30,{columns}] along 0 in 16 lanes")
    assert schedule is not None
    assert (schedule.units, schedule.lines.step, schedule.lines.tail) == (units, 4, tail)


@pytest.mark.parametrize(
    "window",
    [
        "size=40x1 pad=19_20x0_0",  # padded on both sides
        "size=2x1 pad=19_20x0_0 rhs_dilate=39x1",
        "size=3x1 pad=2_0x0_0",  # shorter than the dimension
        "size=40x30 pad=39_0x29_0",  # along two dimensions
        "size=1x1",
    ],
)
def test_other_windows_are_no_scans(window: str) -> None:
    assert windowed("add", "f32", "40,30", window, 16) is None


def test_a_reduction_whose_order_is_not_free_runs_from_the_beginning_only() -> None:
    assert scanned("decay f32[40,30] along 0 in 16 lanes") is not None
    assert scanned("decay f32[40,30] along 0 from the end in 16 lanes") is None
    assert scanned("add f32[40,30] along 0 from the end in 16 lanes") is not None


def test_nothing_is_no_scan() -> None:
    assert scanned("add f32[4,0] along 0 in 16 lanes") is None
