"""Work grows as modules do: every stage on every family of growing modules, by counts of work."""

from __future__ import annotations

import pytest

from hlo.analysis import call_budget
from hlo.backend.planning import packing
from tests.support.growing_modules import FAMILIES
from tests.support.growth import growth, stage_work

MOST = 2.4  # times the work for twice the size: an exponent of 1.26
STEP = 50  # calls per unit of size: what texts met before, or another way of cutting code, saves
# Stages that are not linear, why, and what bounds them. May only shrink.
NESTED = "each loop's cost asks what is in it; nesting is bounded by 100"
KNOWN = {
    ("nested_loops", "plan"): NESTED,
    ("nested_loops", "lines of planning"): NESTED,
}


@pytest.fixture(autouse=True)
def small_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of what is called are few, and looks of packing, so that small modules meet them."""
    monkeypatch.setattr(call_budget, "MOST_COPIED", 512)
    monkeypatch.setattr(packing, "FEW", 8)
    monkeypatch.setattr(packing, "MOST_LOOKS", 1000)


def check(name: str, base: int) -> None:
    family = FAMILIES[name]
    found = growth(lambda n: stage_work(family, n), base)
    most = MOST * family.text_growth / 2
    steep = {
        stage: work
        for stage, work in found.items()
        if work[1] > most * work[0] + STEP * 8 * base and (name, stage) not in KNOWN
    }
    assert not steep, f"work at four times and at eight times the size {base}: {steep}"


@pytest.mark.parametrize("name", FAMILIES)
def test_work_is_linear(name: str) -> None:
    check(name, FAMILIES[name].base)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_work_is_linear_at_three_times_the_size(name: str) -> None:
    """`pytest -m slow tests/unit/test_growth.py`: ten minutes."""
    family = FAMILIES[name]
    check(name, min(3 * family.base, 12 if not family.runs else 1000))
