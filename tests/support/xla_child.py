"""XLA:CPU in a child process that answers many questions: starting it costs more than most.

text, arrays --run--> arrays, or why there are none
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from functools import cache

import numpy as np

from hlo.errors import HloError
from tests.support.pickle_server import PickleServer

SERVER = """
import pickle, sys
from hlo.tools.jax.jax_engine import JaxProgram
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
        self._server = PickleServer(SERVER)
        self.close = self._server.close

    def run(self, text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray] | str:
        answer = self._server.ask((text, list(arrays)))
        if answer is None:
            return "XLA's process died"
        assert isinstance(answer, list | str), "what the server sends"
        return answer


@cache
def shared() -> Xla:
    """The one of this process, for tests whose programs XLA is known to run."""
    made = Xla()
    atexit.register(made.close)
    return made


def run_in_child(text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """As `hlo.tools.jax.jax_engine.run_in_child`, which starts a process for each program."""
    found = shared().run(text, arrays)
    if isinstance(found, str):
        raise HloError("oracle", found)
    return found
