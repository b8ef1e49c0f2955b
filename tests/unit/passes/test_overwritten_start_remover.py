"""Starts of loop state that every trip overwrites a row of are not made, if nobody can see them."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.passes.catalogue import CATALOGUE

REMOVE = CATALOGUE["overwritten-start-remover"]

TEXT = """HloModule m
body {
  s = (s32[], f32[5,3], f32[5,3], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  y = f32[5,3] get-tuple-element(s), index=1
  x = f32[5,3] get-tuple-element(s), index=2
  c = f32[] get-tuple-element(s), index=3
  one = s32[] constant(1)
  four = s32[] constant(4)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  at = s32[] subtract(four, i)
  row = f32[1,3] dynamic-slice(x, at, zero), dynamic_slice_sizes={1,3}
  twice = f32[1,3] add(row, row)
  u = f32[5,3] dynamic-update-slice(y, twice, PLACE, zero)
  MORE
  ROOT t = (s32[], f32[5,3], f32[5,3], f32[]) tuple(j, u, x, c)
}
condition {
  s = (s32[], f32[5,3], f32[5,3], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(LIMIT)
  ROOT p = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[5,3] parameter(0)
  first = s32[] constant(FIRST)
  zero = f32[] constant(0)
  zeros = f32[5,3] broadcast(zero), dimensions={}
  s = (s32[], f32[5,3], f32[5,3], f32[]) tuple(first, zeros, x, zero)
  w = (s32[], f32[5,3], f32[5,3], f32[]) while(s), condition=condition, body=body
  ROOT r = f32[5,3] get-tuple-element(w), index=1
}
"""


def program(place: str, first: int = 0, limit: int = 5, more: str = "", text: str = TEXT) -> str:
    filled = text.replace("PLACE", place).replace("FIRST", str(first))
    return filled.replace("LIMIT", str(limit)).replace("MORE", more)


@pytest.mark.parametrize(
    ("place", "first", "limit"),
    [("i", 0, 5), ("at", 0, 5), ("sub", 3, 8), ("rev", -2, 3)],
)
def test_rows_that_are_all_written(place: str, first: int, limit: int) -> None:
    made = "sub = s32[] subtract(i, three)\nthree = s32[] constant(3)\n"
    made += "rev = s32[] subtract(two, i)\ntwo = s32[] constant(2)"
    lines = made.split("\n")
    wanted = "\n".join(reversed(lines[:2] if place == "sub" else lines[2:]))
    before = "" if place in ("i", "at") else wanted + "\n  "
    text = program(place, first, limit, text=TEXT.replace("  u = ", f"  {before}u = "))
    module = hlo.parse(text)
    assert REMOVE(module)
    assert "AllocateBuffer" in driver.to_text(module)
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    want = hlo.evaluate(hlo.parse(text), x)
    np.testing.assert_array_equal(hlo.compile(hlo.parse(text)).run_guarded(x), want)


@pytest.mark.parametrize(
    ("place", "first", "limit", "old", "new"),
    [
        ("i", 0, 4, "", ""),  # a row is left
        ("i", 1, 6, "", ""),  # the last one twice
        ("j", 0, 5, "", ""),  # likewise
        ("zero", 0, 5, "", ""),
        ("i", 0, 5, "add(row, row)", "add(row, seen)"),  # what was there before is read
        ("i", 0, 5, "tuple(j, u, x, c)", "tuple(j, y, u, c)"),  # another's memory
        (
            "i",
            0,
            5,
            "zeros = f32[5,3] broadcast(zero), dimensions={}",
            "zeros = f32[5,3] add(x, x)",
        ),
    ],
)
def test_starts_that_are_seen(place: str, first: int, limit: int, old: str, new: str) -> None:
    text = program(place, first, limit).replace(old, new) if old else program(place, first, limit)
    seen = "seen = f32[1,3] dynamic-slice(y, at, zero), dynamic_slice_sizes={1,3}\n  twice"
    module = hlo.parse(text.replace("  twice", f"  {seen}", 1) if "seen" in new else text)
    assert not REMOVE(module)


def test_a_condition_that_looks() -> None:
    look = "y = f32[5,3] get-tuple-element(s), index=1\n  n = s32[] constant(5)"
    assert REMOVE(hlo.parse(program("i")))
    assert not REMOVE(hlo.parse(program("i").replace("n = s32[] constant(5)", look)))
