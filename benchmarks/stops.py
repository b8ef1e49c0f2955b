"""`python -m benchmarks.stops`: what it costs a loop that it can be stopped, per trip.

Scalar loops of unknown length, compiled as they are and without questions, called in turn; the
least time of each, since everything else is the machine's. The short ones take 0.5 ns a trip.
"""

import time
from unittest.mock import patch

import numpy as np

from hlo import driver
from hlo.backend.planning import steps
from hlo.runtime.executable import Executable
from tests.support.long_programs import loop

TRIPS, CALLS = 1_000_000, 300
BODIES = {
    "xor, add": ("s64", "a = s64[] xor(x, i)\n  y = s64[] add(a, one)"),
    "multiply, add": ("s64", "a = s64[] multiply(x, x)\n  y = s64[] add(a, i)"),
    "float add": ("f32", "k = f32[] constant(1.5)\n  y = f32[] add(x, k)"),
    "float multiply, add": (
        "f32",
        "k = f32[] constant(0.5)\n  a = f32[] multiply(x, k)\n  y = f32[] add(a, k)",
    ),
}


def compiled(text: str, *, watched: bool) -> Executable:
    """The loop as it is, or without questions."""
    module = driver.parse(text)
    if watched:
        return driver.compile(module, cache=False)
    endless = patch.object(steps, "is_unbounded", lambda _: False)
    with endless, patch.object(steps, "WATCH_US", float("inf")):
        return driver.compile(module, cache=False)


def main() -> None:
    """Print the table."""
    print(f"{'loop':24} {'ns a trip':>10} {'without':>10} {'more':>8}")
    for name, (dtype, body) in BODIES.items():
        text = loop(f"{dtype}[]", f"  {body}")
        both = [compiled(text, watched=True), compiled(text, watched=False)]
        arguments = (np.int64(TRIPS), np.dtype("f4" if dtype == "f32" else "i8").type(1))
        least = [float("inf")] * 2
        for _ in range(CALLS):
            for n, executable in enumerate(both):
                began = time.perf_counter()
                executable(*arguments)
                least[n] = min(least[n], time.perf_counter() - began)
        asked, free = (1e9 * s / TRIPS for s in least)
        print(f"{name:24} {asked:10.4f} {free:10.4f} {100 * (asked / free - 1):7.2f}%")


if __name__ == "__main__":
    main()
