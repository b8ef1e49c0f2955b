"""Rows that trips compute: the same numbers for all trips at once, and what is no such row."""

import numpy as np
import pytest

from hlo import driver
from hlo.ir.module import Module
from hlo.passes.while_loops.while_loop_dot_batching import while_loop_dot_batching

STATE = "(s32[], f32[2,3], f32[7,2,5], s32[7,2], f32[9,5], f32[5], f32[5,3], f32[2,5,3], f32[7])"
TEXT = """HloModule m
body {{
  s = STATE parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[2,3] get-tuple-element(s), index=1
  x = f32[7,2,5] get-tuple-element(s), index=2
  k = s32[7,2] get-tuple-element(s), index=3
  table = f32[9,5] get-tuple-element(s), index=4
  g = f32[5] get-tuple-element(s), index=5
  w = f32[5,3] get-tuple-element(s), index=6
  v = f32[2,5,3] get-tuple-element(s), index=7
  bounds = f32[7] get-tuple-element(s), index=8
  z = s32[] constant(0)
  one = s32[] constant(1)
  last = s32[] constant(6)
  half = f32[] constant(0.5)
  next = s32[] add(i, one)
  {row}
  d = f32[2,3] {dot}
  sum = f32[2,3] add(h, d)
  ROOT t = STATE tuple(next, sum, x, k, table, g, w, v, bounds)
}}
condition {{
  s = STATE parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  h = f32[2,3] parameter(0)
  x = f32[7,2,5] parameter(1)
  k = s32[7,2] parameter(2)
  table = f32[9,5] parameter(3)
  g = f32[5] parameter(4)
  w = f32[5,3] parameter(5)
  v = f32[2,5,3] parameter(6)
  bounds = f32[7] parameter(7)
  i = s32[] constant(0)
  start = STATE tuple(i, h, x, k, table, g, w, v, bounds)
  loop = STATE while(start), condition=condition, body=body
  all = f32[9,5] get-tuple-element(loop), index=4
  y = f32[2,3] get-tuple-element(loop), index=1
  ROOT r = (f32[2,3], f32[9,5]) tuple(y, all)
}}
""".replace("STATE", STATE)
PLAIN = "dot(r, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
CUT = "row = f32[1,2,5] dynamic-slice(x, {at}, z, z), dynamic_slice_sizes={{1,2,5}}\n  "
ROW = CUT.format(at="i") + "p = f32[2,5] reshape(row)\n  "
SCALED = """gs = f32[2,5] broadcast(g), dimensions={1}
  halves = f32[2,5] broadcast(half), dimensions={}
  q = f32[2,5] multiply(p, gs)
  u = f32[2,5] tanh(q)
  r = f32[2,5] maximum(u, halves)"""
NARROW = """b = bf16[2,5] convert(p)
  r = f32[2,5] convert(b)"""
HELD = """big = pred[] compare(half, half), direction=LE
  c = f32[2,5] clamp(half, p, half)
  r = f32[2,5] select(big, p, c)"""
LOOKUP = """number = s32[1,2] dynamic-slice(k, i, z), dynamic_slice_sizes={1,2}
  place = s32[2,1] reshape(number)
  r = f32[2,5] gather(table, place), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}, indices_are_sorted=true"""
BACKWARDS = "at = s32[] subtract(last, i)\n  " + CUT.format(at="at") + "r = f32[2,5] reshape(row)"
GROUPS = (
    "dot(r, v), lhs_batch_dims={0}, rhs_batch_dims={0}, "
    "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
)
SPREAD = """first = f32[2,5] slice(p), slice={[0:2], [0:5]}
  r = f32[2,5] add(first, p)"""
# A number of the trip chooses all of its row.
CHOSEN = """cut = f32[1] dynamic-slice(bounds, i), dynamic_slice_sizes={1}
  bound = f32[] reshape(cut)
  r = f32[2,5] clamp(bound, p, half)"""
MIXED = BACKWARDS.replace("r = f32[2,5] reshape", "p = f32[2,5] reshape") + (
    "\n  other = f32[1,2,5] dynamic-slice(x, i, z, z), dynamic_slice_sizes={1,2,5}"
    "\n  q = f32[2,5] reshape(other)\n  r = f32[2,5] add(p, q)"
)
CARRIED = (
    ROW
    + """m = f32[2] reduce(h, half), dimensions={1}, to_apply=plus
  ms = f32[2,5] broadcast(m), dimensions={0}
  r = f32[2,5] add(p, ms)"""
)
PLUS = "plus { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
MOVED = {
    "plain": (ROW.replace("p =", "r ="), PLAIN),
    "scaled": (ROW + SCALED, PLAIN),
    "narrow": (ROW + NARROW, PLAIN),
    "held": (ROW + HELD, PLAIN),
    "lookup": (LOOKUP, PLAIN),
    "backwards": (BACKWARDS, PLAIN),
    "groups": (ROW.replace("p =", "r ="), GROUPS),
}
LEFT = {
    "a slice of a row": (ROW + SPREAD, PLAIN),
    "two rows": (MIXED, PLAIN),
    "of the state": (CARRIED, PLAIN),
    "between a trip's numbers": (ROW + CHOSEN, PLAIN),
}


def made(row: str, dot: str) -> Module:
    text = TEXT.format(row=row, dot=dot)
    return driver.parse(text.replace("body {", PLUS + "body {", 1))


def values() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    dims = ((2, 3), (7, 2, 5), (9, 5), (5,), (5, 3), (2, 5, 3), (7,))
    h, x, table, g, w, v, bounds = (rng.integers(-4, 5, d).astype(np.float32) / 4 for d in dims)
    return [h, x, rng.integers(-2, 12, (7, 2)).astype(np.int32), table, g, w, v, bounds]


@pytest.mark.parametrize(("row", "dot"), MOVED.values(), ids=MOVED)
def test_rows_of_all_trips_are_multiplied_at_once(row: str, dot: str) -> None:
    module, arguments = made(row, dot), values()
    expected = driver.evaluate(module, *arguments)
    assert while_loop_dot_batching(module, least_bytes=0)
    driver.verify(module)
    assert sum(i.opcode == "dot" for i in module.entry.instructions) == 1
    for run in (driver.evaluate, lambda m, *a: driver.compile(m)(*a)):
        for found, want in zip(run(module, *arguments), expected, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("row", "dot"), LEFT.values(), ids=LEFT)
def test_what_is_no_row_stays(row: str, dot: str) -> None:
    assert not while_loop_dot_batching(made(row, dot), least_bytes=0)


def test_the_loop_is_not_handed_what_it_no_longer_reads() -> None:
    module = made(*MOVED["lookup"])
    assert while_loop_dot_batching(module, least_bytes=0)
    (loop,) = (i for i in module.entry.instructions if i.opcode == "while")
    dims = [e.dims for e in loop.shape.elements]
    assert dims == [(), (2, 3), (7, 2, 3)]


def test_computed_rows_count_as_memory() -> None:
    bytes_of_rows = 7 * 2 * 5 * 4
    plain, scaled = made(*MOVED["plain"]), made(*MOVED["scaled"])
    assert while_loop_dot_batching(plain, least_bytes=0, max_bytes=bytes_of_rows - 1)
    assert not while_loop_dot_batching(scaled, least_bytes=0, max_bytes=bytes_of_rows - 1)
    assert while_loop_dot_batching(scaled, least_bytes=0, max_bytes=bytes_of_rows)


@pytest.mark.parametrize(("rows", "is_moved"), [(14, True), (15, False)])
def test_few_trips_leave_the_rows_of_a_long_array(rows: int, *, is_moved: bool) -> None:
    """A product of all rows is more than twice the work of seven trips."""
    text = TEXT.format(row=MOVED["plain"][0], dot=MOVED["plain"][1])
    module = driver.parse(text.replace("f32[7,2,5]", f"f32[{rows},2,5]"))
    assert while_loop_dot_batching(module, least_bytes=0) is is_moved
