"""Copies between zeros: long rows by calls, short ones and those with holes by vectors."""

import numpy as np
import pytest

import hlo
from hlo.backend.kernels.contraction.convolutions.convolution import PaddedDim
from hlo.backend.kernels.contraction.convolutions.padding import padding_kernel
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.contraction_harness import target_of
from tests.support.covering import covering

ROWS = {  # lhs, rhs, result, the window
    "both sides": ("2,7,9,40", "3,3,40,5", "2,7,9,5", "size=3x3 pad=1_1x1_1"),
    "cropped and filled": ("2,7,9,40", "3,3,40,5", "2,4,9,5", "size=3x3 pad=-2_1x-1_3"),
    "filled and cropped": ("2,7,9,40", "3,3,40,5", "2,6,8,5", "size=3x3 pad=3_-2x3_-2"),
    "no element reached": ("1,2,2,90", "2,5,90,3", "1,1,9,3", "size=2x5 pad=0_0x0_11"),
    "far outside": ("1,4,4,64", "2,2,64,3", "1,12,3,3", "size=2x2 pad=9_0x0_0"),
    "rows alone": ("3,5,6,70", "3,1,70,4", "3,5,6,4", "size=3x1 pad=1_1x0_0"),
}


@pytest.mark.parametrize(
    ("name", "dtype"), covering(ROWS, ["f32", "f64", "s32", "bf16", "s8", "c64"], strength=1)
)
def test_windows_see_zeros_beside_the_base(name: str, dtype: str) -> None:
    lhs, rhs, out, window = ROWS[name]
    module = hlo.parse(
        f"HloModule m\nENTRY e {{\n  x = {dtype}[{lhs}] parameter(0)\n"
        f"  w = {dtype}[{rhs}] parameter(1)\n  ROOT r = {dtype}[{out}] convolution(x, w), "
        f"window={{{window}}}, dim_labels=b01f_01io->b01f\n}}\n"
    )
    hlo.verify(module)
    values = made_up_inputs(module, "normal", seed=4)
    found = np.asarray(hlo.compile(module, cache=False).run_guarded(*values))
    wide = np.complex128 if dtype == "c64" else np.float64
    expected = np.asarray(hlo.evaluate(module, *values)).astype(wide)
    tolerance = 0.05 if dtype == "bf16" else 1e-4
    np.testing.assert_allclose(found.astype(wide), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("inner", "source", "result", "is_called"),
    [
        (PaddedDim(300, 298, 1), dt.F32, dt.F32, True),
        (PaddedDim(30, 28, 1), dt.F32, dt.F32, False),  # short
        (PaddedDim(300, 298, 1), dt.BF16, dt.F32, False),  # widened
        (PaddedDim(300, 150, 1, 2), dt.F32, dt.F32, False),  # with holes
    ],
)
def test_long_rows_are_calls(
    inner: PaddedDim, source: DType, result: DType, *, is_called: bool
) -> None:
    kernel = padding_kernel((PaddedDim(6, 4, 1), inner), source, result, target_of("avx512"))
    assert ("llvm.memcpy" in kernel.text) is is_called
    assert kernel.is_glue is is_called
