"""The profile: every step once, counted as often as it runs, and the same results."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.compilation import Compilation
from hlo.backend.profile import profile
from hlo.parser.parse import parse

TEXT = """HloModule m
c { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT p = pred[] compare(i, n), direction=LT }
b { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[64] multiply(x, x)
  ROOT t = (s32[], f32[64]) tuple(j, y) }
ENTRY e {
  zero = s32[] constant(0)
  x = f32[64] parameter(0)
  t = (s32[], f32[64]) tuple(zero, x)
  w = (s32[], f32[64]) while(t), condition=c, body=b
  v = f32[64] get-tuple-element(w), index=1
  ROOT r = f32[64] add(v, x)
}"""


def as_written(threads: int | None = None) -> Compilation:
    return Compilation(parse(TEXT, "loop.hlo"), passes="", threads=threads)


def test_steps_are_counted_as_often_as_they_run() -> None:
    found = profile(as_written(), np.full(64, 0.5, np.float32), repeats=3)
    calls = {row.name: row.calls for row in found.rows if row.kind == "kernel"}
    assert calls["p"] == 7
    assert calls["y"] == 6
    assert calls["r"] == 1
    (product,) = [row for row in found.rows if row.name == "y"]
    assert product.line == "loop.hlo:11"
    assert product.us > 0
    assert "y multiply loop.hlo:11" in str(found)


def test_steps_stand_beside_what_the_machine_can_do() -> None:
    found = profile(as_written(threads=1), np.full(64, 0.5, np.float32), repeats=3)
    limits = found.limits
    assert limits.threads == 1
    assert min(limits.read, limits.copied, limits.operations) > 1e8
    assert limits.seconds(limits.copied, 0) == pytest.approx(1)
    assert limits.seconds(0, 2 * limits.operations) == pytest.approx(2)
    (product,) = [row for row in found.rows if row.name == "y"]
    moved = product.bytes_moved * product.calls
    least = limits.seconds(moved, product.flops * product.calls)
    assert found.share(product) == f"{100e6 * least / product.us:4.0f} %"
    assert str(limits) in str(found)
