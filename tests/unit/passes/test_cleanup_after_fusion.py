"""What fusion leaves is taken away, what it did is said, and what it made stays as it is."""

from __future__ import annotations

import pytest

import hlo
from hlo import driver
from hlo.ir.graph import clone_module
from hlo.passes.fusion.fusion import fusion
from hlo.passes.manager import Manager

DEAD = """HloModule m
ENTRY e {
  x = f32[3] parameter(0)
  dead = f32[5] iota(), iota_dimension=0
  ROOT y = f32[3] negate(x)
}"""
CONVERTED = """HloModule m
best {
  v = f32[] parameter(0)
  i = s32[] parameter(1)
  w = f32[] parameter(2)
  j = s32[] parameter(3)
  is = pred[] compare(v, w), direction=GE
  value = f32[] select(is, v, w)
  place = s32[] select(is, i, j)
  ROOT t = (f32[], s32[]) tuple(value, place)
}
fused {
  x = f32[7,40] parameter(0)
  places = s32[7,40] iota(), iota_dimension=1
  low = f32[] constant(-inf)
  zero = s32[] constant(0)
  ROOT r = (f32[7], s32[7]) reduce(x, places, low, zero), dimensions={1}, to_apply=best
}
ENTRY e {
  x = f32[7,40] parameter(0)
  both = (f32[7], s32[7]) fusion(x), kind=kInput, calls=fused
  place = s32[7] get-tuple-element(both), index=1
  ROOT c = f32[7] convert(place)
}"""
SIBLINGS = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }
ENTRY e {
  x = f32[3000000] parameter(0)
  zero = f32[] constant(0)
  low = f32[] constant(-inf)
  sum = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  squares = f32[3000000] multiply(x, x)
  second = f32[] reduce(squares, zero), dimensions={0}, to_apply=add
  greatest = f32[] reduce(x, low), dimensions={0}, to_apply=most
  ROOT t = (f32[], f32[], f32[]) tuple(sum, second, greatest)
}"""
MOMENTS = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[64,100] parameter(0)
  zero = f32[] constant(0)
  s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  n = f32[] constant(0.01)
  nb = f32[64] broadcast(n), dimensions={}
  mean = f32[64] multiply(s, nb)
  mb = f32[64,100] broadcast(mean), dimensions={0}
  d = f32[64,100] subtract(x, mb)
  q = f32[64,100] multiply(d, d)
  v = f32[64] reduce(q, zero), dimensions={1}, to_apply=add
  ROOT r = (f32[64], f32[64]) tuple(mean, v)
}"""
CONVOLUTION = """HloModule m
ENTRY e {
  x = f32[2,8,9,3] parameter(0)
  w = f32[2,3,3,4] parameter(1)
  b = f32[2,7,7,4] parameter(2)
  c = f32[2,7,7,4] convolution(x, w), window={size=2x3}, dim_labels=b01f_01io->b01f
  ROOT r = f32[2,7,7,4] add(c, b)
}"""


@pytest.mark.parametrize("text", [DEAD, CONVERTED])
def test_fusion_says_what_it_removed_and_moved(text: str) -> None:
    module = hlo.parse(text)
    before = str(module)
    assert fusion(module)
    assert str(module) != before
    assert not fusion(clone_module(module))


def test_results_that_are_packed_again_are_the_fusions_own_tuple() -> None:
    module = driver.optimize(hlo.parse(MOMENTS))
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "fusion"]


def test_kernels_that_join_have_one_reshape_and_one_start() -> None:
    module = driver.optimize(hlo.parse(SIBLINGS))
    (kernel,) = [c for c in module.computations if c.name.startswith("fused_computation")]
    opcodes = [i.opcode for i in kernel.instructions]
    assert opcodes.count("reshape") == 2  # of x, and of its squares
    assert opcodes.count("constant") == 2  # of sums, and of the maximum


def test_a_convolution_that_is_finished_in_its_kernel_stays_fused() -> None:
    module = driver.optimize(hlo.parse(CONVOLUTION))
    assert "kind=kOutput" in str(module)
    assert not any(
        run.changed for run in _runs(module) if run.step.name in ("fusion-opener", "fusion")
    )


def _runs(module: hlo.Module) -> list:  # type: ignore[type-arg]
    manager = Manager()
    driver.optimize(module, manager=manager)
    return manager.runs
