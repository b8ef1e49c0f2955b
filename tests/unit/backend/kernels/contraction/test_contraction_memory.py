"""Memory of products and convolutions: blocks of the factors, never copies that dwarf them."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.driver import compile, evaluate
from hlo.parser.parse import parse


def test_a_window_much_larger_than_the_base_walks_the_base() -> None:
    text = """HloModule m
    ENTRY e { base = f32[16,8,3,3] parameter(0)
      kernel = f32[1,20,20,16] parameter(1)
      ROOT r = f32[1,22,22,8] convolution(base, kernel), window={size=20x20 pad=19_19x19_19},
        dim_labels=fb01_o01i->f01b }"""
    exe = compile(parse(text), threads=1, cache=False)
    numbers = np.random.default_rng(0)
    base = numbers.integers(-3, 4, (16, 8, 3, 3)).astype(np.float32)
    kernel = numbers.integers(-3, 4, (1, 20, 20, 16)).astype(np.float32)
    kernel[0, 0, 0, 0] = np.inf
    np.testing.assert_array_equal(exe(base, kernel), evaluate(parse(text), base, kernel))
    operands = base.nbytes + kernel.nbytes + exe.memory.result_bytes
    assert exe.temporary_bytes <= 4 * operands


@pytest.mark.parametrize("dims", ["reversed", "strided", "dilated"])
def test_walking_the_base_in_every_form(dims: str) -> None:
    window = {
        "reversed": "size=9 pad=8_8 rhs_reversal=1",
        "strided": "size=9 pad=7_8 stride=2",
        "dilated": "size=9 pad=10_12 lhs_dilate=2 rhs_dilate=3",
    }[dims]
    size = {"reversed": 12, "strided": 6, "dilated": 5}[dims]
    text = f"""HloModule m
    ENTRY e {{ base = s32[2,4,3] parameter(0)
      kernel = s32[9,3,5] parameter(1)
      ROOT r = s32[2,{size},5] convolution(base, kernel), window={{{window}}},
        dim_labels=b0f_0io->b0f }}"""
    numbers = np.random.default_rng(0)
    base, kernel = (numbers.integers(-9, 9, s).astype(np.int32) for s in ((2, 4, 3), (9, 3, 5)))
    exe = compile(parse(text), threads=1, cache=False)
    np.testing.assert_array_equal(
        exe.run_guarded(base, kernel), evaluate(parse(text), base, kernel)
    )


@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("m", "n", "k"), [(45, 70, 2177), (150, 130, 2500)])
def test_depths_in_blocks(form: str, m: int, n: int, k: int) -> None:
    lhs, rhs = ((k, m), (n, k))
    lhs = lhs if form[0] == "t" else lhs[::-1]
    rhs = rhs if form[1] == "t" else rhs[::-1]
    text = f"""HloModule m
    ENTRY e {{ x = f32[{lhs[0]},{lhs[1]}] parameter(0)
      y = f32[{rhs[0]},{rhs[1]}] parameter(1)
      ROOT r = f32[{m},{n}] dot(x, y), lhs_contracting_dims={{{int(form[0] == "n")}}},
        rhs_contracting_dims={{{int(form[1] == "t")}}} }}"""
    numbers = np.random.default_rng(0)
    x, y = (numbers.integers(-4, 5, s).astype(np.float32) for s in (lhs, rhs))
    expected = (x.T if form[0] == "t" else x) @ (y.T if form[1] == "t" else y)
    exe = compile(parse(text), threads=2, cache=False)
    np.testing.assert_array_equal(exe.run_guarded(x, y), expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_rows_in_columns_of_memory(dtype: str, threads: int) -> None:
    text = f"""HloModule m
    ENTRY e {{ x = {dtype}[2,1201,100] parameter(0)
      y = {dtype}[2,1201,150] parameter(1)
      ROOT r = {dtype}[2,100,150] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
        lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}} }}"""
    numbers = np.random.default_rng(0)
    scalar = np.float32 if dtype == "f32" else np.float64
    x, y = (numbers.integers(-4, 5, (2, 1201, n)).astype(scalar) for n in (100, 150))
    exe = compile(parse(text), threads=threads, cache=False)
    np.testing.assert_array_equal(exe.run_guarded(x, y), x.transpose(0, 2, 1) @ y)


def test_a_large_factor_is_not_copied_for_the_other_ones_rows() -> None:
    text = """HloModule m
    ENTRY e { x = f32[1500,256] parameter(0)
      y = f32[1500,6000] parameter(1)
      ROOT r = f32[256,6000] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0} }"""
    assert compile(parse(text), threads=1, cache=False).temporary_bytes < 4 << 20


def test_runs_of_features_in_blocks() -> None:
    text = """HloModule m
    ENTRY e { base = f32[1,9,9,600] parameter(0)
      kernel = f32[2,2,600,40] parameter(1)
      ROOT r = f32[1,9,9,40] convolution(base, kernel), window={size=2x2 pad=1_0x0_1},
        dim_labels=b01f_01io->b01f }"""
    numbers = np.random.default_rng(0)
    base = numbers.integers(-3, 4, (1, 9, 9, 600)).astype(np.float32)
    kernel = numbers.integers(-3, 4, (2, 2, 600, 40)).astype(np.float32)
    exe = compile(parse(text), threads=1, cache=False)
    np.testing.assert_array_equal(
        exe.run_guarded(base, kernel), evaluate(parse(text), base, kernel)
    )
    assert exe.temporary_bytes < 4 << 20


def test_scratch_grows_by_a_copy_of_one_factor_at_most() -> None:
    """What many blocks of columns would copy each is packed once (products/lhs_prepacking.py)."""

    def temporary(size: int) -> int:
        text = f"""HloModule m
        ENTRY e {{ x = f32[{size},{size}] parameter(0)
          y = f32[{size},{size}] parameter(1)
          ROOT r = f32[{size},{size}] dot(x, y), lhs_contracting_dims={{1}},
            rhs_contracting_dims={{0}} }}"""
        return compile(parse(text), threads=1, cache=False).temporary_bytes

    assert temporary(1024) < 6 << 20
    assert temporary(4096) < 1.1 * 4 * 4096**2


@pytest.mark.parametrize(("m", "n", "k"), [(45, 64, 70), (128, 128, 64), (30, 64, 2500)])
def test_what_is_added_gives_its_memory_to_the_sum(m: int, n: int, k: int) -> None:
    text = f"""HloModule m
    less {{ p = f32[] parameter(0)
      q = f32[] parameter(1)
      ROOT l = pred[] compare(p, q), direction=LT }}
    ENTRY e {{ x = f32[{m},{k}] parameter(0)
      y = f32[{k},{n}] parameter(1)
      z = f32[{m},{n}] parameter(2)
      s = f32[{m},{n}] sort(z), dimensions={{1}}, to_apply=less
      d = f32[{m},{n}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      r = f32[{m},{n}] subtract(d, s)
      ROOT t = f32[{m},{n}] sort(r), dimensions={{1}}, to_apply=less }}"""
    numbers = np.random.default_rng(0)
    shapes = ((m, k), (k, n), (m, n))
    x, y, z = (numbers.integers(-4, 5, s).astype(np.float32) for s in shapes)
    exe = compile(parse(text), threads=2, cache=False)
    np.testing.assert_array_equal(exe(x, y, z), np.sort(x @ y - np.sort(z), axis=1))
    assert exe.memory.peak_bytes < 2 * exe.memory.result_bytes
