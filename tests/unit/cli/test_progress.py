"""Progress of long work: what is told, and what a terminal shows of it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

import hlo
from hlo import progress
from hlo.cli import progress as bars
from tests.support.command import call

TEXT = """HloModule m
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT
}
ENTRY e {
  x = f32[64,64] parameter(0)
  s = f32[64,64] sort(x), dimensions={1}, to_apply=less
  ROOT t = f32[64,64] tanh(s)
}
"""


class Heard:
    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int]] = []
        self.hidden = 0

    def heard(self, stage: str, done: int, total: int) -> None:
        self.rows.append((stage, done, total))

    def hide(self) -> None:
        self.hidden += 1


def test_a_compilation_tells_its_stages(capsys: pytest.CaptureFixture[str]) -> None:
    heard = Heard()
    with progress.listening(heard):
        hlo.compile(hlo.parse(TEXT), cache=False)
        progress.hide()
    stages = list(dict.fromkeys(stage for stage, _, _ in heard.rows))
    assert stages[0].startswith("pass ")
    assert stages[-2:] == ["kernels", "machine code"]
    code = [(done, total) for stage, done, total in heard.rows if stage == "machine code"]
    assert code[0][0] == 0
    assert code[-1][0] == code[-1][1] > 0
    assert heard.hidden == 2  # asked, and at the end
    progress.tell("nobody", 1, 2)
    assert heard.rows[-1][0] == "machine code"
    assert capsys.readouterr() == ("", "")


def shown(monkeypatch: pytest.MonkeyPatch, patience: float) -> tuple[bars.Bar, io.StringIO]:
    monkeypatch.setattr(bars, "PATIENCE_S", patience)
    stream = io.StringIO()
    return bars.Bar(Console(file=stream, force_terminal=True, width=80)), stream


def test_a_bar_of_long_work_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    bar, stream = shown(monkeypatch, 0.0)
    with progress.listening(bar):
        progress.tell("kernels", 1, 4)
        assert "kernels" in stream.getvalue()
        progress.tell("kernels", 4, 4)  # done: gone
        before = len(stream.getvalue())
        assert stream.getvalue().endswith("\x1b[2K")
        progress.tell("machine code", 0, 3)
        assert "machine code" in stream.getvalue()[before:]
    assert stream.getvalue().endswith("\x1b[2K")


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bar, stream = shown(monkeypatch, 60.0)
    with progress.listening(bar):
        progress.tell("kernels", 1, 4)
    assert stream.getvalue() == ""


def test_a_long_first_part_shows_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    bar, stream = shown(monkeypatch, 60.0)
    bar.heard("machine code", 0, 1)
    timer = bar._waiting
    assert timer is not None
    timer.cancel()
    timer.function()
    assert "machine code" in stream.getvalue()
    bar.hide()


def test_nothing_is_shown_where_stderr_is_no_terminal(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    done = call("hlo-run", str(file))
    assert done.code == 0
    assert "\x1b" not in done.err + done.out
