"""Which values may have subnormal elements: where they begin, and what hands them on."""

import pytest

import hlo
from hlo.analysis.bounded_powers import is_at_most_two
from hlo.analysis.flow import origin
from hlo.analysis.tails import tails

TEXT = """HloModule m
pair {
  a = f32[8] parameter(0)
  e = f32[8] exponential(a)
  s = f32[8] add(e, a)
  ROOT t = (f32[8], f32[8]) tuple(s, e)
}
times {
  v = f32[8] parameter(0)
  w = f32[8] parameter(1)
  ROOT p = f32[8] multiply(v, w)
}
ENTRY main {
  x = f32[8] parameter(0)
  f = (f32[8], f32[8]) fusion(x), kind=kLoop, calls=pair
  g0 = f32[8] get-tuple-element(f), index=0
  g1 = f32[8] get-tuple-element(f), index=1
  m = f32[8] fusion(g0, g1), kind=kLoop, calls=times
  r = f32[8] reverse(m), dimensions={0}
  c = pred[8] compare(x, m), direction=LT
  l = f32[8] select(c, x, r)
  d = f32[8] divide(l, x)
  i = f32[8] divide(x, l)
  sum = f32[8] subtract(d, r)
  one = f32[8] add(sum, x)
  ROOT root = (f32[8], f32[8]) tuple(one, i)
}
"""


def test_what_powers_hand_on() -> None:
    module = hlo.parse(TEXT)
    found = {(i.name, path) for i, path in tails(module.entry)}
    assert found == {
        ("e", ()), ("t", (1,)), ("f", (1,)), ("g1", ()), ("w", ()), ("p", ()), ("m", ()), ("r", ()),
        ("l", ()), ("d", ()), ("sum", ()),
    }  # fmt: skip


BEGINNINGS = """HloModule m
body {
  s = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  k = f32[8] get-tuple-element(s), index=1
  u = f32[8] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  m = f32[8] multiply(u, k)
  ROOT t = (s32[], f32[8], f32[8]) tuple(j, k, m)
}
condition {
  s = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(64)
  ROOT q = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  c = f32[8] constant({1, 0, 1e-30, 2e-39, 1, 1, 1, 1})
  d = f32[8] constant({1, 0, 1e-30, 2, inf, nan, 1, 1})
  a = f32[8] multiply(c, x)
  b = f32[8] multiply(d, x)
  x2 = f32[8] multiply(x, x)
  x4 = f32[8] multiply(x2, x2)
  x8 = f32[8] multiply(x4, x4)
  x12 = f32[8] multiply(x8, x4)
  x16 = f32[8] multiply(x4, x12)
  xy = f32[8] multiply(x8, y)
  p = f32[8] power(x, y)
  z = s32[] constant(0)
  s = (s32[], f32[8], f32[8]) tuple(z, a, y)
  w = (s32[], f32[8], f32[8]) while(s), condition=condition, body=body
  e = f32[8] get-tuple-element(w), index=2
  f = f32[8] get-tuple-element(w), index=1
  ROOT r = (f32[8], f32[8], f32[8], f32[8], f32[8], f32[8]) tuple(b, x16, xy, p, e, f)
}
"""


def test_where_they_begin() -> None:
    """Constants, powers, what a loop gets and what decays in it."""
    module = hlo.parse(BEGINNINGS)
    found = {i.name for i, path in tails(module.entry) if not path}
    assert found == {"c", "a", "x16", "p", "k", "u", "m", "e", "f"}


def test_what_makes_an_array() -> None:
    """Out of a loop that hands it on."""
    module = hlo.parse(BEGINNINGS)
    kept = {i.name: i for c in module.computations for i in c.instructions}["k"]
    assert origin(kept).name == "a"


POWERS = """HloModule m
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
max {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }}
ENTRY e {{
  x = f32[6,8,4] parameter(0)
  c = f32[] constant({number})
  b = f32[6,8,4] broadcast(c), dimensions={{}}
  zero = f32[] constant(0)
  low = f32[] constant(-inf)
  m = f32[6,8] reduce(x, low), dimensions={{2}}, to_apply=max
  mb = f32[6,8,4] broadcast(m), dimensions={{0,1}}
  mt = f32[6,8,4] broadcast(m), dimensions={{0,1}}
  d = f32[6,8,4] subtract(x, mb)
  square = f32[6,8,4] multiply(x, x)
  s = f32[6,8,4] {power}
  ROOT e = f32[6,8,4] exponential(s)
}}
"""


@pytest.mark.parametrize(
    ("power", "number", "holds"),
    [
        ("subtract(x, mb)", "1", True),
        ("subtract(mb, x)", "1", False),
        ("negate(square)", "1", True),
        ("multiply(square, b)", "-0.5", True),
        ("multiply(square, b)", "0.5", False),
        ("multiply(b, square)", "-0.5", True),
        ("divide(square, b)", "-2", True),
        ("divide(square, b)", "2", False),
        ("divide(b, square)", "-2", False),
        ("multiply(x, square)", "-2", False),
        ("negate(x)", "1", False),
        ("copy(d)", "1", False),
    ],
)
def test_powers_that_are_known_to_be_at_most_two(power: str, number: str, *, holds: bool) -> None:
    module = hlo.parse(POWERS.format(power=power, number=number))
    assert is_at_most_two(module.entry.root) == holds


def test_shares_of_a_sum_are_at_most_two() -> None:
    text = POWERS.format(power="subtract(x, mb)", number="1")
    head, tail = text.split("  ROOT e = ")
    for start, holds in (("zero", True), ("low", False)):
        share = f"""  e = {tail.split(")")[0]})
  t = f32[6,8] reduce(e, {start}), dimensions={{2}}, to_apply=add
  tb = f32[6,8,4] broadcast(t), dimensions={{0,1}}
  ROOT p = f32[6,8,4] divide(e, tb)
}}
"""
        assert is_at_most_two(hlo.parse(head + share).entry.root) == holds
