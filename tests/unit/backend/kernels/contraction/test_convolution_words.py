"""Padded convolutions of narrow types: copies between zeros hold what word instructions take."""

import ml_dtypes
import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.machine import NAMED
from tests.support.contraction_harness import Compiled, levels, target_of
from tests.support.covering import covering

BF16 = ml_dtypes.bfloat16
INTEGERS = [("s8", "s8", "s32"), ("u8", "s8", "s32"), ("s8", "u8", "u32"), ("u8", "u8", "s32"),
            ("s4", "s8", "s32"), ("s8", "u4", "s8"), ("s16", "s8", "s32")]  # fmt: skip
LAST, FIRST = "dim_labels=b01f_01io->b01f", "dim_labels=bf01_oi01->bf01"
WINDOWS = {  # lhs, rhs, result, the window; channels last unless more is said
    "same": ("2,9,11,32", "3,3,32,24", "2,9,11,24", "size=3x3 pad=1_1x1_1"),
    "strided": ("1,12,13,18", "3,5,18,33", "1,6,5,33", "size=3x5 stride=2x3 pad=1_0x2_2"),
    "dilated": ("1,10,9,40", "3,2,40,17", "1,12,12,17", "size=3x2 pad=3_3x3_2 rhs_dilate=2x2"),
    "holes": ("1,5,6,24", "4,3,24,20", "1,10,12,20", "size=4x3 pad=2_2x1_2 lhs_dilate=2x2"),
    "reversed": ("2,7,13,24", "3,2,24,33", "2,7,13,33", "size=3x2 pad=1_1x0_1 rhs_reversal=1x1"),
    "inside": ("2,9,11,32", "3,3,32,24", "2,7,9,24", "size=3x3"),
    "planes": ("2,32,9,11", "24,32,3,3", "2,24,9,11", "size=3x3 pad=1_1x1_1", FIRST),
    "planes, inside": ("3,24,8,9", "20,24,3,2", "3,20,6,8", "size=3x2", FIRST),
    "planes, strided": (
        "1,20,12,13",
        "33,20,3,5",
        "1,33,6,5",
        "size=3x5 stride=2x3 pad=1_0x2_2",
        FIRST,
    ),
    "planes, holes": (
        "1,24,5,6",
        "20,24,4,3",
        "1,20,10,12",
        "size=4x3 pad=2_2x1_2 lhs_dilate=2x2 rhs_reversal=1x0",
        FIRST,
    ),
    "planes, groups": (
        "2,64,10,12",
        "24,32,3,3",
        "2,24,10,12",
        "size=3x3 pad=1_1x1_1",
        FIRST + ", feature_group_count=2",
    ),
    "planes, odd": ("1,27,9,20", "24,27,3,3", "1,24,9,20", "size=3x3 pad=1_1x1_1", FIRST),
    "planes, images innermost": (
        "20,7,8,24",
        "20,3,3,16",
        "16,7,8,24",
        "size=3x3 pad=1_1x1_1",
        "dim_labels=f01b_i01o->f01b",
    ),
}


def text(types: tuple[str, str, str], name: str) -> str:
    (left, right, out), (x, y, r, window, *rest) = types, WINDOWS[name]
    return (
        f"HloModule m\nENTRY e {{\n  x = {left}[{x}] parameter(0)\n  y = {right}[{y}] parameter(1)"
        f"\n  ROOT r = {out}[{r}] convolution(x, y), window={{{window}}}, "
        f"{rest[0] if rest else LAST}\n}}\n"
    )


@pytest.mark.parametrize(("level", "name", "types"), covering(levels(), WINDOWS, INTEGERS))
def test_integers_wrap(types: tuple[str, str, str], name: str, level: str) -> None:
    module = hlo.parse(text(types, name))
    rng = np.random.default_rng(0)
    values = []
    for parameter in module.entry.parameters:
        low, high = parameter.shape.dtype.int_range
        array = rng.integers(low, high + 1, parameter.shape.dims)
        array[:, 0], array[:, -1, -1] = low, high
        values.append(array.astype(parameter.shape.dtype.numpy))
    root = module.entry.root
    result = np.zeros(root.shape.dims, root.shape.dtype.numpy)
    Compiled(contraction_kernels(root, target_of(level)), level)(values, result, 3)
    np.testing.assert_array_equal(result, hlo.evaluate(module, *values))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("out", ["f32", "bf16"])
def test_bf16_within_the_bound_of_its_sums(name: str, out: str) -> None:
    module, wide = hlo.parse(text(("bf16", "bf16", out), name)), text(("f64",) * 3, name)
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(p.shape.dims).astype(BF16) for p in module.entry.parameters]
    exact, weight = (
        hlo.evaluate(hlo.parse(wide), *(f(v.astype(np.float64)) for v in values))
        for f in (np.positive, np.abs)
    )
    result = hlo.compile(module, cache=False).run_guarded(*values).astype(np.float64)
    unit = 2.0**-8 if out == "bf16" else 0.0
    assert (np.abs(result - exact) <= 2.0**-20 * weight + unit * np.abs(exact)).all()


@pytest.mark.parametrize("window", ["same", "planes"])
@pytest.mark.parametrize("side", [0, 1])
def test_subnormal_and_infinite_factors_beside_zeros(side: int, window: str) -> None:
    module = hlo.parse(text(("bf16", "bf16", "f32"), window))
    values = [np.ones(p.shape.dims, BF16) for p in module.entry.parameters]
    values[1 - side][:] = 1e30
    values[side][:] = 0
    values[side][-1, -1] = -1e-39
    run = hlo.compile(module, cache=False)
    np.testing.assert_allclose(run(*values), hlo.evaluate(module, *values), rtol=1e-6)
    values[1][0, 0, 2, 2] = np.inf
    values[0][0, 0, 0, 1] = np.nan
    np.testing.assert_allclose(run(*values), hlo.evaluate(module, *values), rtol=1e-6)


@pytest.mark.parametrize("place", [0, -1])
def test_subnormal_numbers_of_a_kernel_that_runs_backwards(place: int) -> None:
    """Its element 0 is the last one in memory; nothing is read behind that."""
    module = hlo.parse(text(("bf16", "bf16", "f32"), "reversed"))
    x, kernel = (np.zeros(p.shape.dims, BF16) for p in module.entry.parameters)
    x[:] = 1e30
    kernel.reshape(-1)[place] = 1e-39
    expected = hlo.evaluate(module, x, kernel)
    assert np.abs(expected).max() > 0
    found = hlo.compile(module, cache=False).run_guarded(x, kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("name", "types", "instruction"), [
    ("x86-64-v3", ("s8", "s8", "s32"), "vpmaddwd"), ("znver4", ("s8", "s8", "s32"), "vpdpbusd"),
    ("znver4", ("u8", "s8", "s32"), "vpdpbusd"), ("znver4", ("bf16", "bf16", "bf16"), "vdpbf16ps"),
])  # fmt: skip
@pytest.mark.parametrize("window", ["same", "planes"])
def test_the_machines_instruction(
    name: str, types: tuple[str, str, str], instruction: str, window: str
) -> None:
    module = hlo.parse(text(types, window))
    assert instruction in driver.emit_stage(module, "asm", machine=NAMED[name])


@pytest.mark.parametrize(("window", "made"), [
    ("planes", 2 * 32 * 11 * 13), ("inside", 2 * 9 * 11 * 32), ("planes, groups", 2 * 64 * 12 * 14),
])  # fmt: skip
def test_each_element_is_in_one_word(window: str, made: int) -> None:
    """However many windows share it: of an array that is moved, as bytes of one sign have to be."""
    target = Target(NAMED["znver4"])
    sequence = contraction_kernels(hlo.parse(text(("s8", "s8", "s32"), window)).entry.root, target)
    assert made in sequence.temporaries


def test_pairs_of_what_is_no_quads() -> None:
    """Eighteen features: copies between zeros hold them as 16 bits."""
    asm = driver.emit_stage(hlo.parse(text(("s8", "s8", "s32"), "strided")), "asm",
                            machine=NAMED["znver4"])  # fmt: skip
    assert "vpdpwssd" in asm


def test_halves_stay_numbers() -> None:
    """No instruction multiplies pairs of them here: copies widen them once."""
    asm = driver.emit_stage(hlo.parse(text(("f16", "f16", "f32"), "same")), "asm",
                                machine=NAMED["znver4"])  # fmt: skip
    assert "vdpbf16ps" not in asm
    assert "vfmadd" in asm


GRADIENTS = {  # base, the result's gradient, the kernel's, the rest
    "same": ("2,9,12,24", "2,9,12,32", "3,3,24,32", "size=9x12 pad=1_1x1_1"),
    "strided": ("3,10,28,16", "3,5,14,32", "3,5,16,32", "size=5x14 pad=1_0x1_2 rhs_dilate=2x2"),
    "odd": ("2,9,13,24", "2,9,13,32", "3,3,24,32", "size=9x13 pad=1_1x1_1"),
}


def gradient(types: tuple[str, str, str], name: str) -> str:
    (left, right, out), (x, g, r, window) = types, GRADIENTS[name]
    return (
        f"HloModule m\nENTRY e {{\n  x = {left}[{x}] parameter(0)\n  g = {right}[{g}] parameter(1)"
        f"\n  ROOT r = {out}[{r}] convolution(x, g), window={{{window}}}, "
        "dim_labels=f01b_i01o->01bf\n}\n"
    )


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_kernels(name: str) -> None:
    """Words begin at every element of the base; those of an odd row would meet what no result
    has, so that there are none."""
    module, wide = hlo.parse(gradient(("bf16", "bf16", "f32"), name)), gradient(("f64",) * 3, name)
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(p.shape.dims).astype(BF16) for p in module.entry.parameters]
    values[0][0, 0, 0, 0] = 1e-39
    exact, weight = (
        hlo.evaluate(hlo.parse(wide), *(f(v.astype(np.float64)) for v in values))
        for f in (np.positive, np.abs)
    )
    result = hlo.compile(module, cache=False).run_guarded(*values).astype(np.float64)
    assert (np.abs(result - exact) <= 2.0**-20 * weight).all()
    values[0][-1, -1, -1] = np.inf
    found = hlo.compile(module, cache=False)(*values)
    expected = hlo.evaluate(module, *values)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    assert np.isfinite(expected).any()
    asm = driver.emit_stage(module, "asm", machine=NAMED["znver4"])
    assert ("vdpbf16ps" in asm) == (name != "odd")


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_integers_wrap(name: str, level: str) -> None:
    module = hlo.parse(gradient(("s8", "s8", "s32"), name))
    rng = np.random.default_rng(2)
    values = [rng.integers(-128, 128, p.shape.dims).astype(np.int8)
              for p in module.entry.parameters]  # fmt: skip
    root = module.entry.root
    result = np.zeros(root.shape.dims, np.int32)
    Compiled(contraction_kernels(root, target_of(level)), level)(values, result, 3)
    np.testing.assert_array_equal(result, hlo.evaluate(module, *values))
