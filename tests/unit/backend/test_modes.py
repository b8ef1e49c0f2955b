"""strict keeps denormals, fast flushes them, and neither changes the caller's mode."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hlo.backend.compilation import Compilation
from hlo.backend.linking import toolchain
from hlo.backend.stages.printing import STAGES, stage_text, stage_texts
from hlo.parser.parse import parse

HALF = """HloModule m
ENTRY e { x = f32[4] parameter(0)
  h = f32[] constant(0.5)
  b = f32[4] broadcast(h), dimensions={}
  ROOT r = f32[4] multiply(x, b) }"""
TINY = np.array([1e-38, 2e-38, 1.0, 1e-45], np.float32)


def test_strict_keeps_denormals() -> None:
    result = Compilation(parse(HALF), passes="").executable(TINY)
    np.testing.assert_array_equal(result, TINY * np.float32(0.5))


@pytest.mark.skipif(toolchain.host_machine().architecture != "x86_64", reason="MXCSR")
def test_fast_flushes_denormals_of_its_own_run_only() -> None:
    result = Compilation(parse(HALF), mode="fast", passes="").executable(TINY)
    np.testing.assert_array_equal(result, np.array([0, 0, 0.5, 0], np.float32))
    assert (TINY[:1] * np.float32(0.5))[0] > 0


@pytest.mark.parametrize("stage", [s.name for s in STAGES])
def test_every_stage_has_a_text(stage: str) -> None:
    text = stage_text(Compilation(parse(HALF)), stage)
    assert text.strip()


def test_stage_texts_come_in_order() -> None:
    names = [name for name, _ in stage_texts(Compilation(parse(HALF)))]
    assert names == [
        "schedule.txt",
        "buffers.txt",
        "loops.txt",
        "program.txt",
        "llvm.ll",
        "llvm-opt.ll",
        "asm.s",
    ]


def test_dynamic_sizes_are_left_to_the_reference() -> None:
    text = """HloModule m
    ENTRY e { x = f32[<=4] parameter(0)
      ROOT r = f32[<=4] add(x, x) }"""
    executable = Compilation(parse(text), passes="").executable
    np.testing.assert_array_equal(executable(TINY[:2]), TINY[:2] * 2)


def test_programs_compile_on_several_threads_at_once() -> None:
    results: list[object] = []

    def work(number: int) -> None:
        text = HALF.replace("0.5", str(number + 2))
        x = np.ones(4, np.float32)
        results.append(
            np.array_equal(Compilation(parse(text), passes="").executable(x), x * (number + 2))
        )

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
