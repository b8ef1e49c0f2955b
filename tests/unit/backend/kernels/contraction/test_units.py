"""How a product is cut into parts of depth, and into units that threads take."""

import pytest

import hlo
from hlo.backend.ir.kernel import KernelSequence
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from tests.support.contraction_harness import target_of


def sequence(lhs: str, rhs: str, out: str, rest: str) -> KernelSequence:
    text = (
        f"HloModule m\nENTRY e {{\n  a = f32[{lhs}] parameter(0)\n  b = f32[{rhs}] parameter(1)\n"
        f"  ROOT r = f32[{out}] {rest}\n}}"
    )
    return contraction_kernels(hlo.parse(text).entry.root, target_of("avx512"))


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
    """Three rows of the kernel are the batch: three blocks of the others would be nine units."""
    window = "window={size=56x56 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf"
    shapes = "8,56,56,64", "8,56,56,64", "3,3,64,64"
    made = sequence(*shapes, f"convolution(a, b), {window}")
    product = max((call.kernel for call in made.calls if call.when is None), key=lambda k: k.flops)
    assert product.units == 12
