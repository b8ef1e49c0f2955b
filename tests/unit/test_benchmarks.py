"""The benchmarks' own arguments; what they measure is not tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hlo
from benchmarks import estimates, start

ROOT = Path(__file__).parents[2]
TEXT = "HloModule m\nENTRY e { x = f32[8] parameter(0) ROOT y = f32[8] negate(x) }"


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_missing_file_is_a_plain_error(tmp_path: Path) -> None:
    done = benchmarks(str(tmp_path / "none.hlo"))
    assert done.returncode == 2
    assert "none.hlo: there is no such file or folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_folder_is_a_plain_error(tmp_path: Path) -> None:
    done = benchmarks(str(tmp_path))
    assert done.returncode == 2
    assert "there is no .hlo file in it" in done.stderr


def test_a_folder_is_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.hlo").write_text(TEXT)
    from benchmarks import __main__ as command

    asked: list[str] = []
    monkeypatch.setattr(
        start, "report_starts", lambda files, *_: asked.extend(f.name for f in files)
    )
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--start", str(tmp_path)])
    assert command.main() == 0
    assert asked == ["a.hlo", "b.hlo"]
    assert capsys.readouterr().out == ""


def test_starts_are_told_beside_the_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    monkeypatch.setattr(start, "_xla", lambda *_: iter(()))
    start.report_starts([path], 1)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:56].strip() for line in lines[2:]] == [s.name for s in start.starts(path)]
    assert lines[2].split()[-3] == "0.0"


def test_each_estimate_has_a_program_of_its_own() -> None:
    found = [f"{p.group}: {p.name}" for p in estimates.programs()]
    assert len(found) == len(set(found))
    deep = list(estimates.wanted("^(deep|batched)", 7))
    assert {p.group for p in deep} == {"deep", "deep, other types", "batched"}
    for program in deep:
        hlo.verify(hlo.parse(program.text()))


@pytest.mark.parametrize(("found", "near"), [([0.9], 1), ([2.0, 1.1], 1), ([0.8, 2.0], 0)])
def test_the_best_of_several_times_says_whether_an_estimate_is_near(
    found: list[float], near: int
) -> None:
    assert estimates.is_near(found) == near
