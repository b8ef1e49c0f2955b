"""Computations that are planned once: what they compute, what their memory is, and when."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.analysis import call_budget
from hlo.backend.compilation import Compilation
from hlo.backend.entry.llvm_ir import emit_timed
from hlo.backend.entry.timing_ir import Counters
from hlo.tools.cases.arrays import leaves
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.growing_modules import FAMILIES

SHARING = (
    "calls_twice", "conditionals_twice", "loops_of_loops", "conditionals_in_a_row",
    "loops_in_a_row", "known_conditionals_twice", "fusions_twice", "selections_twice",
    "reducer_calls_twice",
)  # fmt: skip
# Two loops run one body; only the first one's condition reads the last element of the state.
SHARED_BODY = """HloModule shared_body
body {
  t = (s32[], f32[3], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[3] get-tuple-element(t), index=1
  n = s32[] get-tuple-element(t), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[3] add(x, x)
  ROOT r = (s32[], f32[3], s32[]) tuple(j, y, n)
}
given {
  t = (s32[], f32[3], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] get-tuple-element(t), index=2
  ROOT c = pred[] compare(i, n), direction=LT
}
known {
  t = (s32[], f32[3], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(2)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[3] parameter(0)
  n = s32[] parameter(1)
  z = s32[] constant(0)
  s = (s32[], f32[3], s32[]) tuple(z, x, n)
  a = (s32[], f32[3], s32[]) while(s), condition=given, body=body
  y = f32[3] get-tuple-element(a), index=1
  q = (s32[], f32[3], s32[]) tuple(z, y, n)
  ROOT b = (s32[], f32[3], s32[]) while(q), condition=known, body=body
}
"""


@pytest.fixture
def no_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is called twice is shared."""
    for name in ("MOST_COPIED", "MOST_GROWTH", "SMALL"):
        monkeypatch.setattr(call_budget, name, 0)


@pytest.mark.usefixtures("no_budget")
@pytest.mark.parametrize("passes", ["default", ""])
@pytest.mark.parametrize("name", SHARING)
def test_what_is_shared_computes_what_copies_do(name: str, passes: str) -> None:
    module = driver.parse(FAMILIES[name].text(4))
    arguments = made_up_inputs(module, "normal", 0)
    wanted = list(leaves(driver.evaluate(module, *arguments)))
    executable = driver.compile(module, passes=passes, cache=False)
    for run in (executable, executable, executable.run_guarded):
        for got, want in zip(leaves(run(*arguments)), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.usefixtures("no_budget")
def test_a_program_names_its_routines() -> None:
    module = driver.optimize(driver.parse(FAMILIES["calls_twice"].text(3)))
    text = driver.emit_stage(module, "program")
    assert text.count("call routine 0(") == 2, text
    assert "routine 0: fun0" in driver.emit_stage(module, "buffers")
    timing = Counters()
    emit_timed(Compilation(module, passes="", threads=1).program, timing)
    steps = timing.steps
    assert sum(s.instruction.opcode == "sine" for s in steps) == 1, "counted once, for both calls"


def test_small_programs_have_none() -> None:
    module = driver.optimize(driver.parse(FAMILIES["calls_twice"].text(6)))
    assert len(module.computations) == 1 + sum(
        c.name.startswith("fused") for c in module.computations
    )
    assert "routine" not in driver.emit_stage(module, "program")


def test_a_state_that_one_of_two_loops_reads_is_kept_for_it() -> None:
    module = driver.parse(SHARED_BODY)
    arguments = np.ones(3, np.float32), np.int32(5)
    got = driver.compile(module, passes="", cache=False)(*arguments)
    np.testing.assert_array_equal(got[1], np.full(3, 128, np.float32))
