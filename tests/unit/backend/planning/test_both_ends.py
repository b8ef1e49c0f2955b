"""Which kernels threads claim from both ends: what they meet again, no streams."""

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.ir.functions import Function
from hlo.backend.ir.kernel import Kernel
from hlo.backend.planning.program import KernelStep, LoopStep
from hlo.backend.planning.splitting import is_met_again
from hlo.driver import optimize
from hlo.machine import COMMON

NONE = Function(records=())

SUM = """HloModule m
ENTRY e {
  x = f32[16] parameter(0)
  ROOT y = f32[16] add(x, x)
}
"""
SINES = """HloModule m
body {
  s = (s32[], f32[400,900]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[400,900] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  r = f32[400,900] reverse(x), dimensions={0,1}
  y = f32[400,900] sine(r)
  ROOT t = (s32[], f32[400,900]) tuple(j, y)
}
condition {
  s = (s32[], f32[400,900]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(90)
  ROOT p = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[400,900] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[400,900]) tuple(zero, x)
  ROOT w = (s32[], f32[400,900]) while(s), condition=condition, body=body
}
"""
ADD = hlo.parse(SUM).entry.root
CACHE = COMMON.second_cache.bytes


def test_bytes_that_the_caches_hold_are_met_again() -> None:
    assert is_met_again(Kernel(NONE, 16, bytes_moved=2 * CACHE), ADD, 2, COMMON)
    assert is_met_again(Kernel(NONE, 16, bytes_moved=4 * CACHE), ADD, 4, COMMON)


def test_a_stream_larger_than_the_caches_is_not() -> None:
    assert not is_met_again(Kernel(NONE, 16, bytes_moved=4 * CACHE), ADD, 2, COMMON)


def test_arithmetic_hides_where_bytes_come_from() -> None:
    assert is_met_again(Kernel(NONE, 16, bytes_moved=4 * CACHE, flops=20_000_000), ADD, 2, COMMON)


def test_a_split_kernel_in_a_loop_is_claimed_from_both_ends() -> None:
    program = Compilation(optimize(hlo.parse(SINES), "default"), threads=2, passes="").program
    (loop,) = [s for s in program.steps if isinstance(s, LoopStep)]
    split = [s for s in loop.body if isinstance(s, KernelStep) and s.chunks > 1]
    assert split
    assert all(s.at_ends for s in split)
