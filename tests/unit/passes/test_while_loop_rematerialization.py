"""while-loop-rematerialization: the same bits from smaller states, and what it must leave alone."""

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.passes.while_loops.while_loop_rematerialization import while_loop_rematerialization

# {q}: what is kept of queries, and how; {at}: a row's number in the first loop, {back} in the
# second; {scores}: what p comes from; {read}: how the second loop reads what was kept of queries.
TEXT = """HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
forward {{
  s = (s32[], f32[1024,4], f32[3,{q}], f32[3,1024,1024], f32[3,1024], f32[1024,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[1024,4] get-tuple-element(s), index=1
  qs = f32[3,{q}] get-tuple-element(s), index=2
  ps = f32[3,1024,1024] get-tuple-element(s), index=3
  ts = f32[3,1024] get-tuple-element(s), index=4
  k = f32[1024,4] get-tuple-element(s), index=5
  one = s32[] constant(1)
  two = s32[] constant(2)
  five = s32[] constant(5)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  next = s32[] add(i, one)
  at = s32[] {at}
  query = f32[1024,4] sine(x)
  trip = f32[] convert(i)
  trips = f32[1024,1024] broadcast(trip), dimensions={{}}
  product = f32[1024,1024] dot({scores}, k), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  p = f32[1024,1024] add(product, trips)
  t = f32[1024] reduce(p, none), dimensions={{1}}, to_apply=add
  y = f32[1024,4] dot(p, query), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  small = f32[1024,4] cosine(y)
  moved = f32[{q}] {keep}
  q1 = f32[1,{q}] reshape(moved)
  p1 = f32[1,1024,1024] reshape(p)
  t1 = f32[1,1024] reshape(t)
  qput = f32[3,{q}] dynamic-update-slice(qs, q1, at, zero, zero)
  pput = f32[3,1024,1024] dynamic-update-slice(ps, p1, at, zero, zero)
  tput = f32[3,1024] dynamic-update-slice(ts, t1, at, zero)
  ROOT r = (s32[], f32[1024,4], f32[3,{q}], f32[3,1024,1024], f32[3,1024], f32[1024,4])
    tuple(next, small, qput, pput, tput, k)
}}
under {{
  s = (s32[], f32[1024,4], f32[3,{q}], f32[3,1024,1024], f32[3,1024], f32[1024,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({limit})
  ROOT c = pred[] compare(i, n), direction=LT
}}
backward {{
  s = (s32[], f32[1024,4], f32[3,{q}], f32[3,1024,1024], f32[3,1024]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  g = f32[1024,4] get-tuple-element(s), index=1
  qs = f32[3,{q}] get-tuple-element(s), index=2
  ps = f32[3,1024,1024] get-tuple-element(s), index=3
  ts = f32[3,1024] get-tuple-element(s), index=4
  one = s32[] constant(1)
  two = s32[] constant(2)
  zero = s32[] constant(0)
  next = s32[] add(i, one)
  back = s32[] {back}
  q1 = f32[1,{q}] dynamic-slice(qs, back, zero, zero), dynamic_slice_sizes={{1,{q}}}
  p1 = f32[1,1024,1024] dynamic-slice(ps, back, zero, zero), dynamic_slice_sizes={{1,1024,1024}}
  t1 = f32[1,1024] dynamic-slice(ts, back, zero), dynamic_slice_sizes={{1,1024}}
  p = f32[1024,1024] reshape(p1)
  t = f32[1024] reshape(t1)
  q = f32[{q}] reshape(q1)
  query = f32[1024,4] {take}
  h = f32[1024,4] dot(p, g), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  sums = f32[1024,4] broadcast(t), dimensions={{0}}
  scaled = f32[1024,4] multiply(h, sums)
  d = f32[1024,4] multiply(scaled, query)
  new = f32[1024,4] tanh(d)
  ROOT r = (s32[], f32[1024,4], f32[3,{q}], f32[3,1024,1024], f32[3,1024])
    tuple(next, new, qs, ps, ts)
}}
under.back {{
  s = (s32[], f32[1024,4], f32[3,{q}], f32[3,1024,1024], f32[3,1024]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[1024,4] parameter(0)
  k = f32[1024,4] parameter(1)
  g = f32[1024,4] parameter(2)
  zero = s32[] constant(0)
  from = s32[] constant({first})
  none = f32[] constant(0)
  qs = f32[3,{q}] broadcast(none), dimensions={{}}
  ps = f32[3,1024,1024] broadcast(none), dimensions={{}}
  ts = f32[3,1024] broadcast(none), dimensions={{}}
  start = (s32[], f32[1024,4], f32[3,{q}], f32[3,1024,1024], f32[3,1024], f32[1024,4])
    tuple(from, x, qs, ps, ts, k)
  first = (s32[], f32[1024,4], f32[3,{q}], f32[3,1024,1024], f32[3,1024], f32[1024,4])
    while(start), condition=under, body=forward
  y = f32[1024,4] get-tuple-element(first), index=1
  q = f32[3,{q}] get-tuple-element(first), index=2
  p = f32[3,1024,1024] get-tuple-element(first), index=3
  t = f32[3,1024] get-tuple-element(first), index=4
  again = (s32[], f32[1024,4], f32[3,{q}], f32[3,1024,1024], f32[3,1024]) tuple(zero, g, q, p, t)
  second = (s32[], f32[1024,4], f32[3,{q}], f32[3,1024,1024], f32[3,1024])
    while(again), condition=under.back, body=backward
  d = f32[1024,4] get-tuple-element(second), index=1
  ROOT r = (f32[1024,4], f32[1024,4]) tuple(y, d)
}}
"""
PLAIN = {
    "q": "1024,4", "at": "add(i, zero)", "back": "subtract(two, i)", "scores": "query",
    "keep": "reshape(query)", "take": "reshape(q)", "first": 0, "limit": 3, "trips": 3,
}  # fmt: skip
SHIFTED = {"at": "subtract(i, two)", "first": 2, "limit": 5}
REVERSED = {"at": "subtract(five, i)", "first": 3, "limit": 6}
TURNED = {
    "q": "4,1024", "keep": "transpose(query), dimensions={1,0}",
    "take": "transpose(q), dimensions={1,0}",
}  # fmt: skip


def _text(**others: object) -> str:
    return TEXT.format(**(PLAIN | others))


@pytest.mark.parametrize("case", [{}, SHIFTED, REVERSED, TURNED, {"back": "add(i, zero)"}])
def test_rows_that_are_computed_again_have_the_same_bits(case: dict[str, object]) -> None:
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((1024, 4)).astype(np.float32) for _ in range(3)]
    expected = hlo.evaluate(hlo.parse(_text(**case)), *inputs)
    module = hlo.parse(_text(**case))
    module = driver.optimize(module, "algsimp,while-loop-rematerialization,dce")
    sizes = [[s.size for s in i.shape.elements] for i in module.entry.instructions
             if i.opcode == "while"]  # fmt: skip
    assert all(3 * 1024 * 1024 not in of_loop and 3 * 1024 not in of_loop for of_loop in sizes)
    for got, right in zip(hlo.evaluate(module, *inputs), expected, strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize(
    "case",
    [
        {"scores": "x"},  # of which no array has the rows
        {"trips": 2},  # rows that are not all read
        {"back": "subtract(one, i)"},  # one that is clamped
        {"limit": 2},  # rows that are never written
    ],
)
def test_what_is_not_there_in_the_second_loop_is_kept(case: dict[str, object]) -> None:
    module = driver.optimize(hlo.parse(_text(**case)), "algsimp,dce")
    assert not while_loop_rematerialization(module)
