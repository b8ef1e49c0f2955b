"""The least time of a program follows from its bytes and operations, and what multiplies them."""

from __future__ import annotations

import pytest

import hlo
from benchmarks.least import least_seconds, moved_bytes
from hlo.backend.profiling.limits import Level, Limits
from hlo.machine import NAMED

LIMITS = Limits(2, 3e10, 2e10, 4e11, (Level("L1", 1 << 16, 1e12), Level("L2", 1 << 21, 2e11)))
PRODUCT = """HloModule m
ENTRY e {{
  x = {t}[{n},{n}] parameter(0)
  y = {t}[{n},{n}] parameter(1)
  ROOT d = {out}[{n},{n}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""


def least(text: str, machine: str = "x86-64-v4") -> float:
    return least_seconds(hlo.parse(text), LIMITS, NAMED[machine])


@pytest.mark.parametrize(
    ("type", "out", "speed"),
    [
        ("f32", "f32", 1.0),
        ("f64", "f64", 0.5),
        ("s32", "s32", 0.5),
        ("s16", "s32", 1.0),
        ("c64", "c64", 0.25),
        ("c128", "c128", 0.125),
    ],
)
def test_products_by_the_rate_of_their_instruction(type: str, out: str, speed: float) -> None:
    text = PRODUCT.format(t=type, out=out, n=1024)
    assert least(text) == pytest.approx(2 * 1024**3 / 4e11 / speed)


def test_a_dot_product_of_words_is_as_many() -> None:
    text = PRODUCT.format(t="bf16", out="f32", n=1024)
    assert least(text, "znver4") == pytest.approx(least(text) / 2)
    assert least(text, "sapphirerapids") < least(text) / 8


def test_bytes_come_from_the_nearest_cache_that_holds_them() -> None:
    text = "HloModule m\nENTRY e {{ x = f32[{n}] parameter(0) ROOT y = f32[{n}] negate(x) }}"
    for n, rate in ((1000, 1e12), (100_000, 2e11), (10_000_000, 2e10)):
        assert moved_bytes(hlo.parse(text.format(n=n))) == 8 * n
        assert least(text.format(n=n)) == pytest.approx(max(8 * n / rate, n / 2e11))


def test_a_loop_counts_as_often_as_it_runs() -> None:
    text = """HloModule m
body { s = (s32[], f32[64,64]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = f32[64,64] get-tuple-element(s), index=1 one = s32[] constant(1) j = s32[] add(i, one)
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (s32[], f32[64,64]) tuple(j, y) }
condition { s = (s32[], f32[64,64]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10) ROOT less = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[64,64] parameter(0) zero = s32[] constant(0)
  s = (s32[], f32[64,64]) tuple(zero, x)
  w = (s32[], f32[64,64]) while(s), condition=condition, body=body
  ROOT y = f32[64,64] get-tuple-element(w), index=1 }"""
    assert least(text) == pytest.approx(10 * 2 * 64**3 / 4e11, rel=0.01)


def test_of_a_table_what_is_taken_counts_and_a_window_slides() -> None:
    table = """HloModule m
ENTRY e { x = f32[100000,64] parameter(0) i = s32[] parameter(1) zero = s32[] constant(0)
  ROOT r = f32[1,64] dynamic-slice(x, i, zero), dynamic_slice_sizes={1,64} }"""
    assert moved_bytes(hlo.parse(table)) == 2 * 256 + 4
    sums = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[4096] parameter(0) zero = f32[] constant(0)
  ROOT r = f32[4096] reduce-window(x, zero), window={size=4096 pad=4095_0}, to_apply=add }"""
    assert least(sums) == pytest.approx(2 * 3 * 4096 / 4e11)
