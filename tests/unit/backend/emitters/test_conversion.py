"""Emitted conversions against the ops' own evaluate: all pairs of types, one rounding each."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from tests.support.emitted_op import run_emitted
from tests.support.hlo_values import mixed_values, same_values
from tests.support.lanes_jit import plain_target
from tests.unit.backend.emitters.test_elementwise import check, check_results

TYPES = dt.ARRAY_TYPES
FLOATS = [t for t in TYPES if t.is_float]


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_convert(source: DType) -> None:
    check_results("convert", [source], list(TYPES))


@pytest.mark.parametrize("source", [dt.F64, dt.F32, dt.S64, dt.U64], ids=str)
def test_convert_without_avx512(source: DType) -> None:
    targets = [dt.F16, dt.BF16, dt.F32, dt.F8E5M2, dt.S8, dt.U32, dt.S64]
    check_results("convert", [source], targets, lanes=8, target=plain_target())


def test_one_rounding_from_wide_types() -> None:
    """Values that two roundings, by way of f32, would send elsewhere."""
    x = np.array([2**40 + 2**32 + 1, -(2**40) - 2**32 - 1, 2**62 + 2**54 + 1], np.int64)
    got = run_emitted("convert", [x], [dt.S64], dt.BF16).astype(np.float64)
    assert got.tolist() == [2.0**40 + 2.0**33, -(2.0**40) - 2.0**33, 2.0**62 + 2.0**55]
    y = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8 + 2.0**-40, 1e40])
    half = run_emitted("convert", [y[:1]], [dt.F64], dt.F16).astype(np.float64)
    assert half.tolist() == [1.0009765625]
    brain = run_emitted("convert", [y[1:]], [dt.F64], dt.BF16).astype(np.float64)
    assert brain.tolist() == [1.0078125, np.inf]


def test_float_to_integer_saturates() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3.7, -3.7, 1e10, -1e10, 300, -1, -0.4], np.float32)
    wanted = {
        dt.S8: [0, 127, -128, 3, -3, 127, -128, 127, -1, 0],
        dt.U8: [0, 255, 0, 3, 0, 255, 0, 255, 0, 0],
        dt.S32: [0, 2**31 - 1, -(2**31), 3, -3, 2**31 - 1, -(2**31), 300, -1, 0],
        dt.U32: [0, 2**32 - 1, 0, 3, 0, 2**32 - 1, 0, 300, 0, 0],
        dt.U64: [0, 2**64 - 1, 0, 3, 0, 10**10, 0, 300, 0, 0],
    }
    for target, want in wanted.items():
        for lanes in (1, 16):
            assert run_emitted("convert", [x], [dt.F32], target, lanes=lanes).tolist() == want


@pytest.mark.parametrize("source", [t for t in TYPES if not t.is_pred], ids=str)
def test_bitcast_convert(source: DType) -> None:
    for target in TYPES:
        alike = target.bits == source.bits and target.is_complex == source.is_complex
        if alike and not target.is_pred:
            check("bitcast-convert", [source], target)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reduce_precision(dtype: DType) -> None:
    for exponent, mantissa in ((5, 10), (8, 7), (8, 0), (1, 0), (5, 2), (4, 3), (11, 52), (2, 1)):
        widths = {"exponent_bits": exponent, "mantissa_bits": mantissa}
        check("reduce-precision", [dtype], dtype, widths)


@pytest.mark.parametrize(
    ("source", "random"),
    [(dt.F32, dt.U32), (dt.BF16, dt.U16), (dt.F16, dt.U16), (dt.F64, dt.U64)],
    ids=str,
)
def test_stochastic_convert(source: DType, random: DType) -> None:
    narrow = [t for t in TYPES if t.is_signed or t in (dt.BF16, dt.F16, dt.F8E5M2, dt.F8E4M3FN)]
    for target in narrow:
        if not target.is_float or target.bits < source.bits:
            check("stochastic-convert", [source, random], target)


@pytest.mark.parametrize("dtype", [t for t in FLOATS if t.bits < 32], ids=str)
def test_storage_rounding(dtype: DType) -> None:
    """Any f32 as the type, on both instruction sets: what ml_dtypes makes of it."""
    rng = np.random.default_rng(zlib.crc32(str(dtype).encode()))
    x = mixed_values(dt.F32, 1 << 12, rng)
    x = x[~np.isnan(x)]
    if dtype.is_scale:  # ml_dtypes rounds values below 2^-126 up
        x = x[~((x > 0) & (x < 2.0**-126))]
    with np.errstate(all="ignore"):
        want = x.astype(dtype.numpy)
    for how in ({}, {"target": plain_target(), "lanes": 8}, {"lanes": 1}):
        got = run_emitted("convert", [x], [dt.F32], dtype, **how)
        assert same_values(got, want).all()
