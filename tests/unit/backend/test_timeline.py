"""A run as slices of time: every part of every step once, on a thread of its own."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.entry.llvm_ir import emit_timed
from hlo.backend.entry.timing_ir import Timeline
from hlo.backend.linking.compile import generated, objects
from tests.support.command import call

TEXT = """HloModule m

body {
  p = (s32[], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[512,512] get-tuple-element(p), index=1
  d = f32[512,512] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[512,512] tanh(d)
  ROOT r = (s32[], f32[512,512]) tuple(next, t)
}

cond {
  p = (s32[], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT
}

ENTRY e {
  x = f32[512,512] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[512,512]) tuple(zero, x)
  w = (s32[], f32[512,512]) while(init), condition=cond, body=body
  y = f32[512,512] get-tuple-element(w), index=1
  ROOT s = f32[512,512] sort(y), dimensions={1}, to_apply=less
}
"""
ARGUMENT = np.linspace(-1, 1, 512 * 512, dtype=np.float32).reshape(512, 512) / 16


@pytest.mark.parametrize("threads", [1, 2])
def test_slices_of_a_loop(threads: int) -> None:
    slices = driver.timeline(hlo.parse(TEXT), ARGUMENT, threads=threads)
    assert {s.thread for s in slices} <= set(range(threads))
    opcodes = [s.opcode for s in slices]
    assert opcodes.count("sort") >= 1
    products = [s for s in slices if s.opcode in ("fusion", "dot")]
    assert len(products) >= 3
    for thread in range(threads):
        own = [s for s in slices if s.thread == thread]
        assert all(a.began_us + a.us <= b.began_us + 1e-3 for a, b in pairwise(own))
        assert all(s.us >= 0 for s in own)
    assert slices[0].began_us == 0
    assert slices[-1].opcode == "sort"


def test_a_timed_program_gives_the_same_bits() -> None:
    compilation = Compilation(hlo.parse(TEXT), threads=2)
    timing = Timeline(4)
    modules = emit_timed(compilation.program, timing)
    timed = compilation.linked([*objects(modules), *generated([timing.module()])])
    plain = np.asarray(compilation.executable(ARGUMENT))
    assert np.asarray(timed(ARGUMENT)).tobytes() == plain.tobytes()
    assert len(timing.events()) == 4  # what there is memory for
    assert timing.dropped > 0
    timing.clear()
    assert (len(timing.events()), timing.dropped) == (0, 0)


def test_the_trace_of_the_command(tmp_path: Path) -> None:
    file, trace = tmp_path / "m.hlo", tmp_path / "t.json"
    file.write_text(TEXT)
    done = call("hlo-run", "profile", str(file), "--trace", str(trace), "--threads=1")
    assert done.code == 0, done.err
    events = json.loads(trace.read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["tid"] for e in slices} == {0}
    assert any(e["name"].endswith(" sort") and e["args"]["line"] for e in slices)
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"m", "caller"}
