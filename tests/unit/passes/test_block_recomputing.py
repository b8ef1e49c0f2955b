"""What blocks compute again: scores of attention (test_block_sums.py), and no convolutions."""

from hlo import driver
from hlo.analysis.blocks.blocked import is_blocked

GATED = """HloModule gated
add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT t = f32[] add(p, q) }
ENTRY e {
  x = f32[8,56,56,24] parameter(0)
  a = f32[1,1,24,144] parameter(1)
  w = f32[3,3,1,144] parameter(2)
  b = f32[1,1,144,24] parameter(3)
  z = f32[] constant(0)
  zs = f32[8,56,56,144] broadcast(z), dimensions={}
  h = f32[8,56,56,144] convolution(x, a), window={size=1x1}, dim_labels=b01f_01io->b01f
  h1 = f32[8,56,56,144] maximum(h, zs)
  d = f32[8,56,56,144] convolution(h1, w), window={size=3x3 pad=1_1x1_1},
    dim_labels=b01f_01io->b01f, feature_group_count=144
  d1 = f32[8,56,56,144] maximum(d, zs)
  m = f32[8,144] reduce(d1, z), dimensions={1,2}, to_apply=add
  c = f32[144,144] parameter(4)
  e1 = f32[8,144] dot(m, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[8,144] tanh(e1)
  sb = f32[8,56,56,144] broadcast(s), dimensions={0,3}
  g = f32[8,56,56,144] multiply(d1, sb)
  ROOT r = f32[8,56,56,24] convolution(g, b), window={size=1x1}, dim_labels=b01f_01io->b01f
}
"""


def test_what_convolutions_made_is_kept_for_the_block_that_gates_it() -> None:
    module = driver.optimize(driver.parse(GATED))
    blocks = [i for c in module.computations for i in c.instructions if i.opcode == "fusion"]
    assert sum(map(is_blocked, blocks)) == 2
    windows = [i for c in module.computations for i in c.instructions if i.opcode == "convolution"]
    assert len(windows) == 3
