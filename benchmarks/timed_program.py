"""One program of some version of this package, timed on request: benchmarks/ratchet.py starts it.

    python timed_program.py FILE THREADS SECONDS, with the version on PYTHONPATH

Prints a line when the program is compiled and warm, then for each line that it reads the seconds of
a call: the least of as many as take SECONDS. Asks the package for no more than its public names, so
that it runs with versions older than itself.
"""

import sys
import time
from pathlib import Path

import hlo
from hlo.tools.cases.inputs import made_up_inputs

WARM_UP = 20


def main() -> None:
    """Answer until standard input ends."""
    file, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    module = hlo.fill_elided(hlo.parse(Path(file).read_text(), file))
    executable = hlo.compile(module, threads=threads, cache=False)
    values = made_up_inputs(module, "normal", 0)
    for _ in range(WARM_UP):
        executable(*values)
    print("ready", flush=True)
    for _ in sys.stdin:
        least, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            executable(*values)
            least = min(least, time.perf_counter() - start)
        print(least, flush=True)


if __name__ == "__main__":
    main()
