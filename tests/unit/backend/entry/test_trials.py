"""Trials: who runs a program's loops, as runs of known lengths show."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

import hlo
from hlo.backend.entry import process, trials_ir
from hlo.backend.entry.layouts import Record
from hlo.backend.entry.pool_ir import State
from hlo.backend.linking import native

ROWS = 100_000
TEXT = f"""HloModule m
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }}
ENTRY e {{ x = f32[{ROWS},8] parameter(0)
  z = f32[] constant(0)
  y = f32[{ROWS},8] sine(x)
  ROOT r = f32[{ROWS}] reduce(y, z), dimensions={{1}}, to_apply=add }}"""


class Runs:
    """A call record alone, and the runs that it has heard of."""

    def __init__(self) -> None:
        if native.native_call() is None:
            pytest.skip("Python's objects are not as expected")
        code = native.shared_code("call", native._call_module)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._tried = function(code.address(process.TRIED.symbol))
        self.record = np.zeros(Record.words, np.int64)

    @property
    def alone(self) -> int:
        """Whether the next run's caller is alone."""
        return int(self.record[Record.alone.word])

    def run(self, count: int, ns: Callable[[int], float]) -> list[int]:
        """So many runs, which take ns(alone); who ran them."""
        modes = []
        for _ in range(count):
            alone = self.alone
            modes.append(alone)
            self._tried(self.record.ctypes.data, alone, int(ns(alone)))
        return modes


def test_the_faster_way_is_taken_and_the_other_one_is_seldom_tried() -> None:
    for together, alone in ((40_000, 20_000), (11_000, 20_000)):
        runs = Runs()
        runs.run(200, lambda mode, ns=(together, alone): ns[mode])  # type: ignore[misc]
        modes = runs.run(20_000, lambda mode, ns=(together, alone): ns[mode])  # type: ignore[misc]
        others = sum(mode != (alone < together) for mode in modes)
        assert (
            0
            < others * max(together, alone)
            < 2 / trials_ir.PATIENCE * 20_000 * min(together, alone)
        )


def test_what_changes_while_a_program_runs_is_noticed() -> None:
    runs = Runs()
    assert runs.run(1000, lambda alone: 20_000 if alone else 11_000)[-1] == 0
    modes = runs.run(1000, lambda alone: 20_000 if alone else 100_000)
    assert modes[-1] == 1
    assert modes.count(0) < 120
    assert runs.run(4000, lambda alone: 20_000 if alone else 11_000)[-1] == 0


def test_ways_that_take_about_as_long_are_not_exchanged() -> None:
    runs, rng = Runs(), np.random.default_rng(1)
    modes = runs.run(20_000, lambda alone: (20_000 - 1_000 * alone) * rng.uniform(1, 1.05))
    assert np.mean(modes) < 0.05


def test_a_run_that_is_held_up_changes_nothing() -> None:
    runs = Runs()
    runs.run(400, lambda alone: 30_000 if alone else 20_000)
    for _ in range(50):
        runs.run(1, lambda _: 5_000_000)
        assert runs.run(40, lambda alone: 30_000 if alone else 20_000).count(0) > 20


def test_long_runs_are_not_tried() -> None:
    runs = Runs()
    assert sum(runs.run(1000, lambda alone: 20_000_000 - 15_000_000 * alone)) == 0


def test_a_run_of_another_thread_that_went_the_other_way_is_not_counted() -> None:
    runs = Runs()
    runs.run(100, lambda _: 20_000)
    before = runs.record.copy()
    runs._tried(runs.record.ctypes.data, 1 - runs.alone, 1)
    np.testing.assert_array_equal(runs.record, before)


def test_a_call_goes_as_its_record_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone: no loop is shared out. Else the pool has had one more for each."""
    records: list[np.ndarray] = []
    made = native.NativeCall.function

    def kept(self: native.NativeCall, record: np.ndarray) -> Callable[..., object]:
        records.append(record)
        return made(self, record)

    monkeypatch.setattr(native.NativeCall, "function", kept)
    program = hlo.compile(hlo.parse(TEXT), threads=2, cache=False)
    x = np.ones((ROWS, 8), np.float32)
    program(x)
    pool = native.pool()
    if pool is None or not records or not records[-1][Record.tries.word]:
        pytest.skip(
            "there is no pool, or no native call, or the program is not for several threads"
        )
    record, place = records[-1], pool._state + State.ticket.offset
    for alone in (0, 1, 0):
        record[Record.alone.word], record[Record.left.word] = alone, 0
        record[Record.rest.word], record[Record.runs.word] = 10**9, trials_ir.WARM
        before = ctypes.c_uint64.from_address(place).value >> 32
        program(x)
        shared = (ctypes.c_uint64.from_address(place).value >> 32) - before
        assert (shared == 0) == bool(alone)


def test_results_are_the_same_both_ways() -> None:
    program = hlo.compile(hlo.parse(TEXT), threads=3, cache=False)
    x = np.random.default_rng(2).standard_normal((ROWS, 8)).astype(np.float32)
    expected = program(x).tobytes()
    assert all(program(x).tobytes() == expected for _ in range(100))
