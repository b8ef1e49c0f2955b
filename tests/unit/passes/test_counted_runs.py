"""What a loop reads at places counted from its counter: slices, and numbers without an array."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.passes.catalogue import CATALOGUE
from hlo.passes.simplify.dce import dce

RANGES = CATALOGUE["while-loop-ranges"]

TEXT = """HloModule m
body {
  s = (s32[], f32[4,3], f32[SIZE,3], s32[4], TYPE[9]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  y = f32[4,3] get-tuple-element(s), index=1
  x = f32[SIZE,3] get-tuple-element(s), index=2
  handed = s32[4] get-tuple-element(s), index=3
  rows = TYPE[9] get-tuple-element(s), index=4
  one = s32[] constant(1)
  j = s32[] add(i, one)
  is = s32[4] broadcast(i), dimensions={}
  own = s32[4] iota(), iota_dimension=0
  LINES
  z = f32[4,3] add(y, found)
  ROOT t = (s32[], f32[4,3], f32[SIZE,3], s32[4], TYPE[9]) tuple(j, z, x, handed, rows)
}
condition {
  s = (s32[], f32[4,3], f32[SIZE,3], s32[4], TYPE[9]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT q = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[SIZE,3] parameter(0)
  first = s32[] constant(0)
  zero = f32[] constant(0)
  y = f32[4,3] broadcast(zero), dimensions={}
  four = s32[4] iota(), iota_dimension=0
  nine = TYPE[9] iota(), iota_dimension=0
  two = TYPE[] constant(2)
  twos = TYPE[9] broadcast(two), dimensions={}
  rows = TYPE[9] OPCODE(nine, twos)
  s = (s32[], f32[4,3], f32[SIZE,3], s32[4], TYPE[9]) tuple(first, y, x, four, rows)
  w = (s32[], f32[4,3], f32[SIZE,3], s32[4], TYPE[9]) while(s), condition=condition, body=body
  ROOT r = f32[4,3] get-tuple-element(w), index=1
}
"""

GATHER = """at = s32[4,1] reshape(places)
  found = f32[4,3] gather(x, at), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}"""

PLACES = {
    "forwards": "places = s32[4] add(is, own)",
    "handed to the loop": "places = s32[4] add(handed, is)",
    "wrapped below zero": """sum = s32[4] add(is, own)
  none = s32[] constant(0)
  nones = s32[4] broadcast(none), dimensions={}
  size = s32[] constant(SIZE)
  sizes = s32[4] broadcast(size), dimensions={}
  is_low = pred[4] compare(sum, nones), direction=LT
  wrapped = s32[4] add(sum, sizes)
  places = s32[4] select(is_low, wrapped, sum)""",
    "backwards": """back = s32[4] subtract(is, own)
  three = s32[] constant(3)
  threes = s32[4] broadcast(three), dimensions={}
  places = s32[4] add(back, threes)""",
    "clamped": """sum = s32[4] add(is, own)
  none = s32[] constant(0)
  nones = s32[4] broadcast(none), dimensions={}
  last = s32[] constant(8)
  lasts = s32[4] broadcast(last), dimensions={}
  least = s32[4] maximum(sum, nones)
  places = s32[4] minimum(least, lasts)""",
}


def program(
    lines: str, size: int, kind: str = "s32", opcode: str = "multiply"
) -> tuple[hlo.Module, hlo.Module]:
    text = TEXT.replace("LINES", lines).replace("SIZE", str(size))
    text = text.replace("TYPE", kind).replace("OPCODE", opcode)
    return hlo.parse(text), hlo.parse(text)


def opcodes(module: hlo.Module) -> set[str]:
    dce(module)
    (body,) = (c for c in module.computations if c.name == "body")
    return {i.opcode for i in body.instructions}


def check(given: hlo.Module, rewritten: hlo.Module, size: int) -> None:
    hlo.verify(rewritten)
    x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
    want = hlo.evaluate(given, x)
    np.testing.assert_array_equal(hlo.evaluate(rewritten, x), want)
    np.testing.assert_array_equal(hlo.compile(given, cache=False)(x), want)


# The places of the last trip are 5 to 8.
@pytest.mark.parametrize("size", [8, 9, 12])
@pytest.mark.parametrize("places", PLACES)
def test_runs_are_slices_where_all_places_are_inside(places: str, size: int) -> None:
    given, rewritten = program(f"{PLACES[places]}\n  {GATHER}", size)
    RANGES(rewritten)
    found = opcodes(rewritten)
    assert ("gather" in found) == (size < 9)
    assert ("dynamic-slice" in found) == (size >= 9)
    check(given, rewritten, size)


ROW = """row = TYPE[1] dynamic-slice(rows, place), dynamic_slice_sizes={1}
  number = TYPE[] reshape(row)
  real = f32[] convert(number)
  found = f32[4,3] broadcast(real), dimensions={}"""


@pytest.mark.parametrize("opcode", ["multiply", "subtract"])
@pytest.mark.parametrize("kind", ["s32", "u8", "f32"])
@pytest.mark.parametrize("start", [0, 3, 4])
def test_rows_of_what_counts_are_computed(start: int, kind: str, opcode: str) -> None:
    """Places start to start + 5, of nine."""
    lines = f"c = s32[] constant({start})\n  place = s32[] add(i, c)\n  {ROW}"
    given, rewritten = program(lines, 5, kind, opcode)
    RANGES(rewritten)
    assert ("dynamic-slice" in opcodes(rewritten)) == (start == 4)
    check(given, rewritten, 5)


def test_rows_from_the_last_one_on() -> None:
    given, rewritten = program(f"c = s32[] constant(5)\n  place = s32[] subtract(c, i)\n  {ROW}", 5)
    RANGES(rewritten)
    assert "dynamic-slice" not in opcodes(rewritten)
    check(given, rewritten, 5)


SCATTER = """HloModule m
combine {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] REDUCER
}
body {
  s = (s32[], f32[SIZE,3], f32[6,4,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[SIZE,3] get-tuple-element(s), index=1
  us = f32[6,4,3] get-tuple-element(s), index=2
  one = s32[] constant(1)
  none = s32[] constant(0)
  j = s32[] add(i, one)
  row = f32[1,4,3] dynamic-slice(us, i, none, none), dynamic_slice_sizes={1,4,3}
  u = f32[4,3] reshape(row)
  two = s32[] constant(2)
  hop = s32[] multiply(i, two)
  hops = s32[4] broadcast(hop), dimensions={}
  own = s32[4] iota(), iota_dimension=0
  LINES
  at = s32[4,1] reshape(places)
  y = f32[SIZE,3] scatter(x, at, u), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=combine
  ROOT t = (s32[], f32[SIZE,3], f32[6,4,3]) tuple(j, y, us)
}
condition {
  s = (s32[], f32[SIZE,3], f32[6,4,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT q = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[SIZE,3] parameter(0)
  us = f32[6,4,3] parameter(1)
  first = s32[] constant(0)
  s = (s32[], f32[SIZE,3], f32[6,4,3]) tuple(first, x, us)
  w = (s32[], f32[SIZE,3], f32[6,4,3]) while(s), condition=condition, body=body
  ROOT r = f32[SIZE,3] get-tuple-element(w), index=1
}
"""
STEPS = {
    "forwards": "places = s32[4] add(hops, own)",
    "backwards": """back = s32[4] subtract(hops, own)
  three = s32[] constant(3)
  threes = s32[4] broadcast(three), dimensions={}
  places = s32[4] add(threes, back)""",
}


# The places of the last trip are 10 to 13; what lies behind the end is left out.
@pytest.mark.parametrize("size", [13, 14, 20])
@pytest.mark.parametrize("reducer", ["add(a, b)", "maximum(a, b)", "b", "add(b, b)"])
@pytest.mark.parametrize("step", STEPS)
def test_runs_that_are_scattered_are_slices_put_back(step: str, reducer: str, size: int) -> None:
    text = SCATTER.replace("LINES", STEPS[step]).replace("SIZE", str(size))
    if reducer == "b":
        text = text.replace("  ROOT c = f32[] REDUCER\n", "").replace("  b =", "  ROOT b =", 1)
    text = text.replace("REDUCER", reducer)
    given, rewritten = hlo.parse(text), hlo.parse(text)
    RANGES(rewritten)
    is_slice = size >= 14 and reducer != "add(b, b)"
    assert ("scatter" in opcodes(rewritten)) != is_slice
    hlo.verify(rewritten)
    rng = np.random.default_rng(1)
    x, us = (rng.standard_normal(dims).astype(np.float32) for dims in ((size, 3), (6, 4, 3)))
    want = hlo.evaluate(given, x, us)
    np.testing.assert_array_equal(hlo.evaluate(rewritten, x, us), want)
    np.testing.assert_array_equal(hlo.compile(given, cache=False)(x, us), want)
