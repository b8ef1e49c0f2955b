"""What a call of hlo.jit takes beside jax.jit: python -m benchmarks.jax_calls

Small functions, so that the call itself is what is measured: two f32[] arguments, as NumPy and as
jax arrays, with results of both kinds; and the first call of a function in a warm process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hlo
from hlo.tools.jax import jax_door

CALLS, ROUNDS = 2000, 15


def add(a: Any, b: Any) -> Any:
    """The smallest function."""
    return a + b


def in_turn(rows: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The median time of a call in microseconds, of rounds taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(ROUNDS):
        for name, call in rows.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - start) / CALLS * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def first_calls(count: int = 12) -> dict[str, float]:
    """The median of the first call of functions that differ, in milliseconds."""
    jax = jax_door.jax()
    x = np.arange(64, dtype=np.float32)
    times: dict[str, list[float]] = {"hlo.jit": [], "jax.jit": []}
    for number in range(count):
        for name, jit in (("hlo.jit", hlo.jit), ("jax.jit", jax.jit)):

            def f(a: Any, k: float = number + 0.25 * len(name), n: int = number + 1) -> Any:
                return jax.numpy.sin(a * k).sum() + jax.numpy.tanh(a[:n] + k).sum()

            start = time.perf_counter()
            jax.block_until_ready(jit(f)(x))
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(found[2:]) for name, found in times.items()}


def main() -> None:
    """Print both tables."""
    jax = jax_door.jax()
    numpy, array = np.array(3, np.float32), jax.numpy.float32(3) + 0
    ours, theirs, given = hlo.jit(add), jax.jit(add), hlo.jit(add, results="jax")
    rows = {
        "hlo.jit, NumPy in and out": lambda: ours(numpy, numpy),
        "hlo.jit, jax arrays in, NumPy out": lambda: ours(array, array),
        "hlo.jit, NumPy in, jax arrays out": lambda: given(numpy, numpy),
        "hlo.jit, jax arrays in and out": lambda: given(array, array),
        "jax.jit, NumPy in": lambda: theirs(numpy, numpy),
        "jax.jit, jax arrays in": lambda: theirs(array, array),
    }
    for call in rows.values():
        call()
        call()
    found = in_turn(rows)
    for name, micros in found.items():
        rival = found["jax.jit, NumPy in" if "NumPy in" in name else "jax.jit, jax arrays in"]
        print(f"{name:<36}{micros:>8.2f} us {rival / micros:>7.2f} times jax.jit")
    first = first_calls()
    for name, millis in first.items():
        print(f"{'first call, ' + name:<36}{millis:>8.1f} ms")


if __name__ == "__main__":
    main()
