"""winograd: the same sums within its bound, for any sizes, pads and orders of the kernel."""

import numpy as np
import pytest

import hlo
from hlo.ir.graph import clone_module
from hlo.passes.contraction import winograd as tested
from hlo.passes.contraction.winograd import TRANSFORMS, Transform, winograd
from tests.support.covering import covering

EPSILON = 2.0**-24
CASES = {  # base, features, kernel's order, window beside its size, result's rows and columns
    "whole tiles": ((2, 8, 8), (5, 6), "01io", "pad=1_1x1_1", (8, 8)),
    "parts of tiles": ((1, 9, 7), (3, 4), "01io", "pad=1_1x1_1", (9, 7)),
    "no padding": ((2, 11, 6), (4, 3), "01io", "", (9, 4)),
    "uneven padding": ((1, 5, 6), (2, 3), "01io", "pad=0_4x3_0", (7, 7)),
    "cut off": ((1, 9, 9), (2, 3), "01io", "pad=-1_0x-2_-1", (6, 4)),
    "outputs first": ((1, 6, 7), (5, 3), "oi01", "pad=1_1x1_1", (6, 7)),
    "reversed": ((1, 6, 7), (5, 3), "io01", "pad=1_1x1_1 rhs_reversal=1x0", (6, 7)),
}


def written(name: str, dtype: str = "f32") -> str:
    base, (inputs, outputs), order, window, result = CASES[name]
    sizes = {"0": 3, "1": 3, "i": inputs, "o": outputs}
    kernel = ",".join(str(sizes[label]) for label in order)
    x = ",".join(map(str, (*base, inputs)))
    out = ",".join(map(str, (base[0], *result, outputs)))
    return (
        f"HloModule m\nENTRY e {{\n  x = {dtype}[{x}] parameter(0)\n"
        f"  w = {dtype}[{kernel}] parameter(1)\n  ROOT r = {dtype}[{out}] convolution(x, w),"
        f" window={{size=3x3 {window}}}, dim_labels=b01f_{order}->b01f\n}}\n"
    )


@pytest.mark.parametrize(("transform", "name"), covering(TRANSFORMS, CASES, strength=1))
def test_sums_within_the_bound(
    name: str, transform: Transform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tested, "_chosen", lambda layer: transform)
    module = hlo.parse(written(name))
    hlo.verify(module)
    rng = np.random.default_rng(3)
    x, w = (rng.uniform(-1, 1, p.shape.dims).astype(np.float32) for p in module.entry.parameters)
    exact = hlo.evaluate(hlo.parse(written(name, "f64")), x.astype("f8"), w.astype("f8"))
    rewritten = clone_module(module)
    assert winograd(rewritten)
    hlo.verify(rewritten)
    terms = 9 * x.shape[-1]
    for found in (
        hlo.evaluate(rewritten, x, w),
        hlo.compile(module, mode="fast", cache=False)(x, w),
    ):
        assert np.abs(found - exact).max() <= transform.growth * terms * EPSILON
        assert np.abs(found - exact).max() <= 64 * terms * EPSILON  # far below the bound


LARGE = """HloModule m
ENTRY e {
  x = f32[8,28,28,128] parameter(0)
  w = f32[3,3,128,128] parameter(1)
  ROOT r = f32[8,28,28,128] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}"""  # noqa: E501


def test_fast_mode_alone_and_where_it_takes_less() -> None:
    assert "dot(" in str(hlo.optimize(hlo.parse(LARGE), "fast"))
    assert "dot(" not in str(hlo.optimize(hlo.parse(LARGE), "default"))
    few = LARGE.replace("8,28,28", "1,4,4")
    assert "dot(" not in str(hlo.optimize(hlo.parse(few), "fast"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("size=3x3 ", "size=3x3 stride=2x2 "),
        ("size=3x3 pad=1_1x1_1", "size=3x3 rhs_dilate=2x2 pad=2_2x2_2"),
        ("f32[", "f64["),
        ("->b01f", "->b10f"),
    ],
)
def test_other_convolutions_stay(old: str, new: str) -> None:
    text = LARGE.replace(old, new)
    if "stride" in new:
        text = text.replace("ROOT r = f32[8,28,28,", "ROOT r = f32[8,14,14,")
    module = hlo.parse(text)
    hlo.verify(module)
    assert not winograd(module)
