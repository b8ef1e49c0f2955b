"""Totally ordered searches in constant tables: integers decide what floats did, for every float."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver

COUNT = """HloModule m
body {{
  state = (s32[], s32[], {t}[], {t}[{n}]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  count = s32[] get-tuple-element(state), index=1
  x = {t}[] get-tuple-element(state), index=2
  table = {t}[{n}] get-tuple-element(state), index=3
  one = s32[] constant(1)
  next = s32[] add(i, one)
  taken = {t}[1] dynamic-slice(table, i), dynamic_slice_sizes={{1}}
  element = {t}[] reshape(taken)
  less = pred[] compare(x, element), direction={d}, type=TOTALORDER
  as = s32[] convert(less)
  counted = s32[] add(count, as)
  ROOT t = (s32[], s32[], {t}[], {t}[{n}]) tuple(next, counted, x, table)
}}
cond {{
  state.1 = (s32[], s32[], {t}[], {t}[{n}]) parameter(0)
  i.1 = s32[] get-tuple-element(state.1), index=0
  limit = s32[] constant({n})
  ROOT more = pred[] compare(i.1, limit), direction=LT
}}
ENTRY e {{
  x = {t}[] parameter(0)
  zero = s32[] constant(0)
  known = {t}[{n}] constant({{-inf, -3, -0, 0, 1e-30, 2, 2, 5, inf, nan, -nan}})
  start = (s32[], s32[], {t}[], {t}[{n}]) tuple(zero, zero, x, known)
  loop = (s32[], s32[], {t}[], {t}[{n}]) while(start), condition=cond, body=body
  ROOT r = s32[] get-tuple-element(loop), index=1
}}"""


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("direction", ["LT", "GE", "EQ"])
def test_keys_of_constant_tables_keep_the_total_order(dtype: str, direction: str) -> None:
    module = driver.parse(COUNT.format(t=dtype, d=direction, n=11))
    assert "TOTALORDER" not in driver.to_text(driver.optimize(module))
    run = driver.compile(module, cache=False)
    kind = module.entry.parameters[0].shape.dtype.numpy
    for x in (-np.inf, -3.0, -0.0, 0.0, 1.5, 2.0, np.inf, np.nan, -np.nan):
        value = np.array(x).astype(kind)
        assert run(value) == driver.evaluate(module, value)


CHAIN = """HloModule m
body {
  state = (s32[], s32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  table = s32[4] constant({0, 3, 0, 5})
  taken = s32[1] dynamic-slice(table, i), dynamic_slice_sizes={1}
  x = s32[] reshape(taken)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = s32[] multiply(x, x)
  b = s32[] negate(a)
  c = s32[] add(b, one)
  x0 = s32[] get-tuple-element(state), index=1
  y0 = s32[] get-tuple-element(state), index=2
  z0 = s32[] get-tuple-element(state), index=3
  x1 = s32[] subtract(x0, a)
  y1 = s32[] maximum(y0, b)
  z1 = s32[] xor(z0, c)
  ROOT t = (s32[], s32[], s32[], s32[]) tuple(next, x1, y1, z1)
}
condition {
  state.1 = (s32[], s32[], s32[], s32[]) parameter(0)
  i.1 = s32[] get-tuple-element(state.1), index=0
  four = s32[] constant(4)
  ROOT less = pred[] compare(i.1, four), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  p = s32[] parameter(0)
  start = (s32[], s32[], s32[], s32[]) tuple(zero, p, p, p)
  ROOT loop = (s32[], s32[], s32[], s32[]) while(start), condition=condition, body=body
}"""


def test_every_value_of_a_chain_has_its_own_table() -> None:
    module = driver.parse(CHAIN)
    moved = driver.optimize(module, "table-lookup-mover,dce")
    text = driver.to_text(moved)
    for values in ("0, 9, 0, 25", "0, -9, 0, -25", "1, -8, 1, -24"):
        assert f"constant({{{values}}})" in text
    run = driver.compile(module, cache=False)
    assert run(np.int32(7)) == driver.evaluate(module, np.int32(7))


def test_a_place_may_be_looked_up_itself() -> None:
    text = CHAIN.replace(
        "  b = s32[] negate(a)\n",
        "  known = s32[6] constant({0, 2, 4, 8, 16, 32})\n"
        "  taken.2 = s32[1] dynamic-slice(known, a), dynamic_slice_sizes={1}\n"
        "  element = s32[] reshape(taken.2)\n"
        "  b = s32[] negate(element)\n",
    )
    module = driver.parse(text)
    moved = driver.to_text(driver.optimize(module, "table-lookup-mover,dce"))
    assert "constant({0, -2, -4, -8, -16, -32})" in moved
    assert driver.compile(module, cache=False)(np.int32(7)) == driver.evaluate(module, np.int32(7))
