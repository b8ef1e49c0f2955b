"""Short rows by short rows: dots where depth is long, tiles where rows are many for it."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import NAMED, named
from tests.support.covering import covering
from tests.support.machines_here import that_run_here
from tests.unit.backend.kernels.contraction.test_contraction_dot import dot

ALONG = {
    "lhs_batch_dims": (0,), "rhs_batch_dims": (0,),
    "lhs_contracting_dims": (2,), "rhs_contracting_dims": (2,),
}  # fmt: skip
TEXT = """HloModule m
ENTRY e {{
  x = {dtype}[{b},{m},{k}] parameter(0)
  y = {dtype}[{b},{n},{k}] parameter(1)
  ROOT r = {dtype}[{b},{m},{n}] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
}}
"""


def short(m: int, n: int, k: int, dtype: DType, out: DType) -> Instruction:
    return dot(Shape.array(dtype, (30, m, k)), Shape.array(dtype, (30, n, k)), out, **ALONG)


@pytest.mark.parametrize(("machine", "dtype", "out", "sizes", "is_dots"), [
    ("x86-64-v4", dt.F32, dt.F32, (4, 64, 16), False),
    ("x86-64-v4", dt.F32, dt.F32, (3, 64, 16), True),
    ("x86-64-v4", dt.F32, dt.F32, (16, 64, 32), False),
    ("x86-64-v4", dt.F32, dt.F32, (16, 64, 64), True),
    ("x86-64-v4", dt.F32, dt.F32, (16, 50_000, 16), True),  # the columns come from memory
    ("x86-64-v4", dt.F16, dt.F16, (3, 64, 16), False),  # each is converted for each row
    ("x86-64-v3", dt.F32, dt.F32, (8, 64, 32), False),  # few registers
    ("x86-64-v3", dt.F32, dt.F32, (3, 64, 8), True),
    ("x86-64-v3", dt.F32, dt.F32, (8, 64, 64), True),
])  # fmt: skip
def test_which_are_dots(
    machine: str, dtype: DType, out: DType, sizes: tuple[int, int, int], *, is_dots: bool
) -> None:
    made = contraction_kernels(short(*sizes, dtype, out), Target(NAMED[machine]))
    assert made.sums is not None
    assert (made.sums.plan == "dots") is is_dots


@pytest.mark.parametrize(
    ("dtype", "m", "n", "k", "machine"),
    covering(
        ["f32", "f64"],
        [3, 5, 9, 16],
        [8, 33, 64],
        [8, 13, 16, 31],
        that_run_here("x86-64-v2", "x86-64-v3", "x86-64-v4"),
    ),
)
def test_sums_are_exact(dtype: str, m: int, n: int, k: int, machine: str) -> None:
    """Of integers, so that the order of additions is none of its business."""
    numbers = np.random.default_rng(0)
    scalar = np.float32 if dtype == "f32" else np.float64
    x, y = (numbers.integers(-4, 5, (7, rows, k)).astype(scalar) for rows in (m, n))
    text = TEXT.format(dtype=dtype, b=7, m=m, n=n, k=k)
    for threads in (1, 3):
        exe = hlo.compile(hlo.parse(text), threads=threads, cache=False, machine=named(machine))
        np.testing.assert_array_equal(exe.run_guarded(x, y), x @ y.transpose(0, 2, 1))
