"""Lookups of neighbours: one load for a lane, or each element for itself where one is clamped."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.machine import NAMED

COUNT, TABLE = 256, 500
LOOKUP = """offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1}"""


def program(steps: list[int], element: str) -> str:
    """x[i + step] for each step, less the sum of those before."""
    lines = []
    for n, step in enumerate(steps):
        lines.append(f"""  n{n} = s32[] constant({step})
  ns{n} = s32[{COUNT}] broadcast(n{n}), dimensions={{}}
  at{n} = s32[{COUNT}] add(i, ns{n})
  place{n} = s32[{COUNT},1] reshape(at{n})
  x{n} = {element}[{COUNT}] gather(x, place{n}), {LOOKUP}""")
        if n:
            before = f"y{n - 1}" if n > 1 else "x0"
            lines.append(f"  y{n} = {element}[{COUNT}] subtract(x{n}, {before})")
    body = "\n".join(lines)
    return f"""HloModule neighbours
ENTRY e {{
  x = {element}[{TABLE}] parameter(0)
  i = s32[{COUNT}] parameter(1)
{body}
  ROOT r = {element}[{COUNT}] negate(y{len(steps) - 1})
}}"""


def code(text: str, machine: str) -> str:
    return str(driver.emit_stage(driver.optimize(hlo.parse(text)), "llvm", machine=NAMED[machine]))


@pytest.mark.parametrize(
    ("steps", "element", "load"),
    [
        ([0, 1], "f32", "load <2 x float>"),
        ([3, 0, 1, 2], "s32", "load <4 x i32>"),
        ([0, 2], "f32", "load <4 x float>"),
        ([-1, 0], "f64", "load <2 x double>"),
    ],
)
def test_neighbours_are_loaded_together(steps: list[int], element: str, load: str) -> None:
    for machine in ("x86-64-v4", "x86-64-v3"):
        assert load in code(program(steps, element), machine)


def test_lookups_far_apart_are_not_loaded_together() -> None:
    found = code(program([0, 9], "f32"), "x86-64-v4")
    assert "load <2 x float>" not in found
    assert "load <4 x float>" not in found


@pytest.mark.parametrize("steps", [[0, 1], [0, 2], [2, -1, 1, 0], [0, 5, 1, 6, 9]])
@pytest.mark.parametrize("element", ["f32", "f64", "s32", "s64"])
def test_places_at_both_ends_are_clamped_one_by_one(steps: list[int], element: str) -> None:
    rng = np.random.default_rng(3)
    kind = {"f": np.dtype(f"f{int(element[1:]) // 8}"), "s": np.dtype(f"i{int(element[1:]) // 8}")}
    x = rng.integers(-1000, 1000, TABLE).astype(kind[element[0]])
    i = rng.integers(0, TABLE, COUNT).astype(np.int32)
    i[100:140] = np.arange(40) - 20
    i[200:240] = np.arange(40) + TABLE - 20
    i[7], i[8] = np.iinfo(np.int32).max, np.iinfo(np.int32).min
    module = hlo.parse(program(steps, element))
    wanted = hlo.evaluate(module, x, i)
    for machine in (None, "x86-64-v3"):
        found = hlo.compile(module, cache=False, machine=machine)(x, i)
        assert np.array_equal(np.asarray(found), np.asarray(wanted))
