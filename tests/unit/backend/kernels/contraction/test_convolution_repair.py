"""Infinite kernels beside padding: zeros that stand for nothing are not multiplied."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.ir.definitions import symbol
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.convolutions.form import Form
from hlo.backend.kernels.contraction.convolutions.repair import repair_kernel
from hlo.backend.kernels.contraction.convolutions.resum import resum_function
from tests.support.by_threads import for_threads
from tests.support.command import call
from tests.support.contraction_harness import Compiled, target_of

PROGRAMS = {
    "channels last": ("f32[2,5,7,3]", "f32[3,3,3,4]", "f32[2,5,7,4]",
                      "size=3x3 pad=1_1x1_1", "b01f_01io->b01f", ""),
    "channels first": ("f32[2,3,5,7]", "f32[4,3,3,3]", "f32[2,4,5,7]",
                       "size=3x3 pad=2_0x0_2", "bf01_oi01->bf01", ""),
    "holes": ("f64[1,4,2]", "f64[3,2,5]", "f64[1,8,5]",
              "size=3 pad=2_1 lhs_dilate=2", "b0f_0io->b0f", ""),
    "groups, strides, reversed": ("f32[2,9,4]", "f32[3,2,6]", "f32[2,5,6]",
                                  "size=3 stride=2 pad=1_1 rhs_reversal=1", "b0f_0io->b0f",
                                  ", feature_group_count=2"),
    "batch groups": ("f32[4,6,3]", "f32[2,3,4]", "f32[2,7,4]",
                     "size=2 pad=1_1", "b0f_0io->b0f", ", batch_group_count=2"),
    "features outermost": ("bf16[3,6,2]", "bf16[3,3,4]", "bf16[4,2,6]",
                           "size=3 pad=1_1 rhs_dilate=1", "f0b_i0o->fb0", ""),
    "channels first, squares of the kernel packed": (
        "f32[1,5,6,7]", "f32[19,5,3,3]", "f32[1,19,6,7]",
        "size=3x3 pad=1_1x1_1", "bf01_oi01->bf01", ""),
    "images side by side": ("f32[5,4,3,2]", "f32[3,3,2,17]", "f32[5,4,3,17]",
                            "size=3x3 pad=1_1x1_1", "b01f_01io->b01f", ""),
    "few positions of a large kernel": ("f32[1,2,2,64]", "f32[3,3,64,128]", "f32[1,2,2,128]",
                                        "size=3x3 pad=1_1x1_1", "b01f_01io->b01f", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_padding_meets_no_infinity(name: str) -> None:
    lhs, rhs, out, window, labels, more = PROGRAMS[name]
    module = hlo.parse(
        f"HloModule m\nENTRY e {{\n  a = {lhs} parameter(0)\n  b = {rhs} parameter(1)\n"
        f"  ROOT r = {out} convolution(a, b), window={{{window}}}, dim_labels={labels}{more}\n}}"
    )
    rng = np.random.default_rng(4)
    x, k = (rng.uniform(1, 2, p.shape.dims).astype(p.shape.dtype.numpy)
            for p in module.entry.parameters)  # fmt: skip
    flat = k.reshape(-1)
    flat[:: 1 + flat.size // 3] = [np.inf, -np.inf, np.nan][: len(flat[:: 1 + flat.size // 3])]
    expected = np.asarray(hlo.evaluate(module, x, k)).astype(np.float64)
    for threads in (1, 3):
        found = for_threads(module, threads=threads)(x, k)
        actual = np.asarray(found).astype(np.float64)
        assert np.isinf(expected).any()
        assert not np.isnan(expected).all()
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(actual[~finite], expected[~finite])
        np.testing.assert_allclose(actual[finite], expected[finite], rtol=1e-2)


WORK = """HloModule m
ENTRY e {{
  a = f32[2,{base},{base},3] parameter(0)
  b = f32[{window},{window},3,9] parameter(1)
  ROOT r = f32[2,{base},{base},9] convolution(a, b), dim_labels=b01f_01io->b01f,
    window={{size={window}x{window} pad={pad}x{pad}}}
}}"""


@pytest.mark.parametrize(
    ("base", "window", "pad"),
    [(6, 3, "1_1"), (2, 5, "4_0")],  # the second one walks the base
)
@pytest.mark.parametrize("other", [None, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("side", [0, 1])
def test_nothing_is_summed_again_where_only_numbers_met_zeros(
    base: int, window: int, pad: str, side: int, other: float | None
) -> None:
    """A NaN that was put where the sum is a number is still there: no work was done on it."""
    text = WORK.format(base=base, window=window, pad=pad)
    sequence = contraction_kernels(hlo.parse(text).entry.root, target_of())
    repair = replace(sequence, calls=sequence.calls[-2:])
    rng = np.random.default_rng(0)
    shapes = (2, base, base, 3), (window, window, 3, 9)
    factors = [rng.uniform(1, 2, shape).astype(np.float32) for shape in shapes]
    if other is not None:
        factors[side].reshape(-1)[-1] = other
    result = np.ones((2, base, base, 9), np.float32)
    result[0, 0, 0, 0] = result[0, 0, -1, 2] = np.nan  # the other image has what is not finite
    Compiled(repair)(factors, result)
    met_zeros = other is not None and side == (0 if window > base else 1)
    assert np.isnan(result).sum() == (0 if met_zeros else 2)


@pytest.mark.parametrize(("pad", "left"), [(2, 1), (3, 0)])  # (3, 0): a window of padding alone
def test_nothing_is_summed_again_where_all_of_the_kernel_is_nan(pad: int, left: int) -> None:
    size = 6 + 2 * pad - 2
    text = f"""HloModule m
ENTRY e {{
  a = f32[1,6,1] parameter(0)
  b = f32[3,1,9] parameter(1)
  ROOT r = f32[1,{size},9] convolution(a, b), window={{size=3 pad={pad}_{pad}}},
    dim_labels=b0f_0io->b0f
}}"""
    sequence = contraction_kernels(hlo.parse(text).entry.root, target_of())
    factors = [np.ones((1, 6, 1), np.float32), np.full((3, 1, 9), np.nan, np.float32)]
    result = np.zeros((1, size, 9), np.float32)
    result[0, 0, 0] = np.nan
    Compiled(replace(sequence, calls=sequence.calls[-2:]))(factors, result)
    assert np.isnan(result).sum() == left
    whole = np.asarray(hlo.compile(hlo.parse(text), cache=False)(*factors))
    np.testing.assert_array_equal(whole, np.asarray(hlo.evaluate(hlo.parse(text), *factors)))


def test_llvm_takes_its_time_only_for_the_stores_of_the_product() -> None:
    """What a look and a repair are made of hardly runs, and the product's tiles are assembly."""
    text = WORK.format(base=6, window=3, pad="1_1")
    sequence = contraction_kernels(hlo.parse(text).entry.root, target_of("avx512"))
    product, *rare = (call.kernel for call in sequence.calls[-3:])
    assert product.is_glue
    assert product.functions
    assert not any(f.is_glue for f in product.functions)
    rare += [f for kernel in rare for f in kernel.functions]
    assert len(rare) > 2
    assert all(kernel.is_glue for kernel in rare)


NETWORK = """HloModule m
ENTRY e {
  a = f32[64,14,14,32] parameter(0)
  b = f32[3,3,32,32] parameter(1)
  c = f32[3,3,32,32] parameter(2)
  first = f32[64,14,14,32] convolution(a, b), window={size=3x3 pad=1_1x1_1},
    dim_labels=b01f_01io->b01f
  between = f32[64,14,14,32] tanh(first)
  second = f32[64,14,14,32] convolution(between, c), window={size=3x3 pad=1_1x1_1},
    dim_labels=b01f_01io->b01f
  ROOT r = f32[64,14,14,32] abs(second)
}"""


@pytest.mark.parametrize("planted", [None, np.inf, np.nan])
def test_blocks_of_a_network_are_repaired_each(planted: float | None) -> None:
    module = hlo.parse(NETWORK)
    fused = hlo.optimize(module, "default").entry.root
    assert fused.opcode == "fusion", "the network goes block by block"
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.entry.parameters]
    if planted is not None:
        arrays[2][2, 2, 1, :7] = planted
    expected = np.asarray(hlo.evaluate(module, *arrays))
    assert np.isfinite(expected).any()
    found = np.asarray(hlo.compile(module, cache=False, threads=2)(*arrays))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("size", "kernels", "held_back"),
    [(32, ["padded", "product", "look", "repair"], [3]),  # a small kernel is looked at first
     (6, ["padded", "told", "product", "look", "repair"], [3, 4])],
)  # fmt: skip
def test_what_is_done_beside_the_product_waits_for_a_sign(
    size: int, kernels: list[str], held_back: list[int]
) -> None:
    text = f"""HloModule m
ENTRY e {{
  a = f32[2,{size},{size},16] parameter(0)
  b = f32[3,3,16,16] parameter(1)
  ROOT r = f32[2,{size},{size},16] convolution(a, b), window={{size=3x3 pad=1_1x1_1}},
    dim_labels=b01f_01io->b01f
}}"""
    calls = contraction_kernels(hlo.parse(text).entry.root, target_of()).calls
    assert len(calls) == len(kernels)
    assert [n for n, call in enumerate(calls) if call.when is not None] == held_back
    program = str(Compilation(hlo.parse(text), threads=1, passes="").program)
    assert program.count("conditional") == len(held_back)


@pytest.mark.parametrize("number", ["1", "inf", "nan"])
def test_kernels_that_are_known_to_be_finite_need_no_look(number: str, tmp_path: Path) -> None:
    """Weights that the module holds: zeros beside the base meet them alone."""
    taps = ", ".join(["{{" + number + ", 2}}"] + ["{{1, 3}}"] * 2)
    file = tmp_path / "m.hlo"
    file.write_text(
        "HloModule m\nENTRY e {\n  x = f32[2,9,1] parameter(0)\n"
        f"  w = f32[3,1,2] constant({{ {taps} }})\n"
        "  ROOT r = f32[2,9,2] convolution(x, w), window={size=3 pad=1_1},"
        " dim_labels=b0f_0io->b0f\n}\n"
    )
    shown = call("hlo-opt", str(file), "--emit=loops").out
    assert ("repair" in shown) == (number != "1")
    module = hlo.parse(file.read_text())
    x = np.ones((2, 9, 1), np.float32)
    x[0, 3, 0] = np.inf
    np.testing.assert_array_equal(hlo.compile(module, cache=False)(x), hlo.evaluate(module, x))


PHASES = """
HloModule m
ENTRY e {
  x = f32[2,6,7,3] parameter(0)
  w = f32[2,2,3,5] parameter(1)
  a = f32[2,6,7,5] convolution(x, w), window={size=2x2 pad=1_0x1_0}, dim_labels=b01f_01io->b01f
  b = f32[2,6,7,5] convolution(x, w), window={size=2x2 pad=0_1x1_0}, dim_labels=b01f_01io->b01f
  c = f32[2,6,7,5] convolution(x, w), window={size=2x2 pad=0_1x0_1}, dim_labels=b01f_01io->b01f
  ROOT r = (f32[2,6,7,5], f32[2,6,7,5], f32[2,6,7,5]) tuple(a, b, c)
}
"""


def test_convolutions_that_differ_in_padding_alone_share_a_function() -> None:
    module = hlo.parse(PHASES)
    root = module.entry.root
    dilated = PHASES.replace("size=2x2 pad=1_0x1_0", "size=2x2 pad=1_0x1_1 rhs_dilate=1x2")
    forms = [Form.of(convolution, target_of("avx2")) for convolution in root.operands]
    assert len({resum_function(form).text for form in forms}) == 1
    other = Form.of(hlo.parse(dilated).entry.root.operands[0], target_of("avx2"))
    assert resum_function(other).text != resum_function(forms[0]).text
    rng = np.random.default_rng(3)
    x, w = (rng.integers(1, 4, p.shape.dims).astype("f4") for p in module.entry.parameters)
    w[0, 0, 0, 1], w[1, 1, 2, 3], w[0, 1, 1, 4] = np.inf, -np.inf, np.nan
    for found, wanted in zip(
        hlo.compile(module, cache=False)(x, w), hlo.evaluate(module, x, w), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("images", "features", "calls"), [(1, 17, 2), (2, 17, 2), (8, 4, 2), (9, 4, 3)]
)
def test_what_waits_for_no_other_chunk_is_summed_in_few_places(
    images: int, features: int, calls: int
) -> None:
    """Images that fill what goes side by side wait for nothing behind their position."""
    module = hlo.parse(
        f"HloModule m\nENTRY e {{\n  a = f32[{images},4,3] parameter(0)\n"
        f"  b = f32[3,3,{features}] parameter(1)\n"
        f"  ROOT r = f32[{images},4,{features}] convolution(a, b), "
        "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f\n}"
    )
    form = Form.of(module.entry.root, target_of())
    assert form.is_uniform is (calls == 2)
    assert repair_kernel(form).text.count(symbol(resum_function(form))) == calls
