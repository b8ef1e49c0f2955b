"""Loops that are unrolled: which of small arrays are, and that nothing is left behind."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from tests.support.deep_programs import INPUT, whiles

LEVELS = 20


def test_bodies_of_nested_loops_go_with_their_loops() -> None:
    """Each holds all inner ones once they are unrolled: together many times what is left."""
    module = hlo.parse(whiles(LEVELS))
    made = hlo.optimize(module, passes="while-loop-unroller")
    assert [c.name for c in made.computations] == [made.entry.name]
    assert [i.opcode for i in made.entry.instructions].count("sine") == 1
    np.testing.assert_array_equal(hlo.evaluate(made, INPUT), hlo.evaluate(module, INPUT))


# Each trip takes its summand out of a small array that the trips turn: no element goes through the
# loop by itself.
TURNING = """HloModule turning
body { s = (s32[], f32[90], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[90] get-tuple-element(s), index=1
  k = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  f = f32[1] slice(k), slice={[0:1]}
  g = f32[] reshape(f)
  b = f32[90] broadcast(g), dimensions={}
  y = f32[90] OP(x, b)
  l = f32[3] slice(k), slice={[1:4]}
  m = f32[4] concatenate(l, f), dimensions={0}
  ROOT r = (s32[], f32[90], f32[4]) tuple(j, y, m) }
condition { s = (s32[], f32[90], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[90] parameter(0)
  k = f32[4] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[90], f32[4]) tuple(zero, x, k)
  w = (s32[], f32[90], f32[4]) while(s), condition=condition, body=body
  ROOT r = f32[90] get-tuple-element(w), index=1 }"""


@pytest.mark.parametrize(("op", "is_line"), [("add", True), ("power", False)])
def test_small_arrays_with_little_arithmetic_are_a_line(op: str, *, is_line: bool) -> None:
    module = hlo.parse(TURNING.replace("OP", op))
    made = hlo.optimize(module, passes="while-loop-unroller")
    assert is_line == all(i.opcode != "while" for i in made.entry.instructions)
    arguments = np.linspace(1, 2, 90, dtype=np.float32), np.float32([0.5, 1, 2, 0.25])
    found, want = (hlo.evaluate(m, *arguments) for m in (made, module))
    np.testing.assert_array_equal(found, want)
