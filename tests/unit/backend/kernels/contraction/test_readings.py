"""Which factors a product reads where they lie, and which it packs."""

import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.products.plan import Reading
from hlo.backend.kernels.contraction.products.planning import planned
from hlo.machine import NAMED
from tests.support.by_threads import for_threads


def program(dtype: str, m: int, k: int, n: int) -> str:
    return f"""HloModule m
    ENTRY e {{ x = {dtype}[{m},{k}] parameter(0)
      y = {dtype}[{k},{n}] parameter(1)
      ROOT r = {dtype}[{m},{n}] dot(x, y), lhs_contracting_dims={{1}},
        rhs_contracting_dims={{0}} }}"""


def rows_of(dtype: str, machine: str, n: int) -> Reading:
    root = hlo.parse(program(dtype, 64, 500, n)).entry.root
    ring = ring_of(root.shape.dtype, Target(NAMED[machine]))
    return planned(normal(dot_contraction(root), ring.lanes), ring).lhs


@pytest.mark.parametrize("machine", ["x86-64-v3", "znver4", "neoverse-n1"])
@pytest.mark.parametrize("n", [24, 100])
def test_rows_of_other_types_are_converted_once(machine: str, n: int) -> None:
    """So are integers; numbers of the sums' own type are read in place, each by a few panels."""
    for dtype in ("f16", "bf16", "s16"):
        assert rows_of(dtype, machine, n) is not Reading.IN_PLACE
    for dtype in ("f32", "f64", "c64"):
        assert rows_of(dtype, machine, n) is Reading.IN_PLACE


@pytest.mark.parametrize("sizes", [(64, 500, 100), (20, 77, 37), (5, 16, 130), (33, 3, 20)])
def test_results_are_those_of_the_reference(sizes: tuple[int, int, int]) -> None:
    module = hlo.parse(program("f16", *sizes))
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, p.shape.dims).astype("f2") for p in module.entry.parameters)
    wanted = np.asarray(hlo.evaluate(module, x, y))
    for threads in (1, 2, 3, 7):
        found = for_threads(module, "", threads=threads)
        np.testing.assert_array_equal(np.asarray(found.run_guarded(x, y)), wanted)
