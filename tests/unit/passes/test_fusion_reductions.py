"""Reductions inside fusions: however long rows are, no element is read more often than by each
stage."""

import pytest

from hlo import driver
from hlo.backend.kernels.fused_loops import enter_operands, lanes_of
from hlo.backend.linking.toolchain import host_target
from hlo.backend.loops.choose import schedules_of
from hlo.backend.loops.costs import evaluations
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.outputs import outputs_of
from hlo.ir.instruction import Instruction

SOFTMAX = """HloModule m
max {{ a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] maximum(a, b) }}
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  x = {t}[{n},{m}] parameter(0)
  low = {t}[] constant(-inf)
  zero = f32[] constant(0)
  top = {t}[{kept}] reduce(x, low), dimensions={{{axis}}}, to_apply=max
  tops = {t}[{n},{m}] broadcast(top), dimensions={{{other}}}
  d = {t}[{n},{m}] subtract(x, tops)
  e = {t}[{n},{m}] exponential(d)
  w = f32[{n},{m}] convert(e)
  s = f32[{kept}] reduce(w, zero), dimensions={{{axis}}}, to_apply=sum
  r = {t}[{kept}] convert(s)
  rs = {t}[{n},{m}] broadcast(r), dimensions={{{other}}}
  ROOT out = {t}[{n},{m}] divide(e, rs)
}}"""
SHAPES = [(16, 131072), (1, 300001), (3, 70000), (131072, 16), (70000, 3), (257, 1025), (2048, 96)]


def reads_of(kernel: Instruction) -> int:
    """How many elements a loop kernel reads, each as often as it does."""
    target = host_target()
    expression = Expression(target)
    count = enter_operands(expression, kernel)
    outputs = outputs_of(expression, kernel, count)
    schedules = schedules_of(expression, outputs, lanes_of(kernel, target))
    return sum(evaluations([r.position]) for s in schedules for r in s.domain.trace.reads)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("t", ["f32", "bf16"])
def test_long_reductions_are_never_repeated_per_element(n: int, m: int, axis: int, t: str) -> None:
    text = SOFTMAX.format(n=n, m=m, t=t, axis=axis, other=1 - axis, kept=(n, m)[1 - axis])
    module = driver.optimize(driver.parse(text))
    kernels = [i for i in module.entry.instructions if i.opcode in ("fusion", "reduce")]
    assert kernels
    assert sum(map(reads_of, kernels)) <= 8 * n * m


@pytest.mark.parametrize(("length", "kernels"), [(200, 1), (3000, 2)])
def test_a_number_that_long_sums_need_is_no_part_of_their_kernel(length: int, kernels: int) -> None:
    text = f"""HloModule m
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  x = f32[{length}] parameter(0)
  y = f32[70] parameter(1)
  zero = f32[] constant(0)
  width = f32[] reduce(x, zero), dimensions={{0}}, to_apply=sum
  widths = f32[70,{length}] broadcast(width), dimensions={{}}
  xs = f32[70,{length}] broadcast(x), dimensions={{1}}
  ys = f32[70,{length}] broadcast(y), dimensions={{0}}
  d = f32[70,{length}] subtract(xs, ys)
  q = f32[70,{length}] divide(d, widths)
  e = f32[70,{length}] exponential(q)
  ROOT out = f32[70] reduce(e, zero), dimensions={{1}}, to_apply=sum
}}"""
    module = driver.optimize(driver.parse(text))
    made = [i for i in module.entry.instructions if i.opcode in ("fusion", "reduce")]
    assert len(made) == kernels
