"""Products whose results are complex and of which one factor is computed from real numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.machine import NAMED, Machine
from hlo.tools.inputs import made_up_inputs

NAMES = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "sapphirerapids", "neoverse-v1")
MACHINES = [NAMED[n] for n in NAMES if NAMED[n].features <= driver.host_machine().features]


def scaled(rows: int, depth: int, columns: int, contracted: int, result: str) -> str:
    """x times weights of a byte, each times its column's scale."""
    dims = (depth, columns) if contracted == 0 else (columns, depth)
    weights = ",".join(map(str, dims))
    return f"""HloModule scaled

ENTRY e {{
  x = f32[{rows},{depth}] parameter(0)
  w = s8[{weights}] parameter(1)
  s = f32[{columns}] parameter(2)
  wide = f32[{weights}] convert(w)
  scales = f32[{weights}] broadcast(s), dimensions={{{1 - contracted}}}
  scaled = f32[{weights}] multiply(wide, scales)
  ROOT r = {result}[{rows},{columns}] dot(x, scaled), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{{contracted}}}
}}
"""


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
@pytest.mark.parametrize("contracted", [0, 1])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_real_numbers_have_no_imaginary_part(machine: Machine, rows: int, contracted: int) -> None:
    for result in ("c64", "c128"):
        module = driver.parse(scaled(rows, 96, 131, contracted, result))
        x, w, s = (np.asarray(a) for a in made_up_inputs(module, "ints", 1))
        run = driver.compile(module, threads=1, cache=False, machine=machine)
        weights = (w if contracted == 0 else w.T).astype(np.float32) * s
        np.testing.assert_array_equal(run(x, w, s), x @ weights)
