"""Values of two registers, as machines of few registers have them: every length, several types."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.machine import NAMED
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.machines_here import that_run_here

MACHINES = that_run_here("x86-64-v2", "x86-64-v3")
TYPES = {"f32": 2e-6, "f64": 1e-14, "bf16": 1e-2}
LENGTHS = (31, 64, 65, 71, 79, 95, 128, 1001)


def run(text: str, machine: str, tolerance: float) -> None:
    module = hlo.parse(f"HloModule m\n{text}")
    (x,) = made_up_inputs(module, "normal")
    wanted = np.asarray(hlo.evaluate(module, x), np.float64)
    found = hlo.compile(module, cache=False, machine=NAMED[machine])(x)
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, tolerance, tolerance)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", TYPES)
def test_lengths(machine: str, dtype: str) -> None:
    for length in LENGTHS:
        shape = f"{dtype}[3,{length}]"
        text = f"e {{ x = {shape} parameter(0)\n t = {shape} tanh(x)\n n = {shape} exponential(t)\n"
        run(f"ENTRY {text} ROOT r = {shape} subtract(n, x) }}", machine, TYPES[dtype])


@pytest.mark.parametrize("machine", MACHINES)
def test_a_slice_and_a_seam(machine: str) -> None:
    """Boxes that begin between two vectors."""
    run(
        """ENTRY e { x = f32[5,200] parameter(0)
  s = f32[5,150] slice(x), slice={[0:5], [3:153]}
  l = f32[5,150] sine(s)
  z = f32[] constant(2)
  ROOT r = f32[5,171] pad(l, z), padding=0_0x10_11 }""",
        machine,
        2e-6,
    )
