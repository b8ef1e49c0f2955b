"""Times a function compiled by hlo.jit beside jax.jit, in turn, and checks that they agree."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import hlo

SECONDS = 2.0  # of each comparison
MOST = 400  # calls of each


def beside_xla(name: str, f: Callable[..., Any], *arguments: Any, rtol: float = 1e-3) -> None:
    """f(*arguments) by both, a row of times."""
    ours, theirs = hlo.jit(f), jax.jit(f)
    check(ours(*arguments), theirs(*arguments), rtol)
    report(name, lambda: ours(*arguments), lambda: jax.block_until_ready(theirs(*arguments)))


def steps_beside_xla(
    name: str, step: Callable[..., Any], state: Any, *data: Any, atol: float
) -> None:
    """state = step(state, *data) by both, each with a state of its own that it donates.

    atol: how far the states may be apart after a step; Adam's first one goes as far for a gradient
    that is nothing but rounding as for any other.
    """
    runs = []
    for jitted in (hlo.jit(step, donate_argnums=0), jax.jit(step, donate_argnums=0)):
        own = jax.tree.map(lambda leaf: jax.numpy.array(leaf, copy=True), state)
        runs.append(stepping(jitted, own, data))
    check(runs[0](), runs[1](), 1e-2, atol)
    report(name, *runs)


def stepping(jitted: Callable[..., Any], state: Any, data: tuple[Any, ...]) -> Callable[[], Any]:
    """One step for each call, from the state of the last one."""
    held = [state]

    def run() -> Any:
        held[0] = jax.block_until_ready(jitted(held[0], *data))
        return held[0]

    return run


def check(ours: Any, theirs: Any, rtol: float, atol: float = 0.0) -> None:
    """Raises AssertionError where the results differ in tree, type or value."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        wide_a, wide_b = (np.asarray(x).astype(np.float64) for x in (a, b))
        scale = np.abs(wide_b).max(initial=1e-6)
        np.testing.assert_allclose(wide_a, wide_b, rtol=rtol, atol=atol + rtol * scale)


def report(name: str, ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    """Median times of both, taken in turn so that other work on the machine meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end and len(times[0]) < MOST:
        for run, found in zip((ours, theirs), times, strict=True):
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    a, b = (statistics.median(found) * 1e6 for found in times)
    print(f"{name:<40} hlo {a:10.1f} us   XLA:CPU {b:10.1f} us   {b / a:5.2f} times as fast")
