"""The call budget: what is copied, what is shared, and that no pass grows a module beyond it."""

from __future__ import annotations

import pytest

from hlo import driver
from hlo.analysis import call_budget
from hlo.passes.manager import Manager
from tests.support.growing_modules import FAMILIES, computation, module

DOUBLING = (
    "calls_twice", "conditionals_twice", "loops_of_loops", "known_conditionals_twice",
    "fusions_twice", "selections_twice", "reducer_calls_twice",
)  # fmt: skip


@pytest.mark.parametrize("name", DOUBLING)
def test_modules_stay_within_the_budget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_budget, "MOST_COPIED", 2000)
    given = driver.parse(FAMILIES[name].text(40))
    steps = Manager()
    driver.optimize(given, manager=steps)
    assert max(run.instructions_after for run in steps.runs) <= 3 * 2000


def test_a_lone_caller_has_all_it_calls_whatever_that_weighs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_budget, "MOST_COPIED", 10)
    deep = driver.optimize(driver.parse(FAMILIES["calls_once"].text(50)), "call-inliner,dce")
    assert len(deep.computations) == 1


def test_small_callees_are_copied_even_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_budget, "MOST_COPIED", 10)
    monkeypatch.setattr(call_budget, "SMALL", 3)
    small = computation("small", ["x = f32[4] parameter(0)", "ROOT r = f32[4] sine(x)"])
    large = computation(
        "large",
        ["x = f32[4] parameter(0)", *(f"y{k} = f32[4] cosine(x)" for k in range(8)),
         "ROOT r = f32[4] tanh(y0)"],
    )  # fmt: skip
    lines = [f"a{k} = f32[4] call(p), to_apply=small" for k in range(3)]
    lines += [f"l{k} = f32[4] call(p), to_apply=large" for k in range(20)]
    tail = ["ROOT t = (f32[4], f32[4]) tuple(a0, l0)"]
    made = driver.optimize(
        driver.parse(module(["p = f32[4] parameter(0)", *lines, *tail], small, large)),
        "call-inliner",
    )
    called = [i.called_computations()[0].name for i in made.entry.instructions
              if i.opcode == "call"]  # fmt: skip
    assert called == ["large"] * 20
