"""Random nests of loops, branches, calls and updates: compiled bits are the interpreter's.

Planned as copies for each caller, and as routines, which a large program has instead.
"""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.planning import routine_allocations
from hlo.backend.planning.schedule import Schedule
from hlo.interpreter.evaluate import evaluate
from hlo.ir.computation import Computation
from hlo.parser.parse import parse
from tests.support.control_flow_programs import random_program
from tests.support.tiny_kernels import compiled

CI_SEEDS = 60


@pytest.fixture
def all_routines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is called is planned once."""

    def every(schedule: Schedule) -> frozenset[Computation]:
        return frozenset(c for c in schedule.orders if c is not schedule.module.entry)

    monkeypatch.setattr(routine_allocations, "shared_in", every)


def check(seed: int) -> None:
    text = random_program(seed)
    module = parse(text)
    rng = np.random.default_rng(seed)
    arguments = [rng.standard_normal(4).astype(np.float32) for _ in module.entry.parameters]
    kept = [a.copy() for a in arguments]
    executable = compiled(text)
    expected = evaluate(module, *arguments)
    assert isinstance(expected, tuple)
    wanted = [e.tobytes() for e in expected]
    for run in (executable, executable, executable.run_guarded):
        results = run(*arguments)
        assert isinstance(results, tuple)
        assert [r.tobytes() for r in results] == wanted, text
    assert all(a.tobytes() == k.tobytes() for a, k in zip(arguments, kept, strict=True))


@pytest.mark.parametrize("seed", range(CI_SEEDS))
def test_random_control_flow(seed: int) -> None:
    check(seed)


@pytest.mark.usefixtures("all_routines")
@pytest.mark.parametrize("seed", range(CI_SEEDS))
def test_random_control_flow_of_routines(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.usefixtures("all_routines")
@pytest.mark.parametrize("seed", range(CI_SEEDS, 1000))
def test_more_random_control_flow_of_routines(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CI_SEEDS, 3000))
def test_more_random_control_flow(seed: int) -> None:
    check(seed)
