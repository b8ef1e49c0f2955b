"""Call budget: how much a module may grow by copies of what it calls.

Callers that each call the one before twice are two to the power of their number once every call
stands for itself. Within the budget all do; beyond it, what is called from several places and
weighs more than a call is there once, and its callers share it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from hlo.ir.computation import Computation
from hlo.ir.graph import callees, callees_first, calls
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module

MOST_COPIED = 1 << 15  # The most instructions of all copies: they take three seconds to compile.
# The most by which copies multiply the instructions of a module that is large by itself.
MOST_GROWTH = 4
SMALL = 64  # Calls of so few instructions are copies even then: a call hides them from fusion.
_ENDLESS = 1 << 60  # Sizes are exact up to this.

Callees = Callable[[Computation], Sequence[Computation]]


def shared_computations(
    order: Sequence[Computation], called: Callees, kept: Collection[Computation]
) -> frozenset[Computation]:
    """What is called several times and has to stay one computation for the budget to hold.

    order: callees before callers. called: of the calls in question, once for each. kept: what is
    there beside its copies. Nothing where all copies together are within the budget. O(calls).
    """
    apart: frozenset[Computation] = frozenset()
    for most in (_ENDLESS, SMALL, 0):
        apart, total = _with_copies_of(order, called, kept, most)
        if total <= budget(order):
            break
    return apart


def is_within_budget(order: Sequence[Computation], called: Callees) -> bool:
    """Whether all computations, each with copies of all that it calls, are within the budget."""
    return _with_copies_of(order, called, order, _ENDLESS)[1] <= budget(order)


def budget(computations: Sequence[Computation]) -> int:
    """How many instructions a module of these computations may have when calls are copies."""
    return max(MOST_COPIED, MOST_GROWTH * sum(map(len, computations)))


def _with_copies_of(
    computations: Sequence[Computation],
    called: Callees,
    kept: Collection[Computation],
    most: int,
) -> tuple[frozenset[Computation], int]:
    """What stays apart if copies have at most so many instructions, and all instructions then."""
    sites = Counter(c for computation in computations for c in called(computation))
    alone = set(kept)
    grown: dict[Computation, int] = {}
    apart: set[Computation] = set()
    total = 0
    for computation in computations:
        size = len(computation) + sum(
            1 if callee in apart else grown.get(callee, 0) for callee in called(computation)
        )
        grown[computation] = min(size, _ENDLESS)
        if sites[computation] > 1 and size > most:
            apart.add(computation)
        if computation in alone or computation in apart:
            total += size
    return frozenset(apart), total


def copied_size(call: Instruction) -> int:
    """The instructions of one kernel of all that a call reaches, copied at each of its places."""
    known: dict[Computation, int] = {}
    stack = call.called_computations()
    while stack:
        top = stack[-1]
        waiting = [c for c in callees(top) if c not in known]
        if waiting and top not in known:
            stack += waiting
            continue
        stack.pop()
        if top not in known:
            inner = (known[c] for i in calls(top) for c in i.called_computations())
            known[top] = min(len(top) + sum(inner), _ENDLESS)
    return sum(known[c] for c in call.called_computations())


def shared_by(module: Module, opcodes: Collection[str]) -> frozenset[Computation]:
    """What the instructions of some opcodes have to share, if each had copies of its own."""

    def is_chosen(call: Instruction, _: Computation) -> bool:
        return call.opcode in opcodes

    order = callees_first(module)
    return shared_computations(order, of_calls(is_chosen), called_otherwise(order, is_chosen))


def called_otherwise(
    order: Sequence[Computation], chosen: Callable[[Instruction, Computation], bool]
) -> set[Computation]:
    """What is there for others than the chosen calls: the entry, reducers, what nobody calls."""
    found: dict[bool, set[Computation]] = {True: set(), False: set()}
    for home in order:
        for call in calls(home):
            found[chosen(call, home)].update(call.called_computations())
    return (set(order) - found[True]) | found[False]


def of_calls(chosen: Callable[[Instruction, Computation], bool]) -> Callees:
    """What those calls of a computation call that are chosen, once for each mention."""

    def of(computation: Computation) -> list[Computation]:
        found = [call for call in calls(computation) if chosen(call, computation)]
        return [callee for call in found for callee in call.called_computations()]

    return of
