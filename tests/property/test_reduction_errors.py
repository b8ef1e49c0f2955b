"""How far sums of reductions and windows are from the exact ones: no chain of additions is long.

Positive terms add their roundings up most. The programs are a part of those that
`python -m benchmarks.errors` measures beside XLA.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.error_cases import Case, Shape
from benchmarks.error_reductions import MADE_OF_SUMS as MADE
from benchmarks.error_reductions import products, reduce, rows_case, windows
from benchmarks.error_scans import running
from benchmarks.errors import errors_of
from hlo import driver
from tests.support.xla_child import run_in_child

MOST = 3.5  # units of eps * (sum of magnitudes); chains of 256 have 10 in thousands of results
Reductions = tuple[tuple[Shape, Shape], ...]
REDUCTIONS: Reductions = (
    ((1000,), (0,)), ((100_000,), (0,)), ((999_983,), (0,)), ((300, 1000), (1,)),
    ((7, 99_991), (1,)), ((1000, 300), (0,)), ((60_000, 100), (0,)), ((100_000, 5), (0,)),
    ((40, 250, 60), (1,)), ((64, 200, 16), (1,)), ((20, 100, 60), (1,)), ((3, 30_000, 7), (1,)),
    ((60, 30, 60, 30), (0, 2)), ((60, 30, 60, 30), (1, 3)), ((30, 40, 50, 20), (0, 1, 3)),
    ((30_000, 3, 10), (0, 2)), ((500, 3, 500), (0, 2)),
)  # fmt: skip
WINDOWS = (
    windows((9000,), (5000,)),
    windows((200_000,), (40_000,), (40_000,)),
    windows((4, 5000), (1, 3000)),
    windows((5000, 4), (3000, 1)),
    windows((128, 128), (64, 64)),
    windows((2, 70, 70, 8), (1, 56, 56, 1), (1, 7, 7, 1)),
    windows((8000,), (2000,), (1,), (3,)),
    windows((64, 60, 60), (64, 20, 20), (1, 20, 20)),
)
CASES = [
    *(reduce(*reduction) for reduction in REDUCTIONS),
    *(reduce((1000, 100), (d,), dtype) for d in (0, 1) for dtype in ("f16", "bf16", "f64", "c64")),
    *(products(shape, (d,)) for shape in ((3000, 40), (40, 3000)) for d in (0, 1)),
    *WINDOWS,
    *(rows_case(name, (20, 3000), (1,), *MADE[name]) for name in MADE),
    *(rows_case(name, (3000, 20), (0,), *MADE[name]) for name in MADE),
]


def named(cases: list[Case]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@named(CASES)
def test_errors_are_small(case: Case) -> None:
    arguments = case.arguments("positive")
    made = np.asarray(driver.compile(driver.parse(case.text))(*arguments))
    assert errors_of(case, made, *case.exact(arguments)).worst <= MOST


@pytest.mark.oracle
@named([reduce((250, 300), (0,)), reduce((40, 250, 60), (1,)), WINDOWS[4], running((5000, 8), 0)])
def test_errors_are_at_most_twice_those_of_xla(case: Case) -> None:
    arguments = case.arguments("positive")
    exact = case.exact(arguments)
    ours = np.asarray(driver.compile(driver.parse(case.text))(*arguments))
    (theirs,) = run_in_child(case.text, arguments)
    mine, other = (errors_of(case, made, *exact) for made in (ours, theirs))
    assert mine.median <= 2 * other.median + 0.25
    assert mine.worst <= 2 * other.worst + 0.5


@pytest.mark.parametrize("shape", [(5000,), (70, 70)])
def test_windows_keep_infinities_nan_and_negative_zeros(shape: Shape) -> None:
    case = windows(shape, (3000,) if len(shape) == 1 else (40, 40))
    executable = driver.compile(driver.parse(case.text.replace("constant(0)", "constant(-0.0)")))
    assert np.signbit(executable(np.full(shape, -0.0, np.float32))).all()
    x = np.ones(shape, np.float32)
    x.flat[len(x.flat) // 2] = np.inf
    x.flat[-1] = -np.inf
    with np.errstate(invalid="ignore"):
        want, _ = case.truth(x.astype(float))
    np.testing.assert_array_equal(executable(x), want.astype(np.float32))
