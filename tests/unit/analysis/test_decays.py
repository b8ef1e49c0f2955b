"""Which states of a loop decay: multiples of themselves, and moved ones that spread."""

import pytest

import hlo
from hlo.analysis.while_loops.decays import decaying
from hlo.ir.graph import body_of, callers_below

LOOP = """HloModule m
body {{
  s = (s32[], f32[8], f32[8], f32[8], f32[64,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  u = f32[8] get-tuple-element(s), index=1
  v = f32[8] get-tuple-element(s), index=2
  k = f32[8] get-tuple-element(s), index=3
  xs = f32[64,8] get-tuple-element(s), index=4
  c = f32[] constant(0.9)
  b = f32[8] broadcast(c), dimensions={{}}
  z = s32[] constant(0)
  row = f32[1,8] dynamic-slice(xs, i, z), dynamic_slice_sizes={{1,8}}
  x = f32[8] reshape(row)
  one = s32[] constant(1)
  j = s32[] add(i, one)
{lines}
  ROOT t = (s32[], f32[8], f32[8], f32[8], f32[64,8]) tuple(j, {u}, {v}, k, xs)
}}
condition {{
  s = (s32[], f32[8], f32[8], f32[8], f32[64,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(64)
  ROOT p = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  s = (s32[], f32[8], f32[8], f32[8], f32[64,8]) parameter(0)
  ROOT w = (s32[], f32[8], f32[8], f32[8], f32[64,8]) while(s), condition=condition, body=body
}}
"""
AVERAGE = """  m = f32[8] multiply(u, b)
  n = f32[8] add(m, x)"""
SHARED = """  m = f32[8] multiply(v, b)
  n = f32[8] add(m, x)"""
HEAT = """  l = f32[7] slice(u), slice={[1:8]}
  o = f32[1] slice(u), slice={[0:1]}
  r = f32[8] concatenate(l, o), dimensions={0}
  m = f32[8] multiply(r, b)
  n = f32[8] add(u, m)"""
FED = """  m = f32[8] multiply(u, b)
  n = f32[8] add(m, k)"""
SQUARED = """  q = f32[8] multiply(u, u)
  n = f32[8] add(q, x)"""
STEP = """  m = f32[8] multiply(u, b)
  n = f32[8] add(u, m)"""
SUMMED = """  n = f32[8] add(u, x)"""
FILTER = """  y = f32[8] add(u, x)
  m = f32[8] multiply(y, b)
  n = f32[8] add(m, v)
  o = f32[8] multiply(y, k)"""

LIMITED = """  m = f32[8] multiply(u, b)
  a = f32[8] add(m, x)
  n = f32[8] tanh(a)"""
PRODUCT = """
  q = f32[64,64] dot(xs, xs), lhs_contracting_dims={1}, rhs_contracting_dims={1}"""
GATED = """  h = f32[8] logistic(u)
  w = f32[] constant(1)
  o = f32[8] broadcast(w), dimensions={}
  g = f32[8] subtract(o, h)
  m = f32[8] multiply(g, u)
  n = f32[8] add(m, x)"""


def found(lines: str, u: str, v: str) -> set[str]:
    module = hlo.parse(LOOP.format(lines=lines, u=u, v=v))
    loop = module.entry.root
    values = decaying(loop, callers_below(module.entry))
    own = body_of(loop)
    return {i.name for i, path in values if i.computation is own and not path}


@pytest.mark.parametrize(
    ("lines", "u", "v", "expected"),
    [
        (AVERAGE, "n", "v", {"u", "m", "n"}),  # of what it was and an input
        (SHARED, "n", "u", {"u", "v", "m", "n"}),  # two states in turn
        (HEAT, "n", "v", {"u", "l", "o", "r", "m", "n"}),  # its neighbours' multiples are added
        (FILTER, "n", "o", {"u", "v", "y", "m", "n", "o"}),
        (FED, "n", "v", set()),  # what is added is the same in each trip
        (SQUARED, "n", "v", set()),  # no multiple
        (STEP, "n", "v", set()),  # it stays, too
        (SUMMED, "n", "v", set()),
        ("  n = f32[8] tanh(u)", "n", "v", set()),
        (LIMITED, "n", "v", {"u", "m", "a", "n"}),  # through a function that is itself near 0
        (LIMITED.replace("tanh", "cosine"), "n", "v", set()),
        (LIMITED + PRODUCT, "n", "v", set()),  # such states are looked for at some cost
        (GATED, "n", "v", {"u", "m", "n"}),  # a gate is not small where the state is
    ],
)
def test_what_decays(lines: str, u: str, v: str, expected: set[str]) -> None:
    assert found(lines, u, v) == expected


def test_products_of_matrices() -> None:
    """A matrix that a loop keeps by its state, as in a power iteration."""
    text = LOOP.replace("f32[64,8]", "f32[8,8]")
    lines = """  n = f32[8] dot(xs, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    module = hlo.parse(text.format(lines=lines, u="n", v="v"))
    values = decaying(module.entry.root, callers_below(module.entry))
    assert {i.name for i, path in values if not path} >= {"u", "n"}


def test_a_body_whose_root_is_no_tuple() -> None:
    """What it calls hands the state on."""
    text = LOOP.replace("body {{\n", "step {{\n", 1)
    text = text.replace(
        "condition {{",
        """body {{
  s = (s32[], f32[8], f32[8], f32[8], f32[64,8]) parameter(0)
  k = f32[8] get-tuple-element(s), index=3
  n = f32[8] negate(k)
  ROOT c = (s32[], f32[8], f32[8], f32[8], f32[64,8]) call(s), to_apply=step
}}
condition {{""",
        1,
    )
    module = hlo.parse(text.format(lines=AVERAGE, u="n", v="v"))
    values = decaying(module.entry.root, callers_below(module.entry))
    assert {i.name for i, path in values if not path} >= {"u", "m", "n"}
