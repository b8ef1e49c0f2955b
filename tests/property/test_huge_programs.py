"""Huge geometry ends soon, in a result or an error, from parsing to the run; see the generator.

`pytest -m slow tests/property/test_huge_programs.py` runs every program: about two minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.attributes.window import Window, WindowDim
from hlo.error_codes import CODES
from hlo.errors import HloError
from hlo.ops.windows import met_positions, reads, result_size, trimmed

ROOT = Path(__file__).resolve().parents[2]
SHARES = 9  # one part of the programs in CI; all of them by the flag


def answers(stride: int, start: int) -> list[dict[str, str]]:
    """What became of every stride-th program, in processes of little memory."""
    command = [sys.executable, "-m", "tests.support.huge_child", str(stride), str(start)]
    environment = {**os.environ, "HLO_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


def check(rows: list[dict[str, str]]) -> None:
    wrong = [r for r in rows if not r["outcome"].startswith(("fine", "refused"))]
    assert wrong == []
    codes = Counter(r["outcome"].split()[1] for r in rows if r["outcome"].startswith("refused"))
    assert {"memory", "limit"} <= set(codes) <= set(CODES)


@pytest.mark.skipif(sys.platform != "linux", reason="limits a process's memory")
def test_huge_programs_end() -> None:
    check(answers(SHARES, 0))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1, SHARES))
def test_all_huge_programs_end(start: int) -> None:
    check(answers(SHARES, start))


# -- windows -----------------------------------------------------------------------------------


def drawn_window(rng: np.random.Generator) -> tuple[int, WindowDim]:
    """A dimension's size and a window that may be larger than it, and stand outside."""
    size = int(rng.integers(0, 7))
    low, high = (int(n) for n in rng.integers(-4, 12, 2))
    steps = [int(n) for n in rng.integers(1, 6, 3)]
    return size, WindowDim(int(rng.integers(1, 14)), steps[0], low, high, steps[1], steps[2])


def test_a_trimmed_window_reads_the_same_elements() -> None:
    rng = np.random.default_rng(0)
    shorter = 0
    for _ in range(1000):
        size, w = drawn_window(rng)
        window = trimmed((size,), Window((w,)))
        (own,) = window.dims
        assert result_size(size, own) == result_size(size, w)
        assert own.size <= w.size
        shorter += own.size < w.size
        assert _read(size, own) == _read(size, w), (size, w, own)
        positions = [k for k in range(w.size) if reads((size,), Window((w,)), (k,)).inside.any()]
        assert set(positions) <= set(met_positions(size, w)), (size, w)
    assert shorter > 100


def _read(size: int, w: WindowDim) -> list[list[int]]:
    """The elements of every place, in the window's order."""
    found: list[list[int]] = [[] for _ in range(result_size(size, w))]
    for k in range(w.size):
        read = reads((size,), Window((w,)), (k,))
        for o in np.flatnonzero(np.broadcast_to(read.inside, len(found))):
            found[o].append(int(read.indices[0][o]))
    return found


REDUCERS = {"sum": "add(a, b)", "last": "subtract(b, a)"}


@pytest.mark.parametrize("reducer", REDUCERS)
def test_long_windows_over_little(reducer: str) -> None:
    """Compiled code and the reference, of windows that mostly meet nothing."""
    rng = np.random.default_rng(1)
    x = np.array([3, 5, 7, 11, 13], np.float32)
    for size in (9, 64, 2**20 + 3, 2**40):
        low = int(rng.integers(0, size))
        text = f"""HloModule m
f {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] {REDUCERS[reducer]} }}
ENTRY e {{ p = f32[5] parameter(0)
 z = f32[] constant(1)
 ROOT r = f32[5] reduce-window(p, z), window={{size={size} pad={low}_{size - 1 - low}}}, to_apply=f }}"""  # noqa: E501
        module = hlo.parse(text)
        expected = []
        for o in range(5):
            value = np.float32(1)
            for element in x[max(0, o - low) : o - low + size]:
                value = value + element if reducer == "sum" else element - value
            expected.append(value)
        for passes in ("default", ""):
            assert np.asarray(hlo.compile(module, passes=passes)(x)).tolist() == expected
        assert np.asarray(hlo.evaluate(module, x)).tolist() == expected


def test_what_is_too_large_says_how_many_bytes_for_what() -> None:
    text = """HloModule m
ENTRY e { p = f32[] parameter(0)
 big = f32[1048576,1048576] broadcast(p), dimensions={}
 ROOT r = f32[1048576,1048576] exponential(big) }"""
    module = hlo.parse(text)
    for act in (lambda: hlo.compile(module), lambda: hlo.evaluate(module, np.float32(1))):
        with pytest.raises(
            HloError, match=r"4398046511104 bytes.*expected at most \d+ bytes"
        ) as caught:
            act()
        assert caught.value.code == "memory"
        assert caught.value.line in (3, 4)


def test_constants_are_not_folded_beyond_reason() -> None:
    """Padding as large as memory, of a constant, to a result of two elements."""
    for window in (f"size=1 pad={2**40}_0 stride={2**40}", f"size=1 pad={2**62}_0 stride={2**62}"):
        text = f"""HloModule m
ENTRY e {{ c = f32[1,1,8] constant({{{{{{1,2,3,4,5,6,7,8}}}}}})
 k = f32[1,1,1] constant({{{{{{2}}}}}})
 ROOT r = f32[1,1,2] convolution(c, k), window={{{window}}}, dim_labels=bf0_oi0->bf0 }}"""
        module = hlo.parse(text)
        assert any(i.opcode == "convolution" for i in hlo.optimize(module).entry.instructions)
        with pytest.raises(HloError) as caught:
            hlo.evaluate(module)
        assert caught.value.code in ("memory", "limit")


def test_literals_of_what_is_no_array() -> None:
    huge = np.broadcast_to(np.float32(1), (2**44,))
    for value, code in (
        (huge, "memory"),
        ("abc", "literal"),
        ([1, [2]], "literal"),
        (None, "literal"),
    ):
        with pytest.raises(HloError) as caught:
            hlo.Literal.of(value)
        assert caught.value.code == code
    with pytest.raises(HloError, match="cannot reshape"):
        hlo.Literal.of([1, 2], hlo.Shape.array("f32", (3,)))


def test_memory_that_is_not_there_is_no_bare_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocation that fails although there seemed to be room."""
    text = "HloModule m\nENTRY e { p = f32[4] parameter(0)\n ROOT r = f32[4] negate(p) }"
    executable = hlo.compile(hlo.parse(text))

    def none(*_: object, **__: object) -> object:
        raise MemoryError

    monkeypatch.setattr(executable, "_call", none)
    for donate in ((), []):
        with pytest.raises(HloError) as caught:
            executable(np.zeros(4, np.float32), donate=donate)
        assert caught.value.code == "memory"
