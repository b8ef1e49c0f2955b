"""Python's cycle collector rests while the compiler works, and no longer."""

from __future__ import annotations

import gc
import os
import threading

import pytest

import hlo.process.garbage
from hlo.process.garbage import FROZEN_BY_PYTHON, uncollected


def test_the_collector_rests_within_and_as_the_caller_wants_it() -> None:
    with uncollected(), uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_dead_graphs_of_many_readings_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hlo.process.garbage, "LARGE", 100)
    monkeypatch.setattr(hlo.process.garbage, "MOST_PENDING", 10_000)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        with uncollected():
            cycle: list[object] = [[] for _ in range(1000)]
            cycle.append(cycle)
        del cycle
    assert len(gc.get_objects()) - before < 25_000
    assert gc.get_freeze_count() <= FROZEN_BY_PYTHON


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_beside_a_rest_collects() -> None:
    begun, over = threading.Event(), threading.Event()

    def rest() -> None:
        with uncollected():
            begun.set()
            over.wait()

    other = threading.Thread(target=rest)
    other.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if gc.isenabled() else 1)
    assert not gc.isenabled()
    over.set()
    other.join()
    assert gc.isenabled()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
