"""Groups of block fusion that take results of each other."""

from __future__ import annotations

from hlo import driver
from hlo.ir.graph import is_topological, post_order
from hlo.passes.block_fusion import block_fusion

CROSSED = """HloModule crossed
sum_of { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ascending { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e {
  p = f32[64,60,128] parameter(0)
  q = f32[64,60,128] parameter(1)
  zero = f32[] constant(0)
  x = f32[64,60,128] exponential(p)
  y = f32[64,60,128] exponential(q)
  xs = f32[64] reduce(x, zero), dimensions={1,2}, to_apply=sum_of
  ys = f32[64] reduce(y, zero), dimensions={1,2}, to_apply=sum_of
  xt = f32[64] sort(xs), dimensions={0}, to_apply=ascending
  yt = f32[64] sort(ys), dimensions={0}, to_apply=ascending
  xb = f32[64,60,128] broadcast(xt), dimensions={0}
  yb = f32[64,60,128] broadcast(yt), dimensions={0}
  u = f32[64,60,128] add(x, yb)
  v = f32[64,60,128] add(y, xb)
  ROOT r = (f32[64,60,128], f32[64,60,128]) tuple(u, v) }"""


def test_groups_that_need_results_of_each_other_are_not_both_made() -> None:
    """x, xs, u could be one kernel and y, ys, v another, but u waits for ys and v for xs."""
    module = driver.parse(CROSSED)
    assert block_fusion(module)
    driver.verify(module)
    assert is_topological(post_order(module.entry))
    assert sum(i.opcode == "fusion" for i in module.entry.instructions) == 1
