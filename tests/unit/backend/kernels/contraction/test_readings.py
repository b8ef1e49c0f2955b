"""Which factors a product reads where they lie, and which it packs."""

import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.convolutions.convolution import convolution_contraction
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.planning import planned
from hlo.machine import NAMED
from tests.support.by_threads import for_threads


def program(dtype: str, m: int, k: int, n: int) -> str:
    return f"""HloModule m
    ENTRY e {{ x = {dtype}[{m},{k}] parameter(0)
      y = {dtype}[{k},{n}] parameter(1)
      ROOT r = {dtype}[{m},{n}] dot(x, y), lhs_contracting_dims={{1}},
        rhs_contracting_dims={{0}} }}"""


def plan_of(text: str, machine: str) -> ProductPlan:
    root = hlo.parse(text).entry.root
    ring = ring_of(root.shape.dtype, Target(NAMED[machine]))
    is_dot = root.opcode == "dot"
    c = dot_contraction(root) if is_dot else convolution_contraction(root)[0]
    return planned(normal(c, ring.lanes), ring)


def rows_of(dtype: str, machine: str, n: int) -> Reading:
    return plan_of(program(dtype, 64, 500, n), machine).lhs


def convolution(base: str, kernel: str, out: str, stride: int = 1) -> str:
    return f"""HloModule m
    ENTRY e {{ x = f32[{base}] parameter(0)
      k = f32[{kernel}] parameter(1)
      ROOT r = f32[{out}] convolution(x, k), window={{size=3x3 stride={stride}x{stride}}},
        dim_labels=b01f_01io->b01f }}"""


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


@pytest.mark.parametrize(("dtype", "sizes", "machine", "wanted"), [
    ("f32", (512, 512, 1024), "sapphirerapids", "IN_PLACE"),  # 2 sets of 12 ways
    ("f32", (512, 1024, 1024), "sapphirerapids", "IN_PLACE"),  # one, and 14 rows
    ("f64", (512, 1024, 1024), "sapphirerapids", "IN_TILE"),  # a line has half as many depths
    ("f32", (512, 1024, 1024), "znver4", "IN_TILE"),  # 8 ways
    ("f32", (512, 1024, 1024), "x86-64-v3", "IN_PLACE"),  # and 6 rows
    ("f32", (128, 3072, 768), "znver4", "IN_PLACE"),  # 4 rows, some depths at a time
    ("bf16", (128, 3072, 768), "x86-64-v4", "IN_UNIT"),
])  # fmt: skip
def test_rows_are_read_in_place_where_the_first_cache_keeps_a_tile_of_them(
    dtype: str, sizes: tuple[int, int, int], machine: str, wanted: str
) -> None:
    plan = plan_of(program(dtype, *sizes), machine)
    assert plan.lhs is Reading[wanted]
    other = plan_of(program(dtype, *sizes), "x86-64-v4" if plan.ring.lanes > 8 else machine)
    assert (plan.sums, plan.depth_block) == (other.sums, other.depth_block)


@pytest.mark.parametrize(("base", "kernel", "out", "wanted"), [
    ("8,16,16,256", "3,3,256,256", "8,14,14,256", "IN_PLACE"),
    ("8,9,9,256", "3,3,256,256", "8,7,7,256", "IN_TILE"),  # a tile goes over the end of a row
    ("8,16,16,512", "3,3,512,256", "8,14,14,256", "IN_TILE"),  # more depths than go at once
    ("8,16,16,16", "3,3,16,256", "8,14,14,256", "IN_TILE"),  # short rows of a window
])  # fmt: skip
def test_windows_are_read_in_place_by_tiles_that_end_with_rows_of_positions(
    base: str, kernel: str, out: str, wanted: str
) -> None:
    plan = plan_of(convolution(base, kernel, out), "sapphirerapids")
    assert plan.lhs is Reading[wanted]
    if plan.lhs is Reading.IN_PLACE:
        assert plan.depth_blocks == 1


def test_windows_from_memory_meet_many_columns_at_once() -> None:
    """Each block of columns would wait for all of them again."""
    near = plan_of(convolution("4,57,57,128", "3,3,128,128", "4,28,28,128", 2), "sapphirerapids")
    far = plan_of(convolution("4,113,113,128", "3,3,128,128", "4,56,56,128", 2), "sapphirerapids")
    assert (near.lhs, far.lhs) == (Reading.IN_PLACE, Reading.IN_PLACE)
    assert far.column_blocks == 1


@pytest.mark.parametrize(("n", "tiles"), [(256, 9), (512, 4), (1024, 2), (8192, 2)])
def test_a_group_writes_no_more_rows_than_a_core_follows(n: int, tiles: int) -> None:
    """They lie on 32 pages."""
    assert plan_of(program("f32", 2048, 96, n), "sapphirerapids").group == tiles


def test_windows_in_place_give_the_reference_s_numbers() -> None:
    module = hlo.parse(convolution("2,16,16,32", "3,3,32,160", "2,14,14,160"))
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, p.shape.dims).astype("f4") for p in module.entry.parameters)
    wanted = np.asarray(hlo.evaluate(module, x, y))
    assert plan_of(str(module), "sapphirerapids").lhs is Reading.IN_PLACE
    for threads in (1, 2, 3):
        found = for_threads(module, "", threads=threads)
        np.testing.assert_array_equal(np.asarray(found.run_guarded(x, y)), wanted)
