"""A copy of the project that a test adds something to: what that edits, and what the copy does.

Whoever grows the project edits as much as the test does: `edited` counts it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPT = "from hlo.cli.main import opt; opt()"
# Run first by every script: what it imports is the copy's, and nothing of the project itself.
IN_COPY = """
import sys
from pathlib import Path
import hlo

here = Path(sys.argv[1])
assert Path(hlo.__file__).is_relative_to(here), hlo.__file__
"""


class ProjectCopy:
    """hlo and the tests' support in a folder of their own.

    added: the new files. edited: the lines that were put into files that the project has.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.added: list[str] = []
        self.edited: dict[str, int] = {}
        for name in ("hlo", "tests/support"):  # compiled code too, which spares a second a run
            shutil.copytree(ROOT / name, folder / name)

    def add(self, path: str, text: str) -> None:
        """A new file."""
        file = self.folder / path
        assert not file.exists(), path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self.added.append(path)

    def insert(self, path: str, lines: str, *, before: str = "") -> None:
        """Put lines before the first line that begins so, or at the end of the file."""
        text = (self.folder / path).read_text()
        head, tail = _parted(text, before) if before else (text, "")
        (self.folder / path).write_text(head + lines + tail)
        count = len([line for line in lines.splitlines() if line])
        self.edited[path] = self.edited.get(path, 0) + count

    def take_away(self, path: str, line: str) -> None:
        """Take out the line that begins so, which is no edit: the copy is of a project without."""
        text = (self.folder / path).read_text()
        head, tail = _parted(text, line)
        (self.folder / path).write_text(head + tail.partition("\n")[2])

    def ran(self, *command: str) -> str:
        """What Python says of a command that succeeds, in the copy."""
        given = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env=given,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def script(self, text: str) -> str:
        """What a script says that uses the copy."""
        return self.ran("-c", IN_COPY + text, str(self.folder))

    def opt(self, *arguments: str) -> str:
        """What the copy's hlo-opt says."""
        return self.ran("-c", OPT, *arguments)


def _parted(text: str, start: str) -> tuple[str, str]:
    """The text before the first line that begins so, and from there on."""
    at = 0 if text.startswith(start) else text.find("\n" + start) + 1
    assert text.startswith(start, at), f"no line begins with {start!r}"
    return text[:at], text[at:]
