"""Colours: where they are asked for or a terminal is, and nowhere else."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from hlo.cli import colours
from hlo.cli.main import OPT_COMMANDS, RUN_COMMANDS
from tests.support.command import call

BAD = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT y = f32[5] add(x, x)\n}\n"
RED = "\x1b[31m\x1b[1m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def bad(tmp_path: Path) -> str:
    path = tmp_path / "bad.hlo"
    path.write_text(BAD)
    return str(path)


def test_errors_have_colours_when_asked(bad: str) -> None:
    done = call("hlo-opt", "check", bad, "--color=always")
    assert f"{RED}error[shape-mismatch]\x1b[0m: add" in done.err
    assert f"{RED}^^^^^^ f32[5]\x1b[0m" in done.err
    assert call("hlo-opt", "check", bad, "--color=never").err == call("hlo-opt", "check", bad).err
    assert "\x1b" not in call("hlo-opt", "check", bad).err


def test_a_terminal_has_them_unless_it_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colours.has_colours(Terminal())
    assert not colours.has_colours(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not colours.has_colours(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours.has_colours(Terminal())


def test_text_is_the_same_without_colours() -> None:
    text = "error[x]: a\n --> f:1:2\n  |\n3 | y\n  |  ^ z\nhelp: w\nequal   1\nplain | error\n"
    painted = colours.coloured(text)
    assert painted != text
    assert re.sub("\x1b\\[\\d*m", "", painted) == text
    assert painted.endswith("plain | error\n")


def test_a_choice_ends_with_its_command(bad: str) -> None:
    call("hlo-opt", "check", bad, "--color=always")
    assert not colours.has_colours(io.StringIO())


@pytest.mark.parametrize(
    ("group", "name"),
    [*(("hlo-opt", n) for n in OPT_COMMANDS), *(("hlo-run", n) for n in RUN_COMMANDS)],
)
def test_every_command_takes_the_flag(group: str, name: str) -> None:
    assert "--color [auto|always|never]" in call(group, name, "--help").out
