"""Programs on which the default pipeline found something to do once more: each for its reason."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.ir.module import Module
from hlo.passes.catalogue import CATALOGUE
from hlo.passes.manager import Manager
from hlo.passes.pipeline import parse_pipeline
from hlo.tools.cases.arrays import leaves

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"

# A function with a loop is called twice, as JAX's random numbers are: both loops have one body,
# whose second counter is the first one.
SHARED_BODY = """HloModule shared
body { s = (s32[], s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  k = s32[] get-tuple-element(s), index=1
  x = f32[64] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  l = s32[] add(k, one)
  f = f32[] convert(l)
  fs = f32[64] broadcast(f), dimensions={}
  y = f32[64] multiply(x, fs)
  z = f32[64] sine(y)
  ROOT t = (s32[], s32[], f32[64]) tuple(j, l, z) }
condition { s = (s32[], s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(90)
  ROOT q = pred[] compare(i, n), direction=LT }
mixed { x = f32[64] parameter(0)
  none = s32[] constant(0)
  s = (s32[], s32[], f32[64]) tuple(none, none, x)
  w = (s32[], s32[], f32[64]) while(s), condition=condition, body=body
  ROOT r = f32[64] get-tuple-element(w), index=2 }
ENTRY e { x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  a = f32[64] call(x), to_apply=mixed
  b = f32[64] call(y), to_apply=mixed
  ROOT r = f32[64] subtract(a, b) }"""

# A constant matrix is read for every row of a reduction: it is turned where it stands.
TURNED_CONSTANT = f"""HloModule turned
{SUM}
ENTRY e {{ x = f32[32,4] parameter(0)
  m = f32[4,4] constant({{{{1,0,2,0}},{{0,1,0,3}},{{0,0,1,0}},{{4,0,0,1}}}})
  ROOT y = f32[32,4] dot(x, m), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}} }}"""

# A quotient beside none is one by 1, which another select has already.
ONE_AGAIN = """HloModule ones
ENTRY e { p = pred[5000] parameter(0)
  q = pred[5000] parameter(1)
  x = f32[5000] parameter(2)
  y = f32[5000] parameter(3)
  z = f32[5000] parameter(4)
  k = f32[] constant(1)
  one = f32[5000] broadcast(k), dimensions={}
  w = f32[5000] select(q, one, x)
  a = f32[5000] exponential(x)
  g = f32[5000] exponential(y)
  d = f32[5000] divide(g, z)
  b = f32[5000] select(q, d, z)
  c = f32[5000] select(p, a, b)
  ROOT r = f32[5000] multiply(c, w) }"""

# Forces of pairs, in blocks: what turned the places for them is read by nobody then.
PAIRS = f"""HloModule pairs
{SUM}
ENTRY e {{ p = f32[256,3] parameter(0)
  x = f32[256,3] sine(p)
  xi = f32[256,256,3] broadcast(x), dimensions={{0,2}}
  xj = f32[256,256,3] broadcast(x), dimensions={{1,2}}
  d = f32[256,256,3] subtract(xi, xj)
  w = f32[256,256,3] sine(d)
  zero = f32[] constant(0)
  s = f32[256,256,3] multiply(w, w)
  r = f32[256,256] reduce(s, zero), dimensions={{2}}, to_apply=sum
  rb = f32[256,256,3] broadcast(r), dimensions={{0,1}}
  f = f32[256,256,3] multiply(w, rb)
  g = f32[256,3] reduce(f, zero), dimensions={{1}}, to_apply=sum
  ROOT t = (f32[256,3], f32[256,3]) tuple(x, g) }}"""

# Blocks of rows add up two sums, of so many rows each.
SUMS = """HloModule sums
body { s = (s32[], f32[64,64], f32[FIRST,32], f32[SECOND,32], f32[100,64,32]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[64,64] get-tuple-element(s), index=1
  v = f32[FIRST,32] get-tuple-element(s), index=2
  w = f32[SECOND,32] get-tuple-element(s), index=3
  xs = f32[100,64,32] get-tuple-element(s), index=4
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  row = f32[1,64,32] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={1,64,32}
  x = f32[64,32] reshape(row)
  t = f32[64,64] tanh(h)
  a = f32[64,FIRST] slice(t), slice={[0:64], [0:FIRST]}
  b = f32[64,SECOND] slice(t), slice={[0:64], [FIRST:64]}
  dv = f32[FIRST,32] dot(a, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dw = f32[SECOND,32] dot(b, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  nv = f32[FIRST,32] add(v, dv)
  nw = f32[SECOND,32] add(w, dw)
  ROOT r = (s32[], f32[64,64], f32[FIRST,32], f32[SECOND,32], f32[100,64,32])
    tuple(j, t, nv, nw, xs) }
condition { s = (s32[], f32[64,64], f32[FIRST,32], f32[SECOND,32], f32[100,64,32]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(100)
  ROOT q = pred[] compare(i, n), direction=LT }
ENTRY e { h = f32[64,64] parameter(0)
  xs = f32[100,64,32] parameter(1)
  none = s32[] constant(0)
  zero = f32[] constant(0)
  m = f32[FIRST,32] broadcast(zero), dimensions={}
  n = f32[SECOND,32] broadcast(zero), dimensions={}
  s = (s32[], f32[64,64], f32[FIRST,32], f32[SECOND,32], f32[100,64,32]) tuple(none, h, m, n, xs)
  l = (s32[], f32[64,64], f32[FIRST,32], f32[SECOND,32], f32[100,64,32]) while(s),
    condition=condition, body=body
  v = f32[FIRST,32] get-tuple-element(l), index=2
  w = f32[SECOND,32] get-tuple-element(l), index=3
  ROOT r = (f32[FIRST,32], f32[SECOND,32]) tuple(v, w) }"""

# Those of one shape both begin with zero, those of two with zeros of one number.
TWO_SUMS, OTHER_SHAPES = (
    SUMS.replace("FIRST", str(first)).replace("SECOND", str(64 - first)) for first in (32, 48)
)

# A product of two rows is turned for the sum that reads it, and has two columns then.
TURNED_PRODUCT = """HloModule turned_product
ENTRY e { x = f32[9,2,2] parameter(0)
  y = f32[120,9,2] parameter(1)
  d = f32[9,2,120] dot(x, y), lhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_batch_dims={1}, rhs_contracting_dims={2}
  ROOT r = f32[120,9] dot(y, d), lhs_batch_dims={0,1}, lhs_contracting_dims={2},
    rhs_batch_dims={2,0}, rhs_contracting_dims={1} }"""

# A unit matrix is a kernel in the loop, which leaves it as little as the comparison did.
UNIT_IN_A_LOOP = """HloModule unit
body { s = (s32[], f32[3,3], f32[3,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[3,3] get-tuple-element(s), index=1
  z = f32[3,3] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  rows = s32[3,3] iota(), iota_dimension=0
  columns = s32[3,3] iota(), iota_dimension=1
  p = pred[3,3] compare(rows, columns), direction=EQ
  u = f32[3,3] convert(p)
  t = f32[3,3] triangular-solve(a, u), left_side=true, lower=true, unit_diagonal=true,
    transpose_a=NO_TRANSPOSE
  b = f32[3,3] sine(t)
  y = f32[3,3] add(z, b)
  ROOT r = (s32[], f32[3,3], f32[3,3]) tuple(j, b, y) }
condition { s = (s32[], f32[3,3], f32[3,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT q = pred[] compare(i, n), direction=LT }
ENTRY e { a = f32[3,3] parameter(0)
  z = f32[3,3] parameter(1)
  none = s32[] constant(0)
  s = (s32[], f32[3,3], f32[3,3]) tuple(none, a, z)
  l = (s32[], f32[3,3], f32[3,3]) while(s), condition=condition, body=body
  ROOT r = f32[3,3] get-tuple-element(l), index=2 }"""

# What a conditional in a loop chooses by is a constant before the loop.
CHOICE_BEFORE_A_LOOP = """HloModule choice
first { x = f32[64] parameter(0)
  ROOT y = f32[64] sine(x) }
second { x = f32[64] parameter(0)
  ROOT y = f32[64] cosine(x) }
body { s = (s32[], pred[], f32[64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  p = pred[] get-tuple-element(s), index=1
  x = f32[64] get-tuple-element(s), index=2
  z = f32[64] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = f32[64] conditional(p, x, x), true_computation=first, false_computation=second
  y = f32[64] multiply(z, c)
  w = f32[64] tanh(y)
  ROOT r = (s32[], pred[], f32[64], f32[64]) tuple(j, p, x, w) }
condition { s = (s32[], pred[], f32[64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT q = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[64] parameter(0)
  z = f32[64] parameter(1)
  none = s32[] constant(0)
  p = pred[] constant(true)
  s = (s32[], pred[], f32[64], f32[64]) tuple(none, p, x, z)
  l = (s32[], pred[], f32[64], f32[64]) while(s), condition=condition, body=body
  ROOT r = f32[64] get-tuple-element(l), index=3 }"""

# A block's results are all that the program gives: its tuple is the program's own.
ALL_IN_BLOCKS = """HloModule whole
ENTRY e { x = f32[2048,64] parameter(0)
  w = f32[64,512] parameter(1)
  v = f32[512,64] parameter(2)
  d = f32[2048,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[2048,512] tanh(d)
  r = f32[2048,64] dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[64,512] dot(x, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT o = (f32[2048,64], f32[64,512]) tuple(r, q) }"""

# Two formulas of one number become one each, of the same choice.
SAME_CHOICE = """HloModule chosen
ENTRY e { p = pred[500] parameter(0)
  x = f32[500] parameter(1)
  y = f32[500] parameter(2)
  z = f32[500] parameter(3)
  a = f32[500] exponential(x)
  b = f32[500] exponential(y)
  s = f32[500] select(p, a, b)
  c = f32[500] tanh(x)
  d = f32[500] tanh(y)
  t = f32[500] select(p, c, d)
  m = f32[500] multiply(s, z)
  ROOT r = f32[500] add(m, t) }"""

# What a product's sums go through leaves its fusion for the blocks, and is then what another
# product computes its factor by.
EPILOGUE_LEFT = """HloModule left
ENTRY e { x = f32[32,1,512] parameter(0)
  w = f32[32,512,64] parameter(1)
  d = f32[32,1,64] dot(x, w), lhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  b = f32[32,1,64] parameter(2)
  m = f32[32,1,64] maximum(d, b)
  v = f32[32,64,1] parameter(3)
  ROOT r = f32[32,1,1] dot(m, v), lhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1} }"""

PROGRAMS = {
    "shared body": SHARED_BODY,
    "constant": TURNED_CONSTANT,
    "one": ONE_AGAIN,
    "pairs": PAIRS,
    "two sums": TWO_SUMS,
    "other shapes": OTHER_SHAPES,
    "turned product": TURNED_PRODUCT,
    "unit in a loop": UNIT_IN_A_LOOP,
    "choice before a loop": CHOICE_BEFORE_A_LOOP,
    "all in blocks": ALL_IN_BLOCKS,
    "same choice": SAME_CHOICE,
    "epilogue left": EPILOGUE_LEFT,
}


def optimised(text: str) -> Module:
    module = driver.parse(text)
    Manager().run(module, parse_pipeline("default"))
    return module


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_the_default_twice_is_the_default_once(text: str) -> None:
    once = driver.to_text(optimised(text))
    assert driver.to_text(optimised(once)) == once


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_it_means_the_same(text: str) -> None:
    module = driver.parse(text)
    rng = np.random.default_rng(0)
    values = [
        rng.random(p.shape.dims) < 0.5
        if p.shape.dtype.is_pred
        else rng.standard_normal(p.shape.dims).astype(np.float32)
        for p in module.entry.parameters
    ]
    want, found = (leaves(driver.evaluate(m, *values)) for m in (module, optimised(text)))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_constant_is_turned_where_it_stands() -> None:
    module = driver.parse(TURNED_CONSTANT)
    Manager().run(module, parse_pipeline("dot-strength-reduction,reduction-operand-transposer"))
    (turned,) = (i for i in module.entry.instructions if i.opcode == "transpose")
    assert turned.operands[0].opcode == "constant"
    found = driver.to_text(module)
    assert "{ 1, 0, 0, 4 }" in found


@pytest.mark.parametrize("start", [0, 1])
def test_loops_of_one_body_count_once_where_they_start_alike(start: int) -> None:
    """The second loop's other counter starts with 0 too, or with 1: then it is no first counter."""
    text = SHARED_BODY.replace(
        "b = f32[64] call(y), to_apply=mixed", "b = f32[64] call(y), to_apply=other"
    )
    other = text[text.index("mixed {") : text.index("ENTRY")].replace("mixed {", "other {")
    other = other.replace("tuple(none, none, x)", "tuple(none, first, x)").replace(
        "  s = (", f"  first = s32[] constant({start})\n  s = (", 1
    )
    module = driver.parse(text.replace("ENTRY", other + "ENTRY"))
    values = [np.linspace(0, 1, 64, dtype=np.float32)] * 2
    want = driver.evaluate(module, *values)
    assert CATALOGUE["while-loop-ranges"](module) == (start == 0)
    np.testing.assert_array_equal(driver.evaluate(module, *values), want)
