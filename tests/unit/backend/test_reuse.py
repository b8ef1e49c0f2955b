"""Between two uses of an array a run touches others: its distance says where its bytes lie."""

from __future__ import annotations

from hlo.backend.compilation import Compilation
from hlo.backend.planning.program import KernelStep
from hlo.backend.profiling.reuse import distances
from hlo.parser.parse import parse

CHAIN = """HloModule m
ENTRY e {
  x = f32[1024] parameter(0)
  y = f32[4096] parameter(1)
  a = f32[1024] negate(x)
  b = f32[4096] exponential(y)
  c = f32[1024] sine(a)
  ROOT t = (f32[4096], f32[1024]) tuple(b, c)
}
"""
LOOP = """HloModule m
body {
  s = (s32[], f32[256], f32[65536]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[256] get-tuple-element(s), index=1
  w = f32[65536] get-tuple-element(s), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  e = f32[256] sine(v)
  ROOT r = (s32[], f32[256], f32[65536]) tuple(n, e, w)
}
until {
  s = (s32[], f32[256], f32[65536]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT l = pred[] compare(i, n), direction=LT
}
ENTRY e {
  v = f32[256] parameter(0)
  w = f32[65536] parameter(1)
  z = s32[] constant(0)
  s = (s32[], f32[256], f32[65536]) tuple(z, v, w)
  l = (s32[], f32[256], f32[65536]) while(s), condition=until, body=body
  a = f32[256] get-tuple-element(l), index=1
  b = f32[65536] get-tuple-element(l), index=2
  c = f32[65536] negate(b)
  ROOT r = (f32[256], f32[65536]) tuple(a, c)
}
"""


def found(text: str) -> dict[str, dict[int, int]]:
    """By instruction: bytes touched since, by bytes of the array."""
    program = Compilation(parse(text), passes="", threads=1).program
    return {
        step.instruction.name: {size: far for size, far in since if size > 64}
        for step, since in distances(program).items()
        if isinstance(step, KernelStep)
    }


def test_what_was_made_just_now_is_near_and_arguments_are_a_run_away() -> None:
    by_name = found(CHAIN)
    k = 1024
    assert by_name["b"][16 * k] > 32 * k, "its argument was read a run ago"
    assert max(by_name["c"].values()) <= 48 * k
    far = max(by_name["a"].values())
    assert far >= 40 * k, "the program's argument: all that a run touches lies between"


def test_a_loop_s_steps_follow_each_other() -> None:
    assert max(found(LOOP)["e"].values()) < 4096, "what the loop hands on unchanged is not touched"
