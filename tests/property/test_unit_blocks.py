"""Heavy formulas in units: every element of a long array is written, whatever a round takes.

A unit takes fewer elements of a heavier formula, and a round more vectors of a longer chain: the
first has to be a multiple of the second.
"""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.machine import NAMED, Machine
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

MACHINES = [
    NAMED[n]
    for n in that_run_here("x86-64-v3", "x86-64-v4", "znver4", "sapphirerapids", "neoverse-v1")
]
SERIES = (("p", 1.0), ("q", -0.5))
TERMS = [6, 11, 17, 23, 29, 37]


def series(count: int, size: int, dtype: str) -> str:
    """Two Chebyshev series by Clenshaw's recurrence, b_n = x b_n-1 - b_n-2 + c_n, of which an
    element takes one.
    """
    array = f"{dtype}[{size}]"
    numbers, lines = [], [f"x = {array} parameter(0)"]
    for name, scale in SERIES:
        lines.append(f"{name}zero = {array} broadcast(zero), dimensions={{}}")
        before = last = f"{name}zero"
        for n in range(count):
            numbers.append(f"{name}c{n} = {dtype}[] constant({scale / (n + 1)})")
            lines.append(f"{name}s{n} = {array} broadcast({name}c{n}), dimensions={{}}")
            lines.append(f"{name}m{n} = {array} multiply(x, {last})")
            lines.append(f"{name}d{n} = {array} subtract({name}m{n}, {before})")
            lines.append(f"{name}{n} = {array} add({name}d{n}, {name}s{n})")
            before, last = last, f"{name}{n}"
    lines.append(f"is_more = pred[{size}] compare(x, pzero), direction=GT")
    lines.append(f"ROOT y = {array} select(is_more, p{count - 1}, q{count - 1})")
    body = "\n  ".join((f"zero = {dtype}[] constant(0)", *numbers, *lines))
    return f"HloModule series\n\nENTRY e {{\n  {body}\n}}\n"


def expected(x: np.ndarray, count: int) -> np.ndarray:
    sums = []
    for _, scale in SERIES:
        before = last = np.zeros(x.shape)
        for n in range(count):
            before, last = last, x * last - before + scale / (n + 1)
        sums.append(last)
    return np.where(x > 0, *sums)


@pytest.mark.parametrize(("machine", "dtype", "count"), covering(MACHINES, ["f32", "f64"], TERMS))
def test_all_elements_are_written(machine: Machine, dtype: str, count: int) -> None:
    for size in (9_000, 1 << 17, (1 << 17) + 13):
        x = np.linspace(-1, 1, size).astype({"f32": np.float32, "f64": np.float64}[dtype])
        module = driver.parse(series(count, size, dtype))
        run = driver.compile(module, threads=1, cache=False, machine=machine)
        run(np.full_like(x, np.nan))  # what is not written stays what it was
        found = run(x)
        np.testing.assert_allclose(found, expected(x, count), rtol=1e-4, atol=1e-5)
