"""XLA:CPU in a child process that answers many questions: starting it costs more than most.

text, arrays --run--> arrays, or why there are none
"""

from __future__ import annotations

import atexit
import pickle
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

import numpy as np

from hlo.errors import HloError

SERVER = """
import pickle, sys
from hlo.tools.jax_engine import JaxProgram
while True:
    try:
        text, arrays = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        answer = JaxProgram(text).run(arrays)
    except Exception as error:
        answer = str(error)
    pickle.dump(answer, sys.stdout.buffer)
    sys.stdout.buffer.flush()
"""


class Xla:
    """XLA:CPU in a child process, started again after each abort."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray] | str:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVER],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None, "piped"
        assert sink is not None, "piped"
        try:
            pickle.dump((text, list(arrays)), sink)
            sink.flush()
            return pickle.load(source)  # type: ignore[no-any-return]  # what the server sends
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self.close()
            return "XLA's process died"

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


@cache
def shared() -> Xla:
    """The one of this process, for tests whose programs XLA is known to run."""
    made = Xla()
    atexit.register(made.close)
    return made


def run_in_child(text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """As `hlo.tools.jax_engine.run_in_child`, which starts a process for each program."""
    found = shared().run(text, arrays)
    if isinstance(found, str):
        raise HloError("oracle", found)
    return found
