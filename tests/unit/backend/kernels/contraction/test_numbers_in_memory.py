"""Which tiles multiply by numbers that lie in memory, and that they are right."""

from __future__ import annotations

import pytest

from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import NAMED
from tests.support.contraction_harness import levels
from tests.unit.backend.kernels.contraction.test_contraction_dot import dot, run


def product(lhs: DType, rhs: DType, out: DType, m: int, n: int, k: int) -> Instruction:
    shapes = Shape.array(lhs, (m, k)), Shape.array(rhs, (k, n))
    return dot(*shapes, out, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))


def takes_numbers(instruction: Instruction, machine: str) -> bool:
    sequence = contraction_kernels(instruction, Target(NAMED[machine], mode="fast"))
    return "{1to" in sequence.calls[-1].kernel.text


@pytest.mark.parametrize(("lhs", "rhs", "out", "n"), [
    (dt.F32, dt.F32, dt.F32, 16), (dt.F64, dt.F64, dt.F64, 8), (dt.BF16, dt.BF16, dt.F32, 16),
    (dt.S16, dt.S16, dt.S32, 16), (dt.S8, dt.U8, dt.S32, 16),
])  # fmt: skip
def test_tiles_of_one_vector_take_numbers_from_memory(
    lhs: DType, rhs: DType, out: DType, n: int
) -> None:
    assert takes_numbers(product(lhs, rhs, out, 256, n, 256), "znver4")


def test_others_load_them() -> None:
    assert not takes_numbers(product(dt.F32, dt.F32, dt.F32, 256, 32, 256), "znver4")
    assert not takes_numbers(product(dt.F32, dt.F32, dt.F32, 256, 8, 256), "x86-64-v3")
    # VPDPBUSD takes the signed factor from memory alone.
    assert not takes_numbers(product(dt.U8, dt.S8, dt.S32, 256, 16, 256), "znver4")


@pytest.mark.parametrize("level", levels())
def test_sums_are_right(level: str) -> None:
    for m, n, k in ((101, 101, 101), (50, 16, 300), (7, 13, 1000), (64, 9, 33)):
        for dtype in (dt.F32, dt.F64):
            run(product(dtype, dtype, dtype, m, n, k), 1, level)
    for lhs, rhs in ((dt.S8, dt.U8), (dt.U8, dt.S8), (dt.S16, dt.S16)):
        run(product(lhs, rhs, dt.S32, 61, 16, 131), 1, level)
    run(product(dt.BF16, dt.BF16, dt.F32, 61, 16, 131), 1, level)
