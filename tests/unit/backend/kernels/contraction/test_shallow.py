"""Products of few depths, whose results weigh more than their sums, are written from end to end."""

import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.planning import planned
from hlo.machine import NAMED
from tests.support.by_threads import for_threads
from tests.support.covering import covering

LAYOUTS = {"nn": (1, 0), "nt": (1, 1), "tn": (0, 0), "tt": (0, 1)}


def program(layout: str, m: int, n: int, k: int, dtype: str = "f32") -> str:
    left, right = LAYOUTS[layout]
    x = f"{m},{k}" if left else f"{k},{m}"
    y = f"{n},{k}" if right else f"{k},{n}"
    return f"""HloModule m
    ENTRY e {{ x = {dtype}[{x}] parameter(0)
      y = {dtype}[{y}] parameter(1)
      ROOT r = {dtype}[{m},{n}] dot(x, y), lhs_contracting_dims={{{left}}},
        rhs_contracting_dims={{{right}}} }}"""


def plan_of(layout: str, m: int, n: int, k: int) -> ProductPlan:
    root = hlo.parse(program(layout, m, n, k)).entry.root
    ring = ring_of(root.shape.dtype, Target(NAMED["znver4"]))
    return planned(normal(dot_contraction(root), ring.lanes), ring)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k", [1, 4, 16])
def test_units_are_tiles_of_rows_that_meet_all_columns(layout: str, k: int) -> None:
    plan = plan_of(layout, 2048, 2048, k)
    assert (plan.row_blocks, plan.column_blocks) == (plan.rows.count, 1)
    assert plan.rhs in (Reading.IN_PLACE, Reading.PACKED)
    assert plan.depth_blocks == 1


@pytest.mark.parametrize("sizes", [(2048, 2048, 17), (128, 128, 4)])
def test_deeper_and_small_products_have_other_units(sizes: tuple[int, int, int]) -> None:
    plan = plan_of("nn", *sizes)
    assert plan.row_blocks < plan.rows.count


@pytest.mark.parametrize(
    ("layout", "sizes"),
    covering(LAYOUTS, [(301, 515, 3), (70, 4099, 16), (5001, 33, 7), (257, 640, 1)], strength=1),
)
def test_results_are_those_of_the_reference(layout: str, sizes: tuple[int, int, int]) -> None:
    module = hlo.parse(program(layout, *sizes))
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(p.shape.dims).astype("f4") for p in module.entry.parameters)
    wanted = np.asarray(hlo.evaluate(module, x, y))
    found = [for_threads(module, "", threads=n)(x, y) for n in (1, 2, 3, 7)]
    np.testing.assert_allclose(found[0], wanted, rtol=0, atol=1e-4)
    assert all(np.array_equal(found[0], other) for other in found)
