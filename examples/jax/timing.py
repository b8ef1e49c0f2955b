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
    name: str,
    step: Callable[..., Any],
    state: Any,
    *data: Any,
    explained: Callable[[Any], tuple[Any, Any, Any]],
) -> None:
    """state = step(state, *data) by both, each with a state of its own that it donates.

    explained: of the state after a first step of Adam, its parameters, its gradients (up to a
    factor), and the step that its moments say, for check_step.
    """
    runs = []
    for jitted in (hlo.jit(step, donate_argnums=0), jax.jit(step, donate_argnums=0)):
        own = jax.tree.map(lambda leaf: jax.numpy.array(leaf, copy=True), state)
        runs.append(stepping(jitted, own, data))
    check_step(explained(runs[0]()), explained(runs[1]()))
    report(name, *runs)


def check_step(ours: tuple[Any, Any, Any], theirs: tuple[Any, Any, Any]) -> None:
    """Raises AssertionError where gradients differ, or parameters by more than these explain.

    Adam divides by a gradient's size: one that is zero but for rounding (the bias of an attention's
    keys: softmax does not see it) gives a step of either sign, as long as any other. So gradients
    have to agree within a hundred thousandth of the greatest of all, and parameters once the
    difference of both steps, as the moments say them, is taken off.
    """
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    pairs = [
        [(wide(a), wide(b)) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)]
        for x, y in zip(ours, theirs, strict=True)
    ]
    greatest = max(np.abs(b).max() for _, b in pairs[1])
    for (p, q), (g, h), (u, v) in zip(*pairs, strict=True):
        np.testing.assert_allclose(g, h, rtol=0, atol=1e-5 * greatest)
        np.testing.assert_allclose(p - u, q - v, rtol=0, atol=2e-6 * max(1.0, np.abs(q).max()))


def wide(array: Any) -> np.ndarray:
    """In double precision."""
    return np.asarray(array).astype(np.float64)


def stepping(jitted: Callable[..., Any], state: Any, data: tuple[Any, ...]) -> Callable[[], Any]:
    """One step for each call, from the state of the last one."""
    held = [state]

    def run() -> Any:
        held[0] = jax.block_until_ready(jitted(held[0], *data))
        return held[0]

    return run


def check(ours: Any, theirs: Any, rtol: float) -> None:
    """Raises AssertionError where the results differ in tree, type or value."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        scale = np.abs(wide(b)).max(initial=1e-6)
        np.testing.assert_allclose(wide(a), wide(b), rtol=rtol, atol=rtol * scale)


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
