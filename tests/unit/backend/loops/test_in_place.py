"""In place: results over operands that reductions read."""

from __future__ import annotations

import numpy as np

from hlo import driver
from hlo.backend.ir.kernel import Kernel
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.linking.toolchain import host_target
from hlo.ir.instruction import Instruction

ADD = """add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
"""
# Element [i,j] adds up x[i,r] * y[j,r]: all of a row of x is read again for each element of it.
PRODUCT = """{0} {{ x = f32[64,8] parameter(0)
  y = f32[8,8] parameter(1)
  bx = f32[64,8,8] broadcast(x), dimensions={{0,2}}
  by = f32[64,8,8] broadcast(y), dimensions={{1,2}}
  m = f32[64,8,8] multiply(bx, by)
  z = f32[] constant(0)
  ROOT r = f32[64,8] reduce(m, z), dimensions={{2}}, to_apply=add }}
"""
TWICE = f"""HloModule twice
{ADD}{PRODUCT.format("first")}{PRODUCT.format("second")}
ENTRY e {{ x = f32[64,8] parameter(0)
  y = f32[8,8] parameter(1)
  a = f32[64,8] fusion(x, y), kind=kInput, calls=first
  b = f32[64,8] fusion(a, y), kind=kInput, calls=second
  ROOT n = f32[64,8] negate(b) }}"""
SHARES = f"""HloModule shares
{ADD}ENTRY e {{ x = f32[64,8] parameter(0)
  z = f32[] constant(0)
  t = f32[64] reduce(x, z), dimensions={{1}}, to_apply=add
  ts = f32[64,8] broadcast(t), dimensions={{0}}
  ROOT r = f32[64,8] divide(x, ts) }}"""


def in_place(fusion: Instruction) -> frozenset[tuple[int, int]]:
    made = fused_kernel(fusion, host_target())
    assert isinstance(made, Kernel)
    return made.in_place


def test_a_row_that_each_of_its_results_adds_up_is_not_overwritten() -> None:
    (second,) = driver.parse(TWICE).entry.root.operands
    assert (0, 0) not in in_place(second)
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((64, 8), np.float32), rng.standard_normal((8, 8), np.float32)
    found = driver.compile(driver.parse(TWICE), passes="")(x, y)
    np.testing.assert_allclose(found, -(x @ y.T @ y.T), rtol=1e-4, atol=1e-4)


def test_a_row_that_is_added_up_once_is_overwritten() -> None:
    assert (0, 0) in in_place(driver.optimize(driver.parse(SHARES)).entry.root)
