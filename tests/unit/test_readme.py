"""The README's commands and its tutorial are true."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.command import call

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_exactly_two_set_up_commands() -> None:
    set_up = [b for b in blocks("sh") if "pip install" in b]
    assert len(set_up) == 2
    assert all(b.strip().count("\n") == 0 for b in set_up)


def test_the_main_job_runs() -> None:
    command = blocks("sh")[0].strip().split("&&")[-1].split()
    assert command[0].endswith("hlo-run")
    arguments = [str(ROOT / a) if a.endswith(".hlo") else a for a in command[1:]]
    outcome = call("hlo-run", *arguments)
    assert outcome.code == 0, outcome.err
    assert "compile" in outcome.err


def test_the_tutorial_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", blocks("python")[0]],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[0. 3. 6. 9.]")


def test_rooms_exist() -> None:
    for room in re.findall(r"`(hlo/\w+/)`", README):
        assert (ROOT / room).is_dir(), room
