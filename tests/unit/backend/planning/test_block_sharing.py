"""What every block of rows would make of a matrix that all of them read is made once, before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hlo import driver
from hlo.analysis.decisions import decisions_of
from hlo.backend.compilation import Compilation
from hlo.backend.planning.program import KernelStep, LoopStep, Step
from hlo.machine import NAMED
from hlo.parser.parse import parse
from tests.support.machines_here import that_run_here

NORM = """HloModule norm
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }}
rows {{ x = f32[{m},{k}] parameter(0)
  w = f32[{k},{n}] parameter(1)
  y = f32[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  z = f32[] constant(0)
  q = f32[{m},{n}] multiply(y, y)
  s = f32[{m}] reduce(q, z), dimensions={{1}}, to_apply=add
  t = f32[{m}] rsqrt(s)
  b = f32[{m},{n}] broadcast(t), dimensions={{0}}
  ROOT r = f32[{m},{n}] multiply(y, b) }}
"""
ONCE = """ENTRY e {{ x = f32[{m},{k}] parameter(0)
  w = f32[{k},{n}] parameter(1)
  ROOT r = f32[{m},{n}] call(x, w), to_apply=rows }}
"""
LOOP = """c {{ s = (s32[], f32[{m},{k}], f32[{k},{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT }}
b {{ s = (s32[], f32[{m},{k}], f32[{k},{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{m},{k}] get-tuple-element(s), index=1
  w = f32[{k},{n}] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[{m},{n}] call(x, w), to_apply=rows
  ROOT t = (s32[], f32[{m},{n}], f32[{k},{n}]) tuple(j, y, w) }}
ENTRY e {{ x = f32[{m},{k}] parameter(0)
  w = f32[{k},{n}] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[{m},{k}], f32[{k},{n}]) tuple(zero, x, w)
  l = (s32[], f32[{m},{k}], f32[{k},{n}]) while(t), condition=c, body=b
  ROOT r = f32[{m},{n}] get-tuple-element(l), index=1 }}
"""
SIZES = {"m": 4096, "k": 192, "n": 192}


def compiled(text: str, threads: int = 2, machine: str = "znver4", **sizes: int) -> Compilation:
    module = driver.optimize(parse(text.format(**sizes)))
    return Compilation(module, threads=threads, passes="", machine=NAMED[machine])


def kernels(steps: tuple[Step, ...]) -> list[str]:
    """What a list of steps runs, loops aside."""
    return [s.instruction.name for s in steps if isinstance(s, KernelStep)]


def test_the_matrix_that_all_blocks_multiply_by_is_packed_before_them() -> None:
    program = compiled(NORM + ONCE, **SIZES).program
    (packing, blocks) = [s for s in program.steps if isinstance(s, KernelStep)]
    assert packing.instruction is blocks.instruction
    assert decisions_of(blocks.instruction).block
    assert not program.kernels[packing.kernel].functions


def test_it_is_packed_before_a_loop_that_keeps_it() -> None:
    program = compiled(NORM + LOOP, **SIZES).program
    (loop,) = [s for s in program.steps if isinstance(s, LoopStep)]
    (blocks,) = [
        i for i in loop.instruction.called_computations()[0].instructions if decisions_of(i).block
    ]
    assert kernels(program.steps).count(blocks.name) == kernels(loop.body).count(blocks.name) == 1


def test_each_head_packs_its_own() -> None:
    """A factor that differs from head to head is no block's alone, and nobody's before."""
    text = (Path(__file__).parents[3] / "golden" / "loops" / "blocked.hlo").read_text()
    assert len(kernels(compiled(text.replace("{", "{{").replace("}", "}}")).program.steps)) == 1


@pytest.mark.parametrize("text", [ONCE, LOOP], ids=["once", "loop"])
@pytest.mark.parametrize("m", [4096, 4000, 3331])
def test_blocks_compute_what_the_reference_does(text: str, m: int) -> None:
    sizes = {**SIZES, "m": m}
    rng = np.random.default_rng(0)
    x = rng.standard_normal((m, 192)).astype(np.float32)
    w = rng.standard_normal((192, 192)).astype(np.float32) / 20
    machine = that_run_here("znver4", "x86-64-v3", "x86-64")[0]
    runs = [compiled(NORM + text, n, machine, **sizes).executable(x, w) for n in (1, 2, 3, 7)]
    found = [np.asarray(run) for run in runs]
    wanted = driver.evaluate(parse((NORM + text).format(**sizes)), x, w)
    np.testing.assert_allclose(found[0], np.asarray(wanted), rtol=1e-4, atol=1e-5)
    assert all(np.array_equal(found[0], other) for other in found)
