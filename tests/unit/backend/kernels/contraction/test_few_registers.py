"""Seven to twelve rows by a large matrix: the same bits whatever registers a machine has."""

import numpy as np
import pytest

import hlo
from hlo.machine import named
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

TEXT = """HloModule m
ENTRY e {{
  a = f32[{m},{k}] parameter(0)
  b = f32[{k},{n}] parameter(1)
  ROOT c = f32[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


@pytest.mark.parametrize(
    ("k", "n", "m"),
    covering(
        [(1024, 1024), (1030, 1100), (2047, 600), (513, 2100)], [7, 12], strength=1, several=(0,)
    ),
)
def test_bits_of_few_rows_are_the_same(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(dims).astype(np.float32) for dims in ((m, k), (k, n)))
    module = hlo.parse(TEXT.format(m=m, k=k, n=n))
    found = [
        np.asarray(hlo.compile(module, cache=False, threads=threads, machine=named(machine))(a, b))
        for machine in that_run_here("x86-64-v3", "x86-64-v4")
        for threads in (1, 2)
    ]
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(found[0] - exact).max() < 1e-6 * (np.abs(a) @ np.abs(b)).max()
    for other in found[1:]:
        assert np.array_equal(found[0], other)
