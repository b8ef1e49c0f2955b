"""A child process that answers pickled questions, one after the other, until it dies.

program, question --ask--> answer; None where the process ended before it answered
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class PickleServer:
    """A Python program that reads questions and writes answers; started again after each death."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: object) -> object:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._program], cwd=ROOT,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None, "piped"
        assert sink is not None, "piped"
        try:
            pickle.dump(question, sink)
            sink.flush()
            return pickle.load(source)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self.close()
            return None

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
