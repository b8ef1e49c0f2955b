"""Which products ask for the next rows of lhs or panels of rhs, and that hints change no bit."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import NAMED
from tests.support.contraction_harness import Compiled, fetches, levels, target_of
from tests.unit.backend.kernels.contraction.test_contraction_dot import dot, run


def product(m: int, n: int, k: int, *, depth: int = 1, dtype: DType = dt.F32) -> Instruction:
    """depth: lhs's dimension that is contracted."""
    lhs = Shape.array(dtype, (m, k) if depth else (k, m))
    rhs = Shape.array(dtype, (k, n))
    dims = {"lhs_contracting_dims": (depth,), "rhs_contracting_dims": (0,)}
    return dot(lhs, rhs, dtype, **dims)


@pytest.mark.parametrize("dtype", [dt.F32, dt.F64])
def test_rows_that_follow_each_other_are_fetched(dtype: DType) -> None:
    instruction = product(1024, 250, 1024, dtype=dtype)
    assert fetches(contraction_kernels(instruction, Target(NAMED["x86-64-v4"])))
    assert not fetches(contraction_kernels(instruction, Target(NAMED["armv8-a"])))


@pytest.mark.parametrize(("sizes", "depth"), [
    ((480, 250, 1000), 0),  # depth runs over rows of memory
    ((1024, 100, 4096), 1),  # blocks of depth leave holes between rows
    ((64, 64, 64), 1),  # read where they lie
])  # fmt: skip
def test_others_are_not(sizes: tuple[int, int, int], depth: int) -> None:
    instruction = product(*sizes, depth=depth)
    assert not fetches(contraction_kernels(instruction, Target(NAMED["x86-64-v4"])))


@pytest.mark.parametrize("machine", ["x86-64-v4", "x86-64-v3"])
@pytest.mark.parametrize(("sizes", "asks"), [
    ((8192, 64, 256), True),
    ((8192, 16, 96), True),  # two lines at each depth: a tile of one vector has many rows
    ((8192, 64, 48), False),  # what the second cache holds
])  # fmt: skip
def test_rows_in_place_are_fetched_from_far(
    sizes: tuple[int, int, int], machine: str, *, asks: bool
) -> None:
    kernels = contraction_kernels(product(*sizes), Target(NAMED[machine]))
    assert bool(fetches(kernels)) == asks


def test_what_is_fetched_ahead_is_not_waited_for() -> None:
    """It counts beside what tiles compute."""
    (call,) = contraction_kernels(product(8192, 64, 256), Target(NAMED["x86-64-v4"])).calls
    assert call.kernel.work is not None
    assert call.kernel.work.streamed >= 8192 * 256 * 4 > call.kernel.work.moved


def test_panels_of_a_factor_that_comes_from_far_are_fetched() -> None:
    """Those of columns, while earlier ones of the same rows of memory are copied."""
    near, far = (product(64, n, 768) for n in (600, 700))  # about 2 MiB
    assert fetches(contraction_kernels(far, Target(NAMED["x86-64-v4"])))
    assert not fetches(contraction_kernels(near, Target(NAMED["x86-64-v4"])))
    assert not fetches(contraction_kernels(far, Target(NAMED["armv8-a"])))


@pytest.mark.parametrize("level", levels())
def test_products_are_what_they_were(level: str) -> None:
    for sizes in ((300, 257, 512), (129, 300, 1024), (33, 777, 777), (8195, 17, 96)):
        run(product(*sizes), 1, level)


def test_nothing_is_read_behind_the_last_row() -> None:
    """A hint is no access."""
    instruction = product(512, 256, 512)
    compiled = Compiled(contraction_kernels(instruction, target_of()))
    lhs, rhs = (np.ones(o.shape.dims, np.float32) for o in instruction.operands)
    got = compiled([lhs, rhs], np.zeros(instruction.shape.dims, np.float32))
    assert (got == 512).all()


@pytest.mark.parametrize(("n", "k", "asks"), [
    (800, 200, True),
    (30, 200, False),  # stay in the first cache
    (800, 1000, False),  # long enough for the processor to see where they go
])  # fmt: skip
def test_short_rows_by_a_vector_are_asked_for(n: int, k: int, *, asks: bool) -> None:
    matrix, vector = Shape.array(dt.F32, (n, k)), Shape.array(dt.F32, (k,))
    dims = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
    instruction = dot(matrix, vector, dt.F32, **dims)
    target = Target(NAMED["x86-64-v4"])
    assert bool(fetches(contraction_kernels(instruction, target))) == asks


def test_few_units_of_a_vectors_product_are_shared_out_evenly() -> None:
    """640,000 bytes are nine times what is worth a unit."""
    matrix, vector = Shape.array(dt.F32, (800, 200)), Shape.array(dt.F32, (200,))
    dims = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
    made = contraction_kernels(dot(matrix, vector, dt.F32, **dims), Target(NAMED["x86-64-v4"]))
    assert made.calls[-1].kernel.units == 8
