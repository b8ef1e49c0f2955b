"""Plain code: kernels for which LLVM's level of glue serves, and kernels of one unit."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.entry.kernel_modules import plain_code
from hlo.backend.entry.llvm_ir import emit
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.kernel import STRAIGHT_LINES, Kernel, is_straight

SCALAR = """HloModule m
ENTRY e {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  s = f32[] sine(x)
  ROOT r = f32[] add(s, y)
}
"""


def of_length(length: int) -> Compilation:
    body = f"x = f32[{length}] parameter(0) ROOT r = f32[{length}] negate(x)"
    text = f"HloModule m\nENTRY e {{ {body} }}"
    return Compilation(hlo.parse(text), threads=1, cache=False)


def only_kernel(made: Compilation) -> Kernel:
    (kernel,) = made.program.kernels
    return kernel


def test_a_few_lines_that_run_once_are_plain_code() -> None:
    assert [m.is_glue for m in of_length(16).ir] == [True]
    assert [m.is_glue for m in of_length(4096).ir] == [False], "it has a loop"


def test_code_for_files_is_not() -> None:
    assert [m.is_glue for m in emit(of_length(16).program, workers=1)] == [False]


def test_loops_functions_and_long_kernels_are_not() -> None:
    short = only_kernel(of_length(16))
    assert is_straight(short)
    assert not is_straight(only_kernel(of_length(4096)))
    function = Compilation(hlo.parse(SCALAR), threads=1, cache=False).program.kernels[0]
    assert function.length > STRAIGHT_LINES or function.globals
    assert not is_straight(function)
    assert plain_code({"k": short}, is_brief=False) == {}


@pytest.mark.parametrize("length", [1, 7, 16, 40, 1000])
def test_a_kernel_of_one_unit_does_not_look_at_its_range(length: int) -> None:
    made = of_length(length)
    kernel = only_kernel(made)
    assert kernel.units == 1
    assert not any(o.text == "%begin" for r in kernel.function.records for o in r.operands)
    x = np.arange(length, dtype=np.float32)
    np.testing.assert_array_equal(made.executable(x), -x)


def test_a_kernel_of_several_units_does() -> None:
    made = of_length(1 << 20)
    kernel = only_kernel(made)
    assert kernel.units > 1
    assert any(o.text == "%begin" for r in kernel.function.records for o in r.operands)
    assert symbol(kernel) in made.ir[0].symbols
