"""Which products ask for the lines of their results, and that hints change no number."""

from __future__ import annotations

import pytest

from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import NAMED
from tests.support.contraction_harness import WRITTEN, levels
from tests.unit.backend.kernels.contraction.test_contraction_dot import dot, run


def product(m: int, n: int, k: int, dtype: DType = dt.F32, out: DType = dt.F32) -> Instruction:
    lhs, rhs = Shape.array(dtype, (m, k)), Shape.array(dtype, (k, n))
    return dot(lhs, rhs, out, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))


def hints(instruction: Instruction, machine: str = "x86-64-v4") -> int:
    kernels = contraction_kernels(instruction, Target(NAMED[machine]))
    return sum(call.kernel.text.count(WRITTEN) for call in kernels.calls)


@pytest.mark.parametrize(("sizes", "asked"), [
    ((1500, 2000, 32), True),  # 12 MB, which no cache holds
    ((1000, 1000, 512), True),  # 4 MB: in the last cache, for sums that take long
    ((1000, 1000, 64), False),  # and for sums that take no time
    ((256, 256, 1024), False),  # in a core's cache
])  # fmt: skip
def test_results_that_stores_would_wait_for_are_fetched(
    sizes: tuple[int, int, int], *, asked: bool
) -> None:
    assert bool(hints(product(*sizes))) == asked


def test_tiles_of_matrix_units_ask_for_theirs() -> None:
    assert hints(product(1500, 1500, 512, dt.BF16), "sapphirerapids")
    assert not hints(product(300, 300, 512, dt.BF16), "sapphirerapids")


def test_rows_that_begin_inside_of_lines_end_in_one_more() -> None:
    whole, parts = hints(product(1500, 2048, 32)), hints(product(1500, 2041, 32))
    assert parts > whole > 0


@pytest.mark.parametrize("level", levels())
def test_products_are_what_they_were(level: str) -> None:
    for sizes in ((1301, 1203, 9), (1024, 1200, 17)):
        run(product(*sizes), 1, level)
