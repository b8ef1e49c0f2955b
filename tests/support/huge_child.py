"""Runs programs of huge geometry, each in a process with little memory and a deadline of its own.

python -m tests.support.huge_child STRIDE START  -> one JSON row a program: name, stage, outcome
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Iterator

import numpy as np

import hlo
from hlo import driver
from hlo.tools.cases.fill import fill_elided
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.huge_programs import HugeProgram, programs

MEMORY_BYTES = 3 << 30
DEADLINE_S = 60  # of processor time: generous, for what it is to find never ends


def stages(program: HugeProgram) -> Iterator[str]:
    """Every stage that a program goes through, told before it begins."""
    yield "parse"
    module = hlo.parse(program.text)
    module.to_text()
    yield "verify"
    hlo.verify(module)
    yield "fill"
    module = fill_elided(module)
    yield "optimize"
    hlo.optimize(module)
    yield "memory map"
    try:
        driver.memory(module)
    except hlo.HloError as error:
        if error.code not in ("memory", "limit"):
            raise
    yield "compile"
    executable = hlo.compile(module, cache=False)
    yield "inputs"
    given = made_up_inputs(module)
    yield "run"  # of small arrays: what is long because there is much to do is the user's wish
    result = executable(*given) if program.small else None
    yield "evaluate"
    expected = hlo.evaluate(module, *given)
    if program.small:
        pairs = zip(_leaves(result), _leaves(expected), strict=True)
        assert all(np.allclose(a, b, equal_nan=True) for a, b in pairs), (result, expected)


def _leaves(value: object) -> list[np.ndarray]:
    return [np.asarray(v) for v in (value if isinstance(value, tuple) else (value,))]


def answer(program: HugeProgram) -> dict[str, str]:
    """The stage that the program reached, and how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as told:
            _limited(program, told)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as heard:
        lines = heard.read().splitlines()
    status = os.waitpid(child, 0)[1]
    if status:
        lines.append(f"ended by signal {os.WTERMSIG(status)}")
    stage = [line for line in lines if not line.startswith(("ended", "bad", "refused", "fine"))]
    return {"name": program.name, "stage": (stage or [""])[-1], "outcome": lines[-1]}


def _limited(program: HugeProgram, told: object) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, DEADLINE_S)

    def say(text: str) -> None:
        print(text, file=told, flush=True)  # type: ignore[call-overload]  # a text stream

    try:
        for stage in stages(program):
            say(stage)
        say("fine")
    except hlo.HloError as error:
        say(f"refused {error.code} {error.message.splitlines()[0]}")
    except BaseException as error:  # what the test is to find
        rows = traceback.format_exc().replace("\n", " | ")
        say(f"bad {type(error).__name__} {rows[-600:]}")


def main() -> None:
    stride, start = int(sys.argv[1]), int(sys.argv[2])
    import hlo.backend.compilation  # noqa: F401  # its library is loaded before the memory is limited

    for program in programs()[start::stride]:
        sys.stdout.write(json.dumps(answer(program)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
