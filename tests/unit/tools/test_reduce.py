"""reduce: small, deterministic, resumable, and a crash is an answer."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.passes.catalogue import CATALOGUE
from hlo.tools.cases.case import Case, case_of
from hlo.tools.cases.shrinking import fewer_trips
from hlo.tools.cases.trials import Property, Trials
from hlo.tools.faults import properties
from hlo.tools.faults.reduce import reduced
from tests.support.command import call
from tests.support.long_chain import chain

SWAP = """
def swap(module):
    "Swap the operands of divide."
    found = [i for c in module.computations for i in c.instructions if i.opcode == "divide"]
    for i in found:
        i.computation.set_operands(i, i.operands[::-1])
    return bool(found)

PASSES = {"swap-divide": swap}
"""

LOOP = """HloModule loop
body {
  s = (s32[], f32[6,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[6,5] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  e = f32[6,5] exponential(x)
  l = f32[6,5] log(e)
  t = f32[6,5] tanh(l)
  ROOT r = (s32[], f32[6,5]) tuple(j, t)
}
condition {
  s = (s32[], f32[6,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(40)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[6,5] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[6,5]) tuple(zero, x)
  w = (s32[], f32[6,5]) while(s), condition=condition, body=body
  ROOT r = f32[6,5] get-tuple-element(w), index=1
}
"""


def has(*opcodes: str) -> Property:
    def ask(case: Case) -> bool:
        hlo.verify(case.module)
        found = {i.opcode for c in case.module.computations for i in c.instructions}
        return set(opcodes) <= found

    return Property(f"has {opcodes}", ask)


def test_one_instruction_of_many_is_left_with_the_values_that_it_had() -> None:
    case = case_of(hlo.parse(chain(300, "divide", 290)))
    made = reduced(case, Trials(has("divide")))
    assert [i.opcode for i in made.case.module.entry.instructions] == [
        "parameter", "parameter", "divide",
    ]  # fmt: skip
    assert made.is_smallest
    assert hlo.evaluate(made.case.module, *made.case.values).shape == (1, 1)


def test_jobs_do_not_change_what_is_found() -> None:
    case = case_of(hlo.parse(chain(60, "divide", 40)))
    texts = {
        reduced(case, Trials(has("divide", "tanh"), jobs=jobs)).case.text for jobs in (1, 2, 5)
    }
    assert len(texts) == 1


def test_a_loop_is_shortened_and_what_it_needs_not_goes() -> None:
    made = reduced(case_of(hlo.parse(LOOP)), Trials(has("while", "tanh")))
    text = made.case.text
    assert "exponential" not in text
    assert "constant(40)" not in text
    assert "[6,5]" not in text


def test_counters_are_compared_with_fewer_trips() -> None:
    found = [
        re.findall(r"constant\((\d+)\)", c.text) for c in fewer_trips(case_of(hlo.parse(LOOP)))
    ]
    assert [max(map(int, numbers)) for numbers in found] == [1, 2, 4, 20, 39]


def test_a_body_leaves_its_loop() -> None:
    made = reduced(case_of(hlo.parse(LOOP)), Trials(has("exponential", "log")))
    assert made.case.size == 3


def dies(case: Case) -> bool:
    if "log(" in case.text:
        os.kill(os.getpid(), signal.SIGSEGV)
    return False


def test_a_crash_is_an_answer() -> None:
    made = reduced(case_of(hlo.parse(LOOP)), Trials(Property("dies", dies, crash=True)))
    assert [i.opcode for i in made.case.module.entry.instructions] == ["parameter", "log"]


def test_what_the_module_has_not_is_said() -> None:
    with pytest.raises(HloError, match="has not the property"):
        reduced(case_of(hlo.parse(LOOP)), Trials(has("cosine")))


def test_the_best_so_far_is_told_and_a_limit_of_time_ends_the_search() -> None:
    best: list[Case] = []
    made = reduced(case_of(hlo.parse(LOOP)), Trials(has("log")), seconds=0.0, kept=best.append)
    assert not made.is_smallest
    assert made.case.size == 18


def test_types_and_sizes_become_plain() -> None:
    text = "HloModule m\nENTRY e { p = bf16[24,7] parameter(0)\n ROOT r = bf16[24,7] sine(p) }"
    made = reduced(case_of(hlo.parse(text)), Trials(has("sine")))
    assert "f32[1,1]" in made.case.text
    assert made.case.values[0].dtype == np.float32


def test_a_fault_of_a_users_pass_on_the_command_line(tmp_path: Path) -> None:
    """The journal answers a second time."""
    (tmp_path / "m.hlo").write_text(chain(120, "divide", 110))
    (tmp_path / "mine.py").write_text(SWAP)
    words = ["reduce", str(tmp_path / "m.hlo"), "--pass-fault", "-p", "swap-divide",
             "--load", str(tmp_path / "mine.py"), "--journal", str(tmp_path / "j"),
             "-o", str(tmp_path / "min.hlo")]  # fmt: skip
    try:
        first, second = call("hlo-opt", *words), call("hlo-opt", *words)
    finally:
        CATALOGUE.pop("swap-divide", None)
    assert first.code == second.code == 0
    assert "to 3 instructions" in first.err
    assert "(0 runs" in second.err
    module: Module = hlo.parse((tmp_path / "min.hlo").read_text())
    assert module.entry.root.opcode == "divide"
    assert len(np.load(tmp_path / "min.hlo.npz")) == 2


def test_a_script_is_asked(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(LOOP)
    outcome = call("hlo-opt", "reduce", str(tmp_path / "m.hlo"), "--script=grep -q log(", "--json")
    assert outcome.code == 0
    assert '"instructions": 2' in outcome.out


def test_one_property_is_expected(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(LOOP)
    outcome = call("hlo-opt", "reduce", str(tmp_path / "m.hlo"))
    assert outcome.code == 2
    assert "0 properties given" in outcome.err


def test_message() -> None:
    text = LOOP.replace("tanh(l)", 'custom-call(l), custom_call_target="none"')
    case = case_of(hlo.parse(text))
    made = reduced(case, Trials(properties.message("custom-call")))
    assert made.case.size <= 3
