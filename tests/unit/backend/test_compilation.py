"""Compilation: each stage made once, whoever asks; gone with who asked."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import hlo
from hlo.backend import compilation
from hlo.backend.compilation import Compilation
from hlo.backend.planning.program import Program
from hlo.backend.stages.printing import STAGES, stage_text
from hlo.machine import NAMED

TEXT = """HloModule m, entry_computation_layout={(f32[8,16]{1,0})->f32[16,8]{0,1}}
ENTRY e {
  p = f32[8,16] parameter(0)
  s = f32[8,16] exponential(p)
  ROOT t = f32[16,8] transpose(s), dimensions={1,0}
}"""
STAGE_NAMES = (
    "optimised", "target", "schedule", "implementations", "buffers", "program", "link_table", "ir",
    "objects", "executable",
)  # fmt: skip


@pytest.mark.parametrize("name", STAGE_NAMES)
def test_threads_that_ask_together_get_one_value(name: str) -> None:
    made = Compilation(hlo.parse(TEXT))
    barrier, found = threading.Barrier(4), []

    def ask() -> None:
        barrier.wait()
        found.append(getattr(made, name))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(value is found[0] for value in found)


def test_no_stage_is_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str, function: object) -> object:
        def call(*args: object, **kwargs: object) -> object:
            calls.append(name)
            return function(*args, **kwargs)  # type: ignore[operator]  # a stage's function

        return call

    for name in ("schedule", "assign", "program_of", "link_table", "emit", "link"):
        monkeypatch.setattr(compilation, name, counted(name, getattr(compilation, name)))
    made = Compilation(hlo.parse(TEXT))
    for stage in STAGES:
        if stage.name != "loops":  # the kernels once more, with their schedules noted
            stage_text(made, stage.name)
    for name in STAGE_NAMES:
        getattr(made, name)
    assert sorted(calls) == ["assign", "emit", "link", "link_table", "program_of", "schedule"]


def test_what_failed_is_made_again_when_asked_again() -> None:
    made = Compilation(hlo.parse(TEXT), passes="nonsense")
    for _ in range(2):
        with pytest.raises(hlo.HloError, match="there is no pass nonsense"):
            _ = made.program


def test_what_is_shown_is_what_runs() -> None:
    """The transpose that the header's layout asks for meets the program's own in the passes."""
    made = Compilation(hlo.parse(TEXT), threads=1)
    assert "transpose" not in str(made.optimised)
    assert len(made.program.kernels) == 1
    x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16)
    np.testing.assert_allclose(made.executable(x), np.exp(x).T, rtol=1e-6)


def test_an_executable_keeps_no_stage() -> None:
    made = Compilation(hlo.parse(TEXT), cache=False)
    executable = made.executable
    whole = weakref.ref(made)
    programs = _programs()
    del made
    assert whole() is None, "no circle holds it"
    assert _programs() == programs - 1
    assert np.asarray(executable(np.zeros((8, 16), np.float32)))[0, 0] == 1


def _programs() -> int:
    return sum(isinstance(held, Program) for held in gc.get_objects())


def test_the_machine_and_the_mode_choose_target_and_pipeline() -> None:
    made = Compilation(hlo.parse(TEXT), mode="fast", machine=NAMED["x86-64-v2"])
    assert made.passes == "fast"
    assert made.target.machine is NAMED["x86-64-v2"]
    assert {m.machine for m in made.ir} == {NAMED["x86-64-v2"]}
