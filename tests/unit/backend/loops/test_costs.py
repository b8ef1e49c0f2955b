"""What the cost model is told of a staged kernel: operations and bytes."""

from __future__ import annotations

from hlo import driver
from hlo.backend.ir.kernel import Kernel
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.linking.toolchain import host_target

ROWS, WIDTH = 64, 256

SOFTMAX = f"""HloModule softmax
max {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }}
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
ENTRY e {{
  x = f32[{ROWS},{WIDTH}] parameter(0)
  low = f32[] constant(-inf)
  m = f32[{ROWS}] reduce(x, low), dimensions={{1}}, to_apply=max
  mb = f32[{ROWS},{WIDTH}] broadcast(m), dimensions={{0}}
  d = f32[{ROWS},{WIDTH}] subtract(x, mb)
  y = f32[{ROWS},{WIDTH}] exponential(d)
  zero = f32[] constant(0)
  s = f32[{ROWS}] reduce(y, zero), dimensions={{1}}, to_apply=sum
  sb = f32[{ROWS},{WIDTH}] broadcast(s), dimensions={{0}}
  ROOT q = f32[{ROWS},{WIDTH}] divide(y, sb)
}}"""

UPDATE = """HloModule update
ENTRY e {
  x = f32[1000,64] parameter(0)
  u = f32[1,64] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  n = f32[1,64] negate(u)
  ROOT r = f32[1000,64] dynamic-update-slice(x, n, i, z)
}"""

ROW = """HloModule row
ENTRY e {
  x = f32[1000,64] parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  s = f32[1,64] dynamic-slice(x, i, z), dynamic_slice_sizes={1,64}
  ROOT n = f32[1,64] negate(s)
}"""


def kernel_of(text: str) -> Kernel:
    """The kernel of the one fusion that the module becomes."""
    module = driver.optimize(driver.parse(text))
    (fusion,) = (i for i in module.entry.instructions if i.opcode == "fusion")
    return fused_kernel(fusion, host_target())


def test_operations_of_softmax_grow_with_its_elements_only() -> None:
    kernel = kernel_of(SOFTMAX)
    elements = ROWS * WIDTH
    assert 20 * elements <= kernel.flops <= 40 * elements
    assert kernel.bytes_moved == 2 * 4 * elements


def test_an_update_in_place_moves_its_window_only() -> None:
    kernel = kernel_of(UPDATE)
    assert kernel.must_alias
    assert kernel.bytes_moved < 4 * 64 * 4


def test_a_dynamic_slice_reads_its_window_only() -> None:
    assert kernel_of(ROW).bytes_moved < 4 * 64 * 4
