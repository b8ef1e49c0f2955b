"""Columns that are packed a vector after the other: by the runs of neighbours that it meets, or
picked from the stretch of memory that holds its lanes.
"""

from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.machine import NAMED, Machine
from tests.support.by_threads import for_threads
from tests.support.command import call
from tests.support.covering import covering
from tests.support.machines_here import that_run_here


def program(positions: str, window: str, results: str, dtype: str = "f32") -> str:
    """Five features of a picture to 33, features before positions."""
    sizes = window.split()[0].removeprefix("size=").replace("x", ",")
    spatial = "012"[: positions.count(",") + 1]
    return f"""HloModule m
    ENTRY e {{ x = {dtype}[2,5,{positions}] parameter(0)
      w = {dtype}[33,5,{sizes}] parameter(1)
      ROOT r = {dtype}[2,33,{results}] convolution(x, w), window={{{window}}},
        dim_labels=bf{spatial}_oi{spatial}->bf{spatial} }}"""


STRIDED = {
    "one run": ("101", "size=3 stride=2", "50"),
    "three apart": ("101", "size=2 stride=3", "34"),
    "four apart": ("131", "size=2 stride=4", "33"),
    "less than a panel": ("49", "size=3 stride=2", "24"),
    "runs": ("12,57", "size=1x3 stride=2x2", "6,28"),
    "runs of a vector and one more": ("7,35", "size=1x2 stride=1x2", "7,17"),
    "padded": ("9,47", "size=3x3 stride=2x2 pad=1_1x1_1", "5,24"),
}
RUNS = {
    "rows longer than a vector": ("9,37", "size=3x3", "7,35"),
    "rows of whole vectors": ("9,66", "size=2x3", "8,64"),
    "rows shorter than a vector": ("9,9", "size=3x3", "7,7"),
    "padded": ("8,8", "size=3x3 pad=1_1x1_1", "8,8"),
    "a window of many places": ("12,30", "size=5x7 pad=2_2x3_3", "12,30"),
    "a reversed window": ("9,21", "size=3x5 rhs_reversal=1x1", "7,17"),
    "three dimensions": ("5,6,11", "size=2x2x3", "4,5,9"),
}
OTHERS = {
    "neighbours": ("101", "size=3", "99"),
    "far apart": ("209", "size=2 stride=7", "30"),
    "short runs": ("20,21", "size=1x3 stride=2x2", "10,10"),
}


MACHINES = [NAMED[n] for n in that_run_here("x86-64-v3")]


def loops(text: str, machine: str, folder: Path) -> str:
    file = folder / "m.hlo"
    file.write_text(text)
    return call("hlo-opt", str(file), f"--machine={machine}", "--emit=loops").out


@pytest.mark.parametrize("name", STRIDED)
def test_lanes_are_picked(name: str, tmp_path: Path) -> None:
    text = loops(program(*STRIDED[name]), "znver4", tmp_path)
    assert "lanes picked from" in text
    assert "gathered" not in text


@pytest.mark.parametrize("name", OTHERS)
def test_other_neighbours_are_not(name: str, tmp_path: Path) -> None:
    assert "picked" not in loops(program(*OTHERS[name]), "znver4", tmp_path)


@pytest.mark.parametrize("name", RUNS)
def test_runs_are_loaded(name: str, tmp_path: Path) -> None:
    text = loops(program(*RUNS[name]), "znver4", tmp_path)
    assert "rhs = runs of" in text
    assert "rhs = gathered" not in text


def test_vectors_of_many_runs_are_gathered(tmp_path: Path) -> None:
    """Of rows of three columns, sixteen lanes meet six."""
    text = loops(program("9,5", "size=3x3", "7,3"), "znver4", tmp_path)
    assert "rhs = gathered" in text


def test_memory_is_asked_for_where_it_is_more_than_the_first_cache(tmp_path: Path) -> None:
    sizes = {"small": ("9,37", "size=3x3", "7,35"), "large": ("90,70", "size=3x3", "88,68")}
    asked = {n: "ahead" in loops(program(*s), "znver4", tmp_path) for n, s in sizes.items()}
    assert asked == {"small": False, "large": True}


def test_windows_that_share_memory_are_read_where_they_lie(tmp_path: Path) -> None:
    """Along a row, whose positions follow each other; not where each place is read once."""
    assert "rhs[" not in loops(program("401", "size=3", "399"), "znver4", tmp_path)
    assert "rhs[" in loops(
        program("400", "size=1", "400").replace("5,", "500,"), "znver4", tmp_path
    )


def test_without_masks_each_lane_is_loaded(tmp_path: Path) -> None:
    assert "gathered" in loops(program(*STRIDED["runs"]), "x86-64-v2", tmp_path)
    assert "picked" in loops(program(*STRIDED["runs"]), "x86-64-v3", tmp_path)


@pytest.mark.parametrize(
    ("dtype", "name", "machine"),
    covering(["f32", "f64", "bf16", "f16", "s32", "s8"], [*STRIDED, *RUNS], [None, *MACHINES]),
)
def test_results_are_those_of_the_reference(name: str, dtype: str, machine: Machine | None) -> None:
    """Small integers, whose sums are exact; memory ends where forbidden pages begin."""
    module = hlo.parse(program(*(STRIDED | RUNS)[name], dtype))
    rng = np.random.default_rng(0)
    x, w = (
        rng.integers(-4, 5, p.shape.dims).astype(p.shape.dtype.numpy)
        for p in module.entry.parameters
    )
    wanted = np.asarray(hlo.evaluate(module, x, w))
    for threads in (1, 3):
        made = for_threads(module, threads=threads, machine=machine)
        found = made.run_guarded(x, w)
        np.testing.assert_array_equal(np.asarray(found), wanted)
