"""How a product is cut into parts of depth, and into units that threads take."""

import numpy as np
import pytest

import hlo
from hlo.backend.ir.kernel import KernelSequence
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.products.planning import _longer, planned
from hlo.machine import NAMED
from tests.support.by_threads import for_threads
from tests.support.contraction_harness import target_of


def sequence(
    lhs: str, rhs: str, out: str, rest: str, level: str = "avx512", dtype: str = "f32"
) -> KernelSequence:
    text = (
        f"HloModule m\nENTRY e {{\n  a = {dtype}[{lhs}] parameter(0)\n"
        f"  b = {dtype}[{rhs}] parameter(1)\n  ROOT r = {dtype}[{out}] {rest}\n}}"
    )
    return contraction_kernels(hlo.parse(text).entry.root, target_of(level))


DOT = "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
# The gradient of a 1x1 kernel: depth is batch and space.
FILTER = "convolution(a, b), window={{size={0}x{0}}}, dim_labels=f01b_i01o->01bf"


@pytest.mark.parametrize(
    ("depth", "plan"),
    [(112, "parts: groups"), (28, "tiles, depth first")],
)
def test_few_rows_of_a_long_depth_are_split_where_they_leave_the_caches(
    depth: int, plan: str
) -> None:
    shapes = f"8,{depth},{depth},64", f"8,{depth},{depth},256", "1,1,64,256"
    made = sequence(*shapes, FILTER.format(depth))
    assert made.sums is not None
    assert made.sums.plan == plan


def test_few_units_are_an_even_number() -> None:
    """Three rows of the kernel are the batch: five blocks of the others would be 15 units."""
    window = "window={size=56x56 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf"
    shapes = "1,56,56,64", "1,56,56,64", "3,3,64,64"
    made = sequence(*shapes, f"convolution(a, b), {window}")
    product = max((call.kernel for call in made.calls if call.when is None), key=lambda k: k.flops)
    assert product.units == 18


def test_parts_of_depth_are_images_and_rows_of_them() -> None:
    """Two images alone would be two parts of 16,384 depths."""
    window = "window={size=16x32x32 pad=1_1x1_1x1_1}, dim_labels=f012b_i012o->012bf"
    shapes = "2,16,32,32,32", "2,16,32,32,64", "3,3,3,32,64"
    made = sequence(*shapes, f"convolution(a, b), {window}")
    assert made.sums is not None
    assert made.sums.plan.startswith("parts: ")
    product = max((call.kernel for call in made.calls if call.when is None), key=lambda k: k.flops)
    assert product.units == 32


@pytest.mark.parametrize(("side", "features", "is_cut"), [(14, 384, True), (14, 64, False),
                                                          (7, 1024, False)])  # fmt: skip
def test_windows_meet_all_columns_at_once(side: int, features: int, is_cut: bool) -> None:  # noqa: FBT001
    """Depth is cut where a panel of all columns would fill the cache, but not into short blocks."""
    window = f"window={{size={side}x{side} pad=0_1x0_1 rhs_dilate=2x2}}"
    shapes = f"8,{2 * side},{2 * side},192", f"8,{side},{side},{features}", f"3,3,192,{features}"
    made = sequence(*shapes, f"convolution(a, b), {window}, dim_labels=f01b_i01o->01bf")
    assert made.sums is not None
    assert ("depth first" in made.sums.plan) is is_cut


@pytest.mark.parametrize(("rows", "level", "dtype", "is_first"), [
    ("64,1024", "avx512", "f32", True), ("64,1024", "avx2", "f32", True),
    ("64,1024", "avx2", "f16", False), ("1024,64", "avx2", "f16", True),
])  # fmt: skip
def test_rows_along_depth_come_depth_first_to_wide_vectors_and_to_tiles_that_pack(
    rows: str, level: str, dtype: str, *, is_first: bool
) -> None:
    """Those that lie across do so to all."""
    across = int(rows.startswith("1024"))
    dot = DOT.replace("lhs_contracting_dims={1}", f"lhs_contracting_dims={{{1 - across}}}")
    made = sequence(rows, "1024,2048", "64,2048", dot, level, dtype)
    assert made.sums is not None
    assert ("depth first" in made.sums.plan) is is_first


FEW_COLUMNS = {  # lhs, rhs, result, the instruction
    "product": (
        "50,200",
        "3,200",
        "50,3",
        "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    "rows beyond the last step": (
        "2,5,7,67",
        "1,1,3,67",
        "2,5,7,3",
        "convolution(a, b), dim_labels=b01f_01oi->b01f, window={size=1x1}",
    ),
    "padded": (
        "2,5,7,40",
        "3,3,2,40",
        "2,5,7,2",
        "convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01oi->b01f",
    ),
}


@pytest.mark.parametrize("name", FEW_COLUMNS)
def test_few_columns_that_run_along_depth_are_dots(name: str) -> None:
    lhs, rhs, out, rest = FEW_COLUMNS[name]
    made = sequence(lhs, rhs, out, rest)
    assert made.sums is not None
    assert made.sums.plan == "dots"
    module = hlo.parse(
        f"HloModule m\nENTRY e {{\n  a = f32[{lhs}] parameter(0)\n  b = f32[{rhs}] parameter(1)\n"
        f"  c = f32[{out}] {rest}\n  ROOT r = f32[{out}] tanh(c)\n}}"
    )
    rng = np.random.default_rng(1)
    x, k = (rng.normal(size=p.shape.dims).astype(np.float32) for p in module.entry.parameters)
    k.reshape(-1)[-1] = np.inf
    expected = np.asarray(hlo.evaluate(module, x, k))
    first, other = (for_threads(module, threads=n)(x, k) for n in (1, 3))
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "dims"),
    [
        ("50,200", "20,200", "50,20", "{1}"),  # vectors are filled well enough
        ("50,24", "5,24", "50,5", "{1}"),  # depth is short
        ("200,50", "200,3", "50,3", "{0}"),  # rows do not run along depth
    ],
)
def test_other_products_of_few_columns_are_not(lhs: str, rhs: str, out: str, dims: str) -> None:
    rest = f"dot(a, b), lhs_contracting_dims={dims}, rhs_contracting_dims={dims}"
    made = sequence(lhs, rhs, out, rest)
    assert made.sums is not None
    assert made.sums.plan != "dots"


@pytest.mark.parametrize(("panels", "blocks", "longer"), [
    (8, 3, 9 / 8),  # 2, 3, 3: a block and a half have 3.5 and 4.5
    (8, 4, 1), (8, 2, 1), (14, 4, 1), (14, 7, 1), (7, 2, 8 / 7), (5, 1, 1),
])  # fmt: skip
def test_the_longer_half_of_blocks_of_columns(panels: int, blocks: int, longer: float) -> None:
    assert _longer(panels, blocks) == pytest.approx(longer)


def test_threads_share_the_columns_evenly() -> None:
    """Eight panels, of which three blocks would fit the second cache best."""
    root = hlo.parse(
        "HloModule m\nENTRY e {\n  a = f32[384,384] parameter(0)\n  b = f32[384,384] parameter(1)\n"
        "  ROOT r = f32[384,384] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n}"
    ).entry.root
    ring = ring_of(root.shape.dtype, Target(NAMED["znver4"]))
    plan = planned(normal(dot_contraction(root), ring.lanes), ring)
    assert plan.columns.count == 8
    assert _longer(plan.columns.count, plan.column_blocks) == 1
