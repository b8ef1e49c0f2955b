"""bf16 in f32 lanes: codes to lanes and back, NaN without a test for it, rows of two stages."""

import ml_dtypes
import numpy as np
import pytest

from hlo import driver

BF16 = ml_dtypes.bfloat16
EDGES = [0x7FC0, 0xFFC0, 0x7F81, 0xFF81, 0x7FFF, 0xFFFF, 0x7F80, 0xFF80, 0, 0x8000, 1, 0x8001, 0x7F,
         0x80, 0x7F7F, 0xFF7F]  # fmt: skip


def codes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of any codes; every pair of edges first."""
    rng = np.random.default_rng(7)
    a, b = rng.integers(0, 1 << 16, (2, count)).astype(np.uint16)
    a[:256], b[:256] = np.repeat(EDGES, 16), np.tile(EDGES, 16)
    return a.view(BF16), b.view(BF16)


@pytest.mark.parametrize("opcode", ["add", "subtract", "multiply", "divide"])
def test_arithmetic_rounds_every_code(opcode: str) -> None:
    a, b = codes(3019)
    text = f"""HloModule m
    ENTRY e {{
      a = bf16[3019] parameter(0)
      b = bf16[3019] parameter(1)
      c = bf16[3019] {opcode}(a, b)
      n = bf16[3019] negate(c)
      ROOT r = (bf16[3019], bf16[3019]) tuple(c, n)
    }}"""
    found, negated = driver.compile(driver.parse(text), cache=False)(a, b)
    with np.errstate(all="ignore"):
        wide = getattr(np, opcode)(a.astype(np.float32), b.astype(np.float32))
        expected = wide.astype(BF16)
    is_nan = np.isnan(wide)
    assert np.array_equal(np.isnan(found.astype(np.float32)), is_nan)
    assert np.array_equal(found.view(np.uint16)[~is_nan], expected.view(np.uint16)[~is_nan])
    assert np.array_equal(negated.view(np.uint16), found.view(np.uint16) ^ 0x8000)
    assert (found.view(np.uint16)[is_nan] & 0x40).all(), "NaNs are quiet"


@pytest.mark.parametrize("columns", [40, 64, 999, 6000])
def test_rounded_elements_of_two_stages(columns: int) -> None:
    x = np.random.default_rng(columns).integers(-8, 9, (5, columns)).astype(BF16)
    text = f"""HloModule m
    max {{
      p = bf16[] parameter(0)
      q = bf16[] parameter(1)
      ROOT s = bf16[] maximum(p, q)
    }}
    add {{
      p = f32[] parameter(0)
      q = f32[] parameter(1)
      ROOT s = f32[] add(p, q)
    }}
    ENTRY e {{
      x = bf16[5,{columns}] parameter(0)
      low = bf16[] constant(-inf)
      zero = f32[] constant(0)
      most = bf16[5] reduce(x, low), dimensions={{1}}, to_apply=max
      mosts = bf16[5,{columns}] broadcast(most), dimensions={{0}}
      d = bf16[5,{columns}] subtract(x, mosts)
      squared = bf16[5,{columns}] multiply(d, d)
      wide = f32[5,{columns}] convert(squared)
      total = f32[5] reduce(wide, zero), dimensions={{1}}, to_apply=add
      short = bf16[5] convert(total)
      shorts = bf16[5,{columns}] broadcast(short), dimensions={{0}}
      scaled = bf16[5,{columns}] divide(d, shorts)
      ROOT r = (bf16[5,{columns}], bf16[5,{columns}]) tuple(scaled, d)
    }}"""
    module = driver.parse(text)
    expected = driver.evaluate(module, x)
    found = driver.compile(module, cache=False)(x)
    for ours, theirs in zip(found, expected, strict=True):
        assert np.array_equal(ours.view(np.uint16), np.asarray(theirs).view(np.uint16))


def test_rounded_elements_of_two_stages_whose_lanes_lie_in_other_rows() -> None:
    text = """HloModule m
    add {
      p = bf16[] parameter(0)
      q = bf16[] parameter(1)
      ROOT s = bf16[] add(p, q)
    }
    ENTRY e {
      x = bf16[8,31,33] parameter(0)
      zero = bf16[] constant(0)
      e = bf16[8,31,33] round-nearest-even(x)
      total = bf16[8,33] reduce(e, zero), dimensions={1}, to_apply=add
      totals = bf16[8,31,33] broadcast(total), dimensions={0,2}
      d = bf16[8,31,33] subtract(e, totals)
      size = bf16[8,31,33] abs(d)
      least = bf16[8,33] reduce(size, zero), dimensions={1}, to_apply=add
      leasts = bf16[8,31,33] broadcast(least), dimensions={0,2}
      sum = bf16[8,31,33] add(size, leasts)
      ROOT r = bf16[8,33] reduce(sum, zero), dimensions={1}, to_apply=add
    }"""
    module = driver.parse(text)
    x = np.random.default_rng(3).integers(-1, 2, (8, 31, 33)).astype(BF16)
    found = driver.compile(module, cache=False).run_guarded(x)
    assert np.array_equal(found.view(np.uint16), driver.evaluate(module, x).view(np.uint16))


@pytest.mark.parametrize("size", [37, 9, 3])
def test_windows_that_select_keep_every_code(size: int) -> None:
    """What is one of the elements is not rounded: neither a scan nor a small window."""
    text = f"""HloModule m
    most {{
      a = bf16[] parameter(0)
      b = bf16[] parameter(1)
      ROOT c = bf16[] maximum(a, b)
    }}
    ENTRY e {{
      x = bf16[83,37] parameter(0)
      least = bf16[] constant(-inf)
      ROOT r = bf16[83,37] reduce-window(x, least), to_apply=most,
        window={{size=1x{size} pad=0_0x{size - 1}_0}}
    }}"""
    x = codes(83 * 37)[0].reshape(83, 37)
    module = driver.parse(text)
    found = np.asarray(driver.compile(module, cache=False)(x)).astype(np.float32)
    padded = np.pad(x.astype(np.float32), ((0, 0), (size - 1, 0)), constant_values=-np.inf)
    views = np.lib.stride_tricks.sliding_window_view(padded, size, 1)
    expected = views.max(2)
    np.testing.assert_array_equal(found, expected)
    code = driver.emit_stage(driver.optimize(module), "asm")
    assert "vfixupimmps" not in code
