"""Which values may have subnormal elements: powers of e, and what hands them on."""

import hlo
from hlo.analysis.underflow import underflowing

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
    found = {(i.name, path) for i, path in underflowing(module.entry)}
    assert found == {
        ("e", ()), ("t", (1,)), ("f", (1,)), ("g1", ()), ("w", ()), ("p", ()), ("m", ()), ("r", ()),
        ("l", ()), ("d", ()), ("sum", ()),
    }  # fmt: skip
