"""convolution-of-holes: every output is the same sum, in any mix of dilations, pads and orders."""

import numpy as np
import pytest

import hlo
from hlo.ir.graph import clone_module
from hlo.passes.algsimp import algsimp
from hlo.passes.patterns import convolution
from hlo.tools.inputs import made_up_inputs

CASES = {  # lhs, rhs, result, window
    "two-dims": ("2,4,3,3", "3,4,3,2", "2,8,6,2", "size=3x4 pad=2_1x1_3 lhs_dilate=2x2"),
    "unequal": ("1,5,2,3", "3,2,3,2", "1,13,2,2", "size=3x2 pad=2_0x0_1 lhs_dilate=3x1"),
    "cropped": ("1,5,6,2", "2,3,2,3", "1,5,7,3", "size=2x3 pad=-2_-1x1_-3 lhs_dilate=2x2"),
    "fewer taps": ("1,5,2,3", "2,2,3,2", "1,14,2,2", "size=2x2 pad=1_1x0_1 lhs_dilate=3x1"),
    "one tap": ("2,4,3,3", "1,1,3,2", "2,7,6,2", "size=1x1 pad=0_0x0_1 lhs_dilate=2x2"),
    "strided": ("1,4,5,2", "2,3,2,3", "1,7,2,3", "size=2x3 stride=1x2 pad=1_0x0_0 lhs_dilate=2x1"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("inputs", ["normal", "wild"])
def test_places_between_holes_have_the_same_sums(
    name: str, inputs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "LEAST_DEPTH", 1)
    monkeypatch.setattr(convolution, "LEAST_PRODUCTS", 1)
    lhs, rhs, out, window = CASES[name]
    module = hlo.parse(
        f"HloModule m\nENTRY e {{\n  x = f32[{lhs}] parameter(0)\n  w = f32[{rhs}] parameter(1)\n"
        f"  ROOT r = f32[{out}] convolution(x, w), window={{{window}}},"
        " dim_labels=b01f_01io->b01f\n}\n"
    )
    hlo.verify(module)
    rewritten = clone_module(module)
    assert algsimp(rewritten, only="convolution-of-holes")
    hlo.verify(rewritten)
    assert all(
        d.base_dilation == 1
        for i in rewritten.entry.instructions
        if i.opcode == "convolution"
        for d in i["window"].dims
    )
    values = made_up_inputs(module, inputs, seed=3)
    with np.errstate(all="ignore"):
        expected, found = hlo.evaluate(module, *values), hlo.evaluate(rewritten, *values)
    assert np.array_equal(expected, found, equal_nan=True)


def test_what_the_rewrite_makes_is_simplified_in_the_same_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reshapes of reshapes lie below what it puts in the convolution's phase."""
    monkeypatch.setattr(convolution, "LEAST_DEPTH", 1)
    monkeypatch.setattr(convolution, "LEAST_PRODUCTS", 1)
    lhs, rhs, out, window = CASES["two-dims"]
    module = hlo.parse(
        f"HloModule m\nENTRY e {{\n  x = f32[{lhs}] parameter(0)\n  w = f32[{rhs}] parameter(1)\n"
        f"  ROOT r = f32[{out}] convolution(x, w), window={{{window}}},"
        " dim_labels=b01f_01io->b01f\n}\n"
    )
    assert algsimp(module)
    assert not algsimp(clone_module(module))
