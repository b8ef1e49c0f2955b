"""A child process that stops one of the long programs in each way, and says how long it took.

python tests/support/stopped_run.py NAME -> one line of JSON, then it leaves with a run under way
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import hlo
from tests.support.long_programs import PROGRAMS, inputs

BEFORE_S = 0.1  # of a run that is stopped then


def main(name: str) -> None:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's job in the background has none
    module = hlo.parse(PROGRAMS[name])
    executable = hlo.compile(module)
    arguments = inputs(module)
    sums = [float(a.sum().real) for a in arguments]
    found: dict[str, object] = {}
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(BEFORE_S, interrupt)
    try:
        timer.start()
        executable(*arguments)
        timer.join()
    except KeyboardInterrupt:
        found["interrupt"] = time.monotonic() - sent[0]
    began = time.monotonic()
    try:
        executable(*arguments, timeout=BEFORE_S)
    except hlo.HloError as error:
        found["timeout"] = time.monotonic() - began - BEFORE_S
        found["code"] = error.code
    found["intact"] = sums == [float(a.sum().real) for a in arguments]
    threading.Thread(target=executable, args=arguments, daemon=True).start()
    time.sleep(BEFORE_S)
    found["left"] = time.time()
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
