"""Rows of a few places, each of which is another array's: points, matrices of three, states."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.machine import NAMED
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

MACHINES = [
    NAMED[n]
    for n in that_run_here("x86-64-v2", "x86-64-v3", "x86-64-v4", "sapphirerapids", "neoverse-v1")
]
DTYPES = {"f32": np.float32, "f64": np.float64, "s8": np.int8}


def joined(rows: int, places: int, dtype: str, grid: tuple[int, ...]) -> str:
    """Row i holds x[i, a_j] * x[i, b_j] - x[i, c_j], place j of other columns than the rest."""
    column = f"{dtype}[{rows},1]"
    lines = [f"x = {dtype}[{rows},5] parameter(0)"]
    lines += [f"x{c} = {column} slice(x), slice={{[0:{rows}], [{c}:{c + 1}]}}" for c in range(5)]
    for j in range(places):
        a, b, c = columns(j)
        lines.append(f"m{j} = {column} multiply(x{a}, x{b})")
        lines.append(f"p{j} = {column} subtract(m{j}, x{c})")
    parts = ", ".join(f"p{j}" for j in range(places))
    lines.append(f"y = {dtype}[{rows},{places}] concatenate({parts}), dimensions={{1}}")
    shape = ",".join(map(str, (rows, *grid)))
    lines.append(f"ROOT z = {dtype}[{shape}] reshape(y)")
    body = "\n  ".join(lines)
    return f"HloModule joined\n\nENTRY e {{\n  {body}\n}}\n"


def columns(place: int) -> tuple[int, int, int]:
    return place % 5, (3 * place + 1) % 5, (place + 2) % 5


@pytest.mark.parametrize(
    ("machine", "dtype", "grid", "rows"),
    covering(MACHINES, DTYPES, [(5,), (9,), (3, 3), (16,), (17,), (2, 4, 2)], (1, 7, 33, 1000)),
)
def test_each_place_is_its_own(
    machine: object, dtype: str, grid: tuple[int, ...], rows: int
) -> None:
    places = int(np.prod(grid))
    x = (np.arange(rows * 5).reshape(rows, 5) * 7 % 11 - 5).astype(DTYPES[dtype])
    module = driver.parse(joined(rows, places, dtype, grid))
    found = driver.compile(module, threads=1, cache=False, machine=machine)(x)
    taken = [columns(j) for j in range(places)]
    want = np.stack([x[:, a] * x[:, b] - x[:, c] for a, b, c in taken], -1)
    np.testing.assert_array_equal(found, want.reshape(rows, *grid))
