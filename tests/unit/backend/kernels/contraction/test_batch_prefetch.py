"""Which batches of small products ask for the next one's factors, and that hints change no bit."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.products.batch_prefetch import prefetched_factors
from hlo.backend.kernels.contraction.products.planning import planned
from hlo.backend.kernels.contraction.products.row_prefetch import row_prefetch_bytes
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import NAMED
from tests.support.contraction_harness import Compiled, fetches, levels, target_of
from tests.unit.backend.kernels.contraction.test_contraction_dot import dot, run

ROWS = {
    "lhs_batch_dims": (0,), "rhs_batch_dims": (0,),
    "lhs_contracting_dims": (2,), "rhs_contracting_dims": (1,),
}  # fmt: skip


ALONG = {**ROWS, "rhs_contracting_dims": (2,)}


def batch(count: int, m: int, n: int, k: int) -> Instruction:
    lhs, rhs = Shape.array(dt.F32, (count, m, k)), Shape.array(dt.F32, (count, k, n))
    return dot(lhs, rhs, dt.F32, **ROWS)


def along_depth(count: int, m: int, n: int, k: int) -> Instruction:
    """Of columns that are packed."""
    lhs, rhs = Shape.array(dt.F32, (count, m, k)), Shape.array(dt.F32, (count, n, k))
    return dot(lhs, rhs, dt.F32, **ALONG)


@pytest.mark.parametrize("sizes", [(1000, 64, 64, 64), (1000, 33, 48, 40)])
def test_small_matrices_that_come_from_memory_are_fetched(sizes: tuple[int, ...]) -> None:
    assert fetches(contraction_kernels(batch(*sizes), Target(NAMED["x86-64-v4"])))
    assert not fetches(contraction_kernels(batch(*sizes), Target(NAMED["armv8-a"])))


def test_those_that_stay_in_a_cache_are_not() -> None:
    assert not fetches(contraction_kernels(batch(4, 64, 64, 64), Target(NAMED["x86-64-v4"])))


@pytest.mark.parametrize(("sizes", "sides"), [
    ((1000, 64, 64, 64), ["lhs", "rhs"]),
    ((2000, 32, 32, 32), []),  # no more than pages
    ((1000, 100, 100, 100), ["lhs", "rhs"]),  # wait in the second cache
    ((100, 250, 250, 250), []),  # and leave no room there
])  # fmt: skip
def test_so_are_those_that_are_packed(sizes: tuple[int, ...], sides: list[str]) -> None:
    """The rows of the next product are asked for with its columns, not twice."""
    root = along_depth(*sizes)
    ring = ring_of(root.shape.dtype, Target(NAMED["znver4"]))
    plan = planned(normal(dot_contraction(root), ring.lanes), ring)
    assert [factor.side for factor in prefetched_factors(plan)] == sides
    assert not (sides and row_prefetch_bytes(plan))


def test_a_factor_that_all_batches_share_is_not() -> None:
    shared = dot(
        Shape.array(dt.F32, (2000, 64, 64)), Shape.array(dt.F32, (64, 64)), dt.F32,
        lhs_contracting_dims=(2,), rhs_contracting_dims=(0,),
    )  # fmt: skip
    assert not fetches(contraction_kernels(shared, Target(NAMED["x86-64-v4"])))


@pytest.mark.parametrize("level", levels())
def test_products_are_what_they_were(level: str) -> None:
    for sizes in ((300, 33, 48, 40), (700, 20, 17, 31), (200, 64, 64, 64)):
        run(batch(*sizes), 1, level)
        run(along_depth(*sizes), 1, level)


def test_nothing_is_read_behind_the_last_batch() -> None:
    """A hint is no access."""
    instruction = batch(300, 32, 32, 32)
    compiled = Compiled(contraction_kernels(instruction, target_of()))
    lhs, rhs = (np.ones(o.shape.dims, np.float32) for o in instruction.operands)
    got = compiled([lhs, rhs], np.zeros(instruction.shape.dims, np.float32))
    assert (got == 32).all()
