"""Products on both sides of a matrix, in one pass over it: beside NumPy, for 1 to 3 threads."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.analysis.matrix_pairs import pair_of
from hlo.machine import NAMED, Machine
from tests.support.by_threads import for_threads
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

MACHINES = [NAMED[n] for n in that_run_here("x86-64-v2", "x86-64-v3", "x86-64-v4")]
DTYPES = {"f32": np.float32, "f64": np.float64}
SHAPES = [(1024, 1024), (1031, 1029), (1500, 1357), (8205, 129), (1024, 4099)]
ALONG = {
    "dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}": "a on the left",
    "dot(x, a), lhs_contracting_dims={0}, rhs_contracting_dims={1}": "a on the right",
}
DOWN = {
    "dot(VECTOR, a), lhs_contracting_dims={0}, rhs_contracting_dims={0}": "a on the right",
    "dot(a, VECTOR), lhs_contracting_dims={0}, rhs_contracting_dims={0}": "a on the left",
}


def text(dtype: str, shape: tuple[int, int], forms: tuple[str, str], vector: str) -> str:
    rows, columns = shape
    along, down = forms
    return f"""HloModule m
ENTRY e {{
  a = {dtype}[{rows},{columns}] parameter(0)
  x = {dtype}[{columns}] parameter(1)
  z = {dtype}[{rows}] parameter(2)
  d = {dtype}[{rows}] {along}
  y = {dtype}[{columns}] {down.replace("VECTOR", vector)}
  ROOT t = ({dtype}[{rows}], {dtype}[{columns}]) tuple(d, y)
}}"""


@pytest.mark.parametrize(
    ("machine", "vector", "dtype", "shape", "n"),
    covering(MACHINES, ["d", "z"], DTYPES, SHAPES, range(len(ALONG))),
)
def test_both_products_are_right(
    shape: tuple[int, int], dtype: str, vector: str, machine: Machine, n: int
) -> None:
    rows, columns = shape
    random = np.random.default_rng(rows)
    sizes = ((rows, columns), (columns,), (rows,))
    a, x, z = (random.standard_normal(size).astype(DTYPES[dtype]) for size in sizes)
    epsilon = np.finfo(DTYPES[dtype]).eps
    along = list(ALONG)[n]
    down = list(DOWN)[(n + rows) % 2]
    module = driver.parse(text(dtype, shape, (along, down), vector))
    optimised = driver.optimize(module)
    is_joined = any(pair_of(i) is not None for i in optimised.entry.instructions)
    assert is_joined == (rows * columns * a.itemsize >= 1 << 22)
    runs = [for_threads(module, threads=threads, machine=machine)(a, x, z) for threads in (1, 2, 3)]
    d, y = runs[0]
    for other in runs[1:]:
        assert other[0].tobytes() == d.tobytes()
        assert other[1].tobytes() == y.tobytes()
    wide, given = a.astype(np.float64), d if vector == "d" else z
    assert np.all(np.abs(d - wide @ x) <= 64 * epsilon * (np.abs(wide) @ np.abs(x)))
    bound = 64 * epsilon * (np.abs(given) @ np.abs(wide))
    assert np.all(np.abs(y - given.astype(np.float64) @ wide) <= bound)


def test_infinities_stay_where_they_are() -> None:
    """A row with one is infinite, a column is NaN where zero meets it."""
    a = np.ones((1024, 1100), np.float32)
    a[1023, 1099] = np.inf
    x, z = np.ones(1100, np.float32), np.zeros(1024, np.float32)
    module = driver.parse(text("f32", (1024, 1100), (next(iter(ALONG)), next(iter(DOWN))), "z"))
    d, y = driver.compile(module, cache=False)(a, x, z)
    assert np.all(d[:-1] == 1100)
    assert np.isposinf(d[-1])
    assert np.all(y[:-1] == 0)
    assert np.isnan(y[-1])
