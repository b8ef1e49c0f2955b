"""select-and-scatter compiled: equal to the reference for windows of every form."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.backend.kernels.scatter.select_scatter import select_and_scatter_kernel
from hlo.backend.linking.toolchain import host_target
from hlo.ir.module import Module
from hlo.tools.cases.inputs import made_up_inputs

# (type, x, source, window, select's direction, scatter's opcode)
CASES = (
    ("f32", "6", "3", "size=3 stride=2 pad=0_1", "GE", "add"),
    ("f32", "4", "5", "size=2 pad=1_1", "GT", "add"),
    ("f32", "2,8,6,19", "2,4,3,19", "size=1x2x2x1 stride=1x2x2x1", "GE", "add"),
    ("f32", "2,7,6,33", "2,4,4,33", "size=1x3x3x1 stride=1x2x2x1 pad=0_0x1_1x1_2x0_0", "GE", "add"),
    ("f32", "2,3,9,7", "2,3,4,3", "size=1x1x3x3 stride=1x1x2x2", "GE", "add"),
    ("f32", "3,9,5", "3,3,5", "size=1x3x1 stride=1x2x1 rhs_dilate=1x2x1 pad=0_0x0_1x0_0", "LT",
     "add"),
    ("f64", "5,4,3", "5,4,3", "size=1x1x1", "GE", "add"),
    ("f64", "8,4", "3,4", "size=2x1 stride=3x1 pad=1_-1x0_0", "GE", "maximum"),
    ("f32", "7,4", "3,2", "size=3x3 stride=2x1", "GE", "multiply"),
    ("bf16", "1,8,8,20", "1,4,4,20", "size=1x2x2x1 stride=1x2x2x1", "GE", "add"),
    ("s32", "4,10,9", "4,5,9", "size=1x2x1 stride=1x2x1", "GE", "add"),
    ("u8", "6,6", "3,2", "size=2x3 stride=2x3", "LE", "add"),
    ("f32", "3,1", "5,1", "size=1x1 stride=1x1 pad=1_1x0_0", "GE", "add"),
    ("f32", "0,4", "0,2", "size=1x2 stride=1x2", "GE", "add"),
)  # fmt: skip


def _module(case: tuple[str, ...]) -> Module:
    kind, x, source, window, direction, opcode = case
    return driver.parse(f"""HloModule m
better {{ a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT r = pred[] compare(a, b), direction={direction} }}
into {{ a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT r = {kind}[] {opcode}(a, b) }}
ENTRY e {{ x = {kind}[{x}] parameter(0)
  s = {kind}[{source}] parameter(1)
  i = {kind}[] parameter(2)
  ROOT r = {kind}[{x}] select-and-scatter(x, s, i),
    window={{{window}}}, select=better, scatter=into }}""")


@pytest.mark.parametrize("kind", ["ints", "normal", "special"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}[{c[1]}] {c[3]}")
def test_select_and_scatter_is_the_references(case: tuple[str, ...], kind: str) -> None:
    module = _module(case)
    (root,) = (i for i in module.entry.instructions if i.is_root)
    assert select_and_scatter_kernel(root, host_target()) is not None
    arguments = made_up_inputs(module, kind, 3)
    expected = np.asarray(driver.evaluate(module, *arguments))
    found = np.asarray(driver.compile(module, threads=2, cache=False)(*arguments))
    tolerance = 3e-2 if case[0] == "bf16" else 1e-6
    with np.errstate(all="ignore"):
        wide = (expected.astype(np.float64), found.astype(np.float64))
        np.testing.assert_allclose(wide[1], wide[0], rtol=tolerance, atol=tolerance)


def test_units_are_independent_and_never_out_of_bounds() -> None:
    case = ("f32", "2,3,9,7", "2,3,5,4", "size=1x1x3x3 stride=1x1x2x2 pad=0_0x0_0x1_1x1_1")
    module = _module((*case, "GE", "add"))
    arguments = made_up_inputs(module, "normal", 5)
    executable = driver.compile(module, cache=False)
    once = np.asarray(executable(*arguments))
    np.testing.assert_array_equal(np.asarray(executable.run_guarded(*arguments)), once)
    kernel = select_and_scatter_kernel(module.entry.root, host_target())
    assert kernel is not None
    assert kernel.units == 6
