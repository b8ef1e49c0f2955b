"""A program is compiled without a pass that fails on it, and told so with a reproducer."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.cli import main
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.passes import manager, recovery
from hlo.passes.catalogue import CATALOGUE
from hlo.passes.pipeline import Fixpoint, Layers, Steps, parse_pipeline

LOOP = """HloModule m
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
body {
  p = (s32[], f32[3,4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[3,4] get-tuple-element(p), index=1
  a = f32[4] get-tuple-element(p), index=2
  c = f32[4] cosine(a)
  b = f32[3,4] broadcast(c), dimensions={1}
  y = f32[3,4] multiply(x, b)
  ROOT t = (s32[], f32[3,4], f32[4]) tuple(j, y, a)
}
condition {
  p = (s32[], f32[3,4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[3,4] parameter(0)
  a = f32[4] parameter(1)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  start = (s32[], f32[3,4], f32[4]) tuple(zero, x, a)
  loop = (s32[], f32[3,4], f32[4]) while(start), condition=condition, body=body
  y = f32[3,4] get-tuple-element(loop), index=1
  ROOT sums = f32[3] reduce(y, none), dimensions={1}, to_apply=add
}"""
DYNAMIC = """HloModule m
ENTRY e {
  x = f32[<=8] parameter(0)
  y = f32[<=8] negate(x)
  ROOT z = f32[<=8] add(y, y)
}"""
X = np.arange(12, dtype=np.float32).reshape(3, 4)
A = np.array([1, 2, 3, 5], np.float32)


def broken(module: Module) -> bool:
    """Change what the program means, then fail."""
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode in ("multiply", "negate"):
                instruction.opcode = "subtract" if instruction.opcode == "multiply" else "abs"
    raise AssertionError("half way")


def names(steps: Steps) -> list[str]:
    return [
        name
        for step in steps
        for name in (names(step.steps) if isinstance(step, Fixpoint | Layers) else [step.name])
    ]


@pytest.fixture
def break_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    monkeypatch.delenv("HLO_VERIFY_IR")
    return lambda name: monkeypatch.setitem(CATALOGUE, name, broken)


@pytest.mark.parametrize("name", sorted(set(names(parse_pipeline("default")))))
def test_each_pass_of_the_default_may_fail(
    name: str, break_pass: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = hlo.parse(LOOP)
    wanted = driver.evaluate(module, X, A)
    monkeypatch.setattr(manager, "NEEDS", {})  # those of ops that it lacks run too
    break_pass(name)
    with pytest.warns(RuntimeWarning, match=f"pass {name} failed") as seen:
        run = hlo.compile(module, cache=False)
    assert len(seen) == 1
    np.testing.assert_allclose(run(X, A), wanted, rtol=1e-6)


def test_two_passes_may_fail(break_pass: Callable[[str], None]) -> None:
    module = hlo.parse(LOOP)
    break_pass("algsimp")
    break_pass("fusion")
    with pytest.warns(RuntimeWarning) as seen:
        run = hlo.compile(module, cache=False)
    assert [str(w.message).split()[1] for w in seen] == ["algsimp", "fusion"]
    np.testing.assert_allclose(run(X, A), driver.evaluate(module, X, A), rtol=1e-6)


def test_the_reproducer_reproduces(
    break_pass: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    break_pass("cse")
    with pytest.warns(RuntimeWarning, match="half way") as seen:
        hlo.compile(hlo.parse(LOOP), cache=False)
    (folder,) = re.findall(r"are in (\S+)", str(seen[0].message))
    report = (Path(folder) / "report.txt").read_text()
    assert "AssertionError: half way" in report
    command, *arguments = shlex.split(report.splitlines()[0])
    assert command == "hlo-opt"
    with pytest.raises(SystemExit) as leave:
        main.opt(arguments)
    assert leave.value.code == 3
    assert "half way" in capsys.readouterr().err


def test_large_constants_are_left_out_of_a_reproducer(
    break_pass: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_pass("dce")
    monkeypatch.setattr(recovery, "MOST_TEXT_ELEMENTS", 3)
    module = hlo.parse("HloModule m\nENTRY e { ROOT c = f32[4] constant({1, 2, 3, 5}) }")
    with pytest.warns(RuntimeWarning) as seen:
        run = hlo.compile(module, cache=False)
    (folder,) = re.findall(r"are in (\S+)", str(seen[0].message))
    assert "constant({...})" in (Path(folder) / "module.hlo").read_text()
    np.testing.assert_array_equal(run(), A - [0, 0, 0, 0])


def test_what_a_failing_pass_leaves_is_not_kept_on_disk(
    break_pass: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HLO_CACHE_DIR", str(tmp_path))
    break_pass("fusion")
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="fusion"):
            hlo.compile(hlo.parse(LOOP))


@pytest.mark.parametrize("passes", ["", "default"])
def test_a_pass_may_fail_on_a_padded_program(
    passes: str, break_pass: Callable[[str], None]
) -> None:
    module = hlo.parse(DYNAMIC)
    break_pass("algsimp")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run = hlo.compile(module, passes=passes, cache=False)
    assert len(seen) == (1 if passes else 0)
    np.testing.assert_array_equal(run(A), -2 * A)


def test_dynamic_sizes_are_compiled_with_the_given_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def spy(name: str) -> Callable[..., bool]:
        function = CATALOGUE[name]
        return lambda module, **options: ran.append(name) or function(module, **options)

    for name in CATALOGUE:
        monkeypatch.setitem(CATALOGUE, name, spy(name))
    for passes, wanted in (
        ("", []),
        ("dce", ["dce"]),
        ("dynamic_padder,cse", ["dynamic_padder", "cse"]),
    ):
        ran.clear()
        run = hlo.compile(hlo.parse(DYNAMIC), passes=passes, cache=False)
        assert ran == wanted
        np.testing.assert_array_equal(run(A), -2 * A)


def test_tests_see_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "cse", broken)
    with pytest.raises(AssertionError, match="half way"):
        hlo.compile(hlo.parse(LOOP), cache=False)


def test_what_a_pass_says_of_the_program_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLO_VERIFY_IR")

    def refusing(module: Module) -> bool:
        raise HloError("unsupported", f"{module.name} is refused")

    monkeypatch.setitem(CATALOGUE, "cse", refusing)
    with pytest.raises(HloError, match="m is refused"):
        hlo.compile(hlo.parse(LOOP), cache=False)


def test_nothing_is_copied_when_all_is_well() -> None:
    made = []

    def given() -> Module:
        made.append(hlo.parse(LOOP))
        return made[-1]

    found = recovery.optimized(given, parse_pipeline("default"))
    assert [found.module] == made
    assert found.left_out == ()
