"""Settling: computations that a pass has seen and left as they are need not be seen again.

    (computation, pass) --settle--> a fact of the computation, which its next edit forgets

A pass that looks into called computations too gives the state of all that can be reached: it is
another number after an edit of any of them.
"""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.graph import callees, callees_first
from hlo.ir.module import Module


def is_settled(computation: Computation, key: object, reach: int = 0) -> bool:
    """Whether the pass (with its options) found nothing to do in the computation as it stands."""
    return computation.facts.get(key) == reach + 1


def settle(computation: Computation, key: object, reach: int = 0) -> None:
    """The pass found nothing to do. reach: the state before it looked."""
    computation.facts[key] = reach + 1


def reach_states(module: Module) -> dict[Computation, int]:
    """A number for each computation and all that it calls, another one after any edit of them."""
    found: dict[Computation, int] = {}
    for computation in callees_first(module):
        called = [found[c] for c in callees(computation) if c in found]
        found[computation] = max((computation.state, *called))
    return found
