"""Chains of ops on 16-bit floats that are looked up by their codes."""

import numpy as np
import pytest

import hlo
from hlo.backend.linking.toolchain import host_target
from hlo.driver import emit_stage, optimize
from hlo.ir import dtype as dt
from hlo.machine import NAMED, Machine

CHAIN = """HloModule m
ENTRY e {{
  x = {t}[{n}] parameter(0)
  c = {t}[] constant(0.75)
  b = {t}[{n}] broadcast(c), dimensions={{}}
  scaled = {t}[{n}] multiply(x, b)
  wide = f32[{n}] convert(scaled)
  e = f32[{n}] logistic(wide)
  half = {t}[{n}] convert(e)
  is_large = pred[{n}] compare(half, b), direction=GT
  s = {t}[{n}] select(is_large, half, x)
  ROOT r = {t}[{n}] add(s, b)
}}
"""

TWO = """HloModule m
ENTRY e {{
  x = {t}[{n}] parameter(0)
  y = {t}[{n}] parameter(1)
  d = {t}[{n}] subtract(x, y)
  t = {t}[{n}] tanh(d)
  g = {t}[{n}] logistic(x)
  p = {t}[{n}] multiply(t, g)
  ROOT r = ({t}[{n}], {t}[{n}]) tuple(p, t)
}}
"""

WIDE = """HloModule m
ENTRY e {{
  x = {t}[{n}] parameter(0)
  y = {t}[{n}] parameter(1)
  a = f32[{n}] convert(x)
  b = f32[{n}] convert(y)
  g = f32[{n}] logistic(a)
  h = f32[{n}] multiply(a, g)
  p = f32[{n}] multiply(h, b)
  c = {t}[{n}] convert(p)
  e = f32[{n}] exponential(a)
  ROOT r = ({t}[{n}], f32[{n}]) tuple(c, e)
}}
"""

CHEAP = """HloModule m
ENTRY e {{
  x = {t}[{n}] parameter(0)
  s = {t}[] parameter(1)
  b = {t}[{n}] broadcast(s), dimensions={{}}
  p = {t}[{n}] multiply(x, x)
  e = {t}[{n}] add(p, b)
  ROOT r = {t}[{n}] negate(e)
}}
"""
ALL = 1 << 16
TYPES = {t.name: t.numpy for t in (dt.BF16, dt.F16, dt.F8E4M3FN, dt.F8E5M2)}
needs_gathers = pytest.mark.skipif(not host_target().isa.quick_gather(16), reason="no such gathers")


def run(text: str, *arguments: np.ndarray) -> list[np.ndarray]:
    result = hlo.compile(hlo.parse(text), cache=False)(*arguments)
    return [np.asarray(a) for a in (result if isinstance(result, tuple) else (result,))]


def in_parts(text: str, name: str, *arguments: np.ndarray) -> list[np.ndarray]:
    """The same in arrays too short for tables."""
    size = 4000
    text = text.format(t=name, n=size)
    executable = hlo.compile(hlo.parse(text), cache=False)
    found = []
    for start in range(0, len(arguments[0]), size):
        given = [np.resize(a[start : start + size], size) for a in arguments]
        result = executable(*given)
        found.append([np.asarray(a) for a in (result if isinstance(result, tuple) else (result,))])
    return [np.concatenate(column)[: len(arguments[0])] for column in zip(*found, strict=True)]


def codes(name: str, numbers: np.ndarray) -> np.ndarray:
    """The numbers of a type with these codes, of which the lowest bits count."""
    kind = np.dtype(TYPES[name])
    return numbers.astype(f"u{kind.itemsize}").view(kind)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    found, expected = (np.where(nan, 0, a).astype(a.dtype) for a in (found, expected))
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("n", [ALL, ALL + 13])
def test_every_code_gives_the_bits_of_the_ops(name: str, n: int) -> None:
    x = codes(name, np.resize(np.arange(ALL), n))
    (found,) = run(CHAIN.format(t=name, n=n), x)
    (expected,) = in_parts(CHAIN, name, x)
    assert_same(found, expected)


@pytest.mark.parametrize("text", [TWO, WIDE])
@pytest.mark.parametrize("name", TYPES)
def test_chains_begin_and_end_within_larger_expressions(name: str, text: str) -> None:
    rng = np.random.default_rng(5)
    x, y = (codes(name, rng.integers(0, ALL, 20011)) for _ in range(2))
    found = run(text.format(t=name, n=20011), x, y)
    for a, b in zip(found, in_parts(text, name, x, y), strict=True):
        assert_same(a, b)


ALONE = """HloModule m
ENTRY e {{
  x = {t}[{n}] parameter(0)
  ROOT r = {t}[{n}] {op}(x)
}}
"""


def gathers(
    text: str, mode: str = "strict", machine: Machine | None = None, **words: object
) -> int:
    """Vector look-ups in the program's code, for the machine that it runs on where none is said."""
    module = optimize(hlo.parse(text.format(**words)))
    return emit_stage(module, "asm", mode, machine).count("vpgatherdd")


@needs_gathers
@pytest.mark.parametrize("name", TYPES)
def test_dear_chains_of_large_arrays_are_looked_up(name: str) -> None:
    assert gathers(CHAIN, t=name, n=1 << 14) > 0
    assert gathers(WIDE, t=name, n=1 << 14) > 0
    assert gathers(CHAIN, t=name, n=1 << 11) == 0
    assert gathers(CHEAP, t=name, n=1 << 14) == 0


@pytest.mark.parametrize("name", ["icelake-server", "znver4"])
def test_codes_spread_over_a_whole_table_are_not_looked_up_for_less(name: str) -> None:
    """Only where subnormal numbers, of which there are many among such codes, keep ops waiting, and
    gathers take no longer than the ops.
    """
    looked_up = {
        (t, op, mode): gathers(ALONE, mode, NAMED[name], t=t, n=1 << 14, op=op) > 0
        for t in ("bf16", "f16", "f8e5m2")
        for op in ("exponential", "log")
        for mode in ("strict", "fast")
    }
    narrow = {("f8e5m2", op, mode) for op in ("exponential", "log") for mode in ("strict", "fast")}
    waiting = {("bf16", "exponential", "strict")} if name != "znver4" else set()
    assert {key for key, found in looked_up.items() if found} == narrow | waiting
