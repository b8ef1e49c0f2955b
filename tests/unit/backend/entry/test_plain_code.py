"""Plain code: kernels for which LLVM's level of glue serves, and kernels of one unit."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.entry.kernel_modules import plain_code
from hlo.backend.entry.llvm_ir import emit
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.kernel import STRAIGHT_LINES, Kernel, is_straight
from hlo.backend.planning.brevity import LOST, MOST_LOST_US, brief_kernels, brief_loops
from hlo.backend.planning.program import KernelStep, LoopStep, kernel_steps, nested
from hlo.tools.cases.inputs import made_up_inputs

SCALAR = """HloModule m
ENTRY e {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  s = f32[] sine(x)
  ROOT r = f32[] add(s, y)
}
"""

# 100 sums over rows, each in lanes of its own: a loop over rows carries all of them.
COLUMNS = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[48,100] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[100] reduce(x, zero), dimensions={0}, to_apply=sum
}
"""
LOOP = """HloModule m
body {
  s = (s32[], f32[64], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  m = f32[64,64] get-tuple-element(s), index=2
  y = f32[64] dot(m, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[64] tanh(y)
  ROOT r = (s32[], f32[64], f32[64,64]) tuple(next, z, m)
}
test {
  s = (s32[], f32[64], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(50)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[64] parameter(0)
  m = f32[64,64] parameter(1)
  zero = s32[] constant(0)
  c = f32[64] cosine(x)
  s = (s32[], f32[64], f32[64,64]) tuple(zero, c, m)
  w = (s32[], f32[64], f32[64,64]) while(s), condition=test, body=body
  ROOT r = f32[64] get-tuple-element(w), index=1
}
"""


def of_length(length: int) -> Compilation:
    body = f"x = f32[{length}] parameter(0) ROOT r = f32[{length}] negate(x)"
    text = f"HloModule m\nENTRY e {{ {body} }}"
    return Compilation(hlo.parse(text), threads=1, cache=False)


def only_kernel(made: Compilation) -> Kernel:
    (kernel,) = made.program.kernels
    return kernel


def test_a_few_lines_that_run_once_are_plain_code() -> None:
    assert [m.is_glue for m in of_length(16).ir] == [True]
    assert [m.is_glue for m in of_length(1 << 20).ir] == [False], "it has a loop"


def test_code_for_files_is_not() -> None:
    assert [m.is_glue for m in emit(of_length(16).program, workers=1)] == [False]


def test_loops_functions_and_long_kernels_are_not() -> None:
    short = only_kernel(of_length(16))
    assert is_straight(short)
    assert not is_straight(only_kernel(of_length(4096)))
    function = Compilation(hlo.parse(SCALAR), threads=1, cache=False).program.kernels[0]
    assert function.length > STRAIGHT_LINES or function.globals
    assert not is_straight(function)
    assert plain_code({"k": short}, None) == {}


def test_what_takes_little_of_a_run_is_plain_code() -> None:
    brief = of_length(1000)
    assert brief_kernels(brief.program) == {0}
    assert [m.is_glue for m in brief.ir] == [True]
    assert not brief_kernels(of_length(1 << 20).program)


def test_what_takes_little_of_a_long_run_is_plain_code() -> None:
    large, small = 1 << 24, 400
    text = f"""HloModule m ENTRY e {{
  x = f32[{large}] parameter(0)
  y = f32[{small}] parameter(1)
  a = f32[{large}] exponential(x)
  b = f32[{small}] exponential(y)
  ROOT r = (f32[{large}], f32[{small}]) tuple(a, b)
}}"""
    made = Compilation(hlo.parse(text), passes="", threads=1, cache=False)
    steps = {s.instruction.name: s.kernel for s in kernel_steps(made.program)}
    assert brief_kernels(made.program) == {steps["b"]}


def test_what_a_loop_runs_is_not() -> None:
    program = Compilation(hlo.parse(LOOP), threads=1, cache=False).program
    (loop,) = (step for step in program.steps if isinstance(step, LoopStep))
    inside = {step.kernel for step in nested([loop]) if isinstance(step, KernelStep)}
    assert inside
    assert not inside & brief_kernels(program)
    assert brief_kernels(program), "what the loop begins with runs once"


def test_what_carries_many_vectors_is_not() -> None:
    program = Compilation(hlo.parse(COLUMNS), threads=1, cache=False).program
    assert LOST * program.cost_us < MOST_LOST_US
    assert not brief_kernels(program)


@pytest.mark.parametrize("text", [SCALAR, LOOP, COLUMNS], ids=["scalar", "loop", "columns"])
def test_plain_code_gives_the_same_bits(text: str) -> None:
    made = Compilation(hlo.parse(text), threads=1, cache=False)
    other = Compilation(made.module, threads=1, cache=False)
    vars(other)["ir"] = tuple(replace(m, is_glue=not m.is_glue) for m in made.ir)
    values = made_up_inputs(made.module)
    np.testing.assert_array_equal(made.executable(*values), other.executable(*values))


@pytest.mark.parametrize("length", [1, 7, 16, 40, 1000])
def test_a_kernel_of_one_unit_does_not_look_at_its_range(length: int) -> None:
    made = of_length(length)
    kernel = only_kernel(made)
    assert kernel.units == 1
    assert not any(o.text == "%begin" for r in kernel.function.records for o in r.operands)
    x = np.arange(length, dtype=np.float32)
    np.testing.assert_array_equal(made.executable(x), -x)


def test_a_kernel_of_several_units_does() -> None:
    made = of_length(1 << 20)
    kernel = only_kernel(made)
    assert kernel.units > 1
    assert any(o.text == "%begin" for r in kernel.function.records for o in r.operands)
    assert symbol(kernel) in made.ir[0].symbols


@pytest.mark.parametrize(("trips", "is_brief"), [(4, True), (4000, False), (None, False)])
def test_loops_of_few_trips_call_their_kernels(trips: int | None, *, is_brief: bool) -> None:
    """Of a bound that the program is given nobody knows how many trips there are."""
    bound = "get-tuple-element(s), index=2" if trips is None else f"constant({trips})"
    text = f"""HloModule m
body {{ s = (s32[], f32[90], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[90] get-tuple-element(s), index=1
  n = s32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[90] reverse(x), dimensions={{0}}
  z = f32[90] multiply(y, y)
  ROOT r = (s32[], f32[90], s32[]) tuple(j, z, n) }}
condition {{ s = (s32[], f32[90], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] {bound}
  ROOT c = pred[] compare(i, n), direction=LT }}
ENTRY e {{ x = f32[90] parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[90], s32[]) tuple(zero, x, n)
  w = (s32[], f32[90], s32[]) while(s), condition=condition, body=body
  ROOT r = f32[90] get-tuple-element(w), index=1 }}"""
    module = hlo.parse(text)
    made = Compilation(module, threads=1, cache=False)
    assert bool(brief_loops(made.program)) == is_brief
    assert any("hlo_loop_" in m.text for m in made.ir) != is_brief
    x = np.linspace(0.5, 1, 90, dtype=np.float32)
    want = hlo.evaluate(module, x, np.int32(4))
    if trips != 4000:  # the others run so often
        np.testing.assert_array_equal(made.executable(x, np.int32(4)), want)
