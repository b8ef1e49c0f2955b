"""window-separation: windows of windows hold the terms of the window, in any mix of attributes."""

import numpy as np
import pytest

import hlo
from hlo.ir.graph import clone_module
from hlo.passes.reduction import window_separation as subject
from hlo.passes.reduction.window_separation import window_separation
from hlo.tools.cases.inputs import made_up_inputs

CASES = {  # type, operand, result, window, how often it is parted
    "square": ("3,19,20,2", "3,19,20,2", "size=1x5x5x1 pad=0_0x2_2x2_2x0_0", 1),
    "strided": ("2,30,29", "2,9,12", "size=1x5x6 stride=1x3x2 pad=0_0x1_0x0_0", 1),
    "dilated": ("2,30,29", "2,22,15", "size=1x5x8 rhs_dilate=1x2x2", 1),
    "cropped": ("2,30,29", "2,22,19", "size=1x5x5 pad=0_0x-2_-2x-3_-3", 1),
    "long": ("4,80", "4,31", "size=1x50", 1),
    "long, strided": ("4,80", "4,16", "size=1x40 stride=1x3 pad=0_0x2_3", 1),
    "long, dilated": ("4,150", "4,58", "size=1x42 rhs_dilate=1x2 pad=0_0x-5_-5", 1),
    "three dimensions": ("9,12,13", "5,8,9", "size=5x5x5", 2),
    "longer than some": ("1,40", "1,51", "size=1x36 pad=0_0x23_23", 1),
}
REDUCERS = {"add": "0", "maximum": "-inf"}


def text(name: str, opcode: str) -> str:
    x, out, window, _ = CASES[name]
    return (
        f"HloModule m\nf {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
        f"  ROOT c = f32[] {opcode}(a, b)\n}}\nENTRY e {{\n  x = f32[{x}] parameter(0)\n"
        f"  z = f32[] constant({REDUCERS[opcode]})\n"
        f"  ROOT r = f32[{out}] reduce-window(x, z), window={{{window}}}, to_apply=f\n}}\n"
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("opcode", REDUCERS)
def test_the_terms_are_the_same(name: str, opcode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "LEAST_TERMS", 1)
    monkeypatch.setattr(subject, "BETWEEN", 0)
    module = hlo.parse(text(name, opcode))
    hlo.verify(module)
    parted = clone_module(module)
    assert window_separation(parted)
    hlo.verify(parted)
    for inputs in ("normal", "wild"):
        values = made_up_inputs(module, inputs, seed=2)
        with np.errstate(all="ignore"):
            expected, found = hlo.evaluate(module, *values), hlo.evaluate(parted, *values)
        if opcode == "maximum":
            np.testing.assert_array_equal(found, expected)
        elif inputs == "normal":
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        compiled = hlo.compile(parted, cache=False).run_guarded(*values)
        np.testing.assert_allclose(compiled, found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("size", "idempotent", "found"), [
    (50, False, (5, 10, 5)), (13, True, (4, 4, 3)), (13, False, None), (9, True, (3, 3, 3)),
])  # fmt: skip
def test_parts_overlap_only_where_terms_may_be_taken_twice(
    size: int, *, idempotent: bool, found: tuple[int, int, int] | None
) -> None:
    module = hlo.parse(text("long", "maximum" if idempotent else "add"))
    reducer = subject.reducer_of(module.entry.root)
    assert subject._lengths(size, reducer) == found
