"""Which products have their rows packed by a kernel before them, and that it changes no bit."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction import sequence
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.convolutions.convolution import convolution_contraction
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.products.lhs_prepacking import with_prepacked_lhs
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.planning import planned
from hlo.ir.instruction import Instruction
from hlo.machine import NAMED, Machine
from tests.support.contraction_harness import computed, levels, normal_factors

ZEN4 = NAMED["znver4"]


def product(dtype: str, dims: tuple[int, int, int], batch: str = "") -> Instruction:
    m, n, k = dims
    (x, y, r), axes = (("", "", ""), ["", 1, 0])
    if batch:
        x = y = r = f"{batch},"
        axes = ["lhs_batch_dims={0}, rhs_batch_dims={0}, ", 2, 1]
    return hlo.parse(f"""HloModule m
    ENTRY e {{ x = {dtype}[{x}{m},{k}] parameter(0)
      y = {dtype}[{y}{k},{n}] parameter(1)
      ROOT r = {dtype}[{r}{m},{n}] dot(x, y), {axes[0]}lhs_contracting_dims={{{axes[1]}}},
        rhs_contracting_dims={{{axes[2]}}} }}""").entry.root


def plan_of(root: Instruction, machine: Machine = ZEN4) -> ProductPlan:
    ring = ring_of(root.shape.dtype, Target(machine))
    return planned(normal(dot_contraction(root), ring.lanes), ring)


@pytest.mark.parametrize(("dtype", "dims", "wanted"), [
    ("f64", (2048, 2048, 2048), "PACKED"), ("f64", (1024, 1024, 1024), "PACKED"),
    ("f32", (2048, 2048, 2048), "PACKED"), ("f32", (4096, 4096, 4096), "PACKED"),
    ("f32", (2048, 256, 2048), "IN_TILE"),  # few blocks of columns
    ("f32", (512, 512, 512), "IN_TILE"),
])  # fmt: skip
def test_rows_that_many_blocks_of_columns_copy(
    dtype: str, dims: tuple[int, int, int], wanted: str
) -> None:
    before = plan_of(product(dtype, dims))
    assert before.lhs is Reading.IN_TILE
    plan = with_prepacked_lhs(before)
    assert plan.lhs is Reading[wanted]
    assert plan == replace(before, lhs=plan.lhs)
    assert (plan.depth_blocks, plan.sums) == (before.depth_blocks, before.sums)


def test_columns_take_half_of_the_cache_where_rows_from_memory_are_waited_for() -> None:
    """Else a quarter: rows that the last cache holds, or that arithmetic hides."""
    machine = NAMED["znver5"]
    second = machine.second_cache.bytes
    for dtype, dims, share in (
        ("f64", (2048, 2048, 2048), 2), ("f64", (512, 512, 512), 4), ("f32", (1024, 1024, 1024), 4),
    ):  # fmt: skip
        plan = plan_of(product(dtype, dims), machine)
        assert plan.shared_bytes == second // share
        assert plan.sums == plan_of(product(dtype, dims), ZEN4).sums


def test_packed_rows_are_fetched_ahead_like_copied_ones() -> None:
    """From the copy, whose rows lie a little further apart."""
    sequence = contraction_kernels(product("f64", (2048, 2048, 2048)), Target(ZEN4))
    *packing, last = sequence.calls
    assert len(packing) == 1
    assert last.buffers[0] == packing[0].buffers[1]
    assert "prefetcht1" in last.kernel.text


def test_a_machine_whose_cache_is_no_faster_than_memory_copies_in_tiles() -> None:
    rates = replace(ZEN4.rates, cached_bytes=100, memory_bytes=100_000)
    assert with_prepacked_lhs(plan_of(product("f64", (2048, 2048, 2048)))).lhs is Reading.PACKED
    slow = replace(ZEN4, rates=replace(ZEN4.rates, memory_bytes=100))
    for machine, wanted in ((replace(ZEN4, rates=rates), Reading.PACKED), (slow, Reading.IN_TILE)):
        assert (
            with_prepacked_lhs(plan_of(product("f64", (2048, 2048, 2048)), machine)).lhs is wanted
        )


def test_windows_that_overlap_stay_where_they_are() -> None:
    """The copy would have each element once for each window that it lies in."""
    root = hlo.parse("""HloModule m
    ENTRY e { x = f32[8,66,66,256] parameter(0)
      k = f32[3,3,256,2048] parameter(1)
      ROOT r = f32[8,64,64,2048] convolution(x, k), window={size=3x3},
        dim_labels=b01f_01io->b01f }""").entry.root
    ring = ring_of(root.shape.dtype, Target(ZEN4))
    plan = planned(normal(convolution_contraction(root)[0], ring.lanes), ring)
    tiles = replace(plan, lhs=Reading.IN_TILE)
    assert tiles.column_blocks > 8
    assert with_prepacked_lhs(tiles).lhs is Reading.IN_TILE


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize(("dtype", "dims", "batch"), [
    ("f64", (131, 259, 2048), ""), ("f32", (67, 643, 1030), "2"), ("f32", (40, 515, 4999), ""),
])  # fmt: skip
def test_bits_are_those_of_rows_copied_in_tiles(
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    dtype: str,
    dims: tuple[int, int, int],
    batch: str,
) -> None:
    root = product(dtype, dims, batch)
    factors, found = normal_factors(root), []
    for packs in (lambda plan: plan, _always):
        monkeypatch.setattr(sequence, "with_prepacked_lhs", packs)
        found.append(computed(root, factors, level))
    assert found[0].tobytes() == found[1].tobytes()
    np.testing.assert_allclose(found[1], factors[0] @ factors[1], rtol=1e-3, atol=1e-3)


def _always(plan: ProductPlan) -> ProductPlan:
    return replace(plan, lhs=Reading.PACKED) if plan.lhs is Reading.IN_TILE else plan
