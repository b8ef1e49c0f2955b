"""What a machine's caches and rates change: blocks, kept rows, lines, splits; and what they do not.

That bits stay is tests/property/test_bits_of_machines.py's.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.planning.program import KernelStep, LoopStep, Program
from hlo.backend.planning.team import Team
from hlo.cli.machine_flags import machine_of
from hlo.machine import Machine
from hlo.parser.parse import parse
from tests.support.command import call

BASE = {
    "name": "mine",
    "triple": "x86_64-unknown-linux-gnu",
    "features": ["sse2", "avx", "avx2", "fma"],
    "vector_bytes": 32,
}
SMALL = [{"bytes": 8192, "ways": 4}, {"bytes": 131072, "ways": 4}]
REDUCER = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
"""
PRODUCT = """HloModule m
ENTRY e {
  x = f32[600,700] parameter(0)
  y = f32[700,2000] parameter(1)
  ROOT d = f32[600,2000] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
SOFTMAX = f"""{REDUCER}
  x = f32[64,6000] parameter(0)
  e = f32[64,6000] exponential(x)
  z = f32[] constant(0)
  s = f32[64] reduce(e, z), dimensions={{1}}, to_apply=add
  w = f32[64,6000] broadcast(s), dimensions={{0}}
  ROOT q = f32[64,6000] divide(e, w)
}}"""
LOOP = """HloModule m
body {
  s = (s32[], f32[64,64], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,64] get-tuple-element(s), index=1
  y = f32[64,64] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  d = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[64,64], f32[64,64]) tuple(j, d, y)
}
condition {
  s = (s32[], f32[64,64], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(90)
  ROOT p = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[64,64], f32[64,64]) tuple(zero, x, y)
  ROOT w = (s32[], f32[64,64], f32[64,64]) while(s), condition=condition, body=body
}"""


@pytest.fixture
def mine(tmp_path: Path) -> Machine:
    return described(tmp_path)


def described(folder: Path, **fields: object) -> Machine:
    """The machine of a file that says these fields too."""
    path = folder / "machine.json"
    path.write_text(json.dumps(BASE | fields))
    machine = machine_of(str(path), None, None)
    assert machine is not None
    return machine


def program(text: str, machine: Machine, passes: str = "default") -> Program:
    module = driver.optimize(parse(text), passes=passes)
    return Compilation(module, threads=2, machine=machine, passes="").program


def kernel_steps(made: Program) -> list[KernelStep]:
    return [s for s in made.steps if isinstance(s, KernelStep)]


def test_smaller_caches_part_a_product_into_more_blocks(mine: Machine, tmp_path: Path) -> None:
    units = [
        max(k.units for k in program(PRODUCT, machine).kernels)
        for machine in (mine, described(tmp_path, caches=SMALL))
    ]
    assert units[0] < units[1]


def test_rows_are_kept_where_they_stay_in_the_cache(mine: Machine, tmp_path: Path) -> None:
    """A row of 24,000 bytes: the exponential is computed once, or by both stages."""
    kept, again = (
        program(SOFTMAX, machine).kernels[0].text
        for machine in (mine, described(tmp_path, caches=SMALL))
    )
    assert "alloca [24000 x i8]" in kept
    assert "alloca [24000 x i8]" not in again
    assert again.count("llvm.fma") > kept.count("llvm.fma")


def test_hints_are_for_lines_as_far_ahead_as_memory_is(mine: Machine, tmp_path: Path) -> None:
    far = described(tmp_path, rates={"awaited_bytes": 100_000})
    texts = [program(SOFTMAX, machine).kernels[0].text for machine in (mine, far)]
    assert [f"i64 {5 * 24_000}" in text for text in texts] == [False, True]
    short = described(tmp_path, line_bytes=32)
    hints = [program(SOFTMAX, m).kernels[0].text.count("@llvm.prefetch") for m in (short, mine)]
    assert hints[0] > hints[1] > 0


def test_a_kernel_is_split_where_that_is_cheap(mine: Machine, tmp_path: Path) -> None:
    dear = described(tmp_path, rates={"share_us": 100_000})
    asleep = described(tmp_path, rates={"wake_us": 10_000})
    assert [s.chunks > 1 for s in kernel_steps(program(PRODUCT, mine))] == [True]
    alone = program(PRODUCT, dear)
    assert alone.team is Team.ALONE
    assert all(s.chunks == 1 for s in kernel_steps(alone))
    assert program(PRODUCT, mine).team is Team.WOKEN
    assert program(PRODUCT, asleep).team is Team.AWAKE


def test_steps_carry_the_estimate_of_their_machine(mine: Machine, tmp_path: Path) -> None:
    slow = described(tmp_path, rates={"contracted_ops": 1200})
    fast_us, slow_us = (
        sum(s.us for s in kernel_steps(program(PRODUCT, machine))) for machine in (mine, slow)
    )
    assert slow_us > 50 * fast_us
    (loop,) = [s for s in program(LOOP, mine, "dce").steps if isinstance(s, LoopStep)]
    assert loop.us == pytest.approx(90 * loop.trip_us)
    assert loop.trip_us == pytest.approx(sum(s.us for s in (*loop.condition, *loop.body)))


def test_factors_of_a_loop_are_aligned_to_lines_where_they_stay(
    mine: Machine, tmp_path: Path
) -> None:
    """16 KiB: more than half of the small second level, less than half of the usual one."""
    tiny = [{"bytes": 4096, "ways": 4}, {"bytes": 16384, "ways": 4}]
    texts = [str(program(LOOP, m, "dce")) for m in (mine, described(tmp_path, caches=tiny))]
    assert ["align c" in text for text in texts] == [True, False]


def test_what_shares_a_kernel_is_the_same_for_all_caches(tmp_path: Path) -> None:
    """Reductions that are fused add in another order than alone, and so bits would change."""
    source, machine = tmp_path / "m.hlo", tmp_path / "machine.json"
    source.write_text(SOFTMAX)
    described(tmp_path, caches=SMALL, rates={"memory_bytes": 1})
    shown = [
        call("hlo-opt", str(source), "--passes=default", *flags)
        for flags in ((), (f"--machine={machine}",))
    ]
    assert shown[0].out == shown[1].out != ""
