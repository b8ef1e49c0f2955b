"""reduce: the smallest case that still has a property.

    case, property --delta debugging and shrinking, until nothing helps--> smaller case

The instructions of the entry are tried in halves, quarters, ..: a subset runs by itself, given the
values that the rest had in a run of the reference. Then called computations, iterations, sizes,
types and what is said beside the program. Every step goes from a case that has the property to a
smaller one that has it, in an order that does not depend on time or on how many are asked at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field

from hlo import driver
from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.tools.cases import shrinking
from hlo.tools.cases.case import Case, Recorded, recorded
from hlo.tools.cases.extract import extracted
from hlo.tools.cases.trials import Property, Trials

Kept = Callable[[Case], None]
Shrink = Callable[[Case], Iterator[Case]]

SHRINKS: tuple[Shrink, ...] = (
    shrinking.callees_alone,
    shrinking.written_out,
    shrinking.fewer_trips,
    shrinking.plainer_callees,
    shrinking.smaller_sizes,
    shrinking.plainer_types,
    shrinking.unadorned,
)


class Reduction(Struct, frozen=True):
    """What a reduction has come to.

    case: the smallest found; asked: cases that were asked about in this run; is_smallest: False
    where time was up before nothing helped any more.
    """

    case: Case
    asked: int
    seconds: float
    is_smallest: bool


class _Late(Exception):
    """Time is up."""


class _Search(Struct):
    """The best case so far, and who hears of a better one."""

    trials: Trials
    best: Case
    deadline: float | None
    kept: Kept
    seen: set[str] = field(default_factory=set)

    def better(self, cases: Iterable[Case]) -> bool:
        """Take the first of the cases that has the property; whether there was one."""
        found = self.trials.first(self._new(cases))
        if found is None:
            return False
        self.best = found
        self.seen.add(found.digest)
        self.kept(found)
        return True

    def _new(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Cases that are no form of one that was the best before."""
        for case in cases:
            if self.deadline is not None and time.monotonic() > self.deadline:
                raise _Late
            if case.digest not in self.seen:
                yield case


def reduced(
    case: Case,
    trials: Trials,
    *,
    seconds: float | None = None,
    kept: Kept = lambda _: None,
) -> Reduction:
    """The smallest case with the property of `trials` that is found from a case that has it.

    seconds: an end to the search. kept: called with each better case, so that none is lost.
    HloError `arguments` where the case given has not the property.
    """
    start = time.monotonic()
    trials.property = _of_texts(trials.property)
    if not trials.holds(case):
        raise HloError(
            "arguments",
            f"reduce: the module as given has not the property ({trials.property.name}), expected "
            "one that has it",
        )
    deadline = None if seconds is None else start + seconds
    search = _Search(trials, case, deadline, kept, {case.digest})
    is_smallest = True
    try:
        while _round(search):
            pass
    except _Late:
        is_smallest = False
    finally:
        trials.close()
    return Reduction(search.best, trials.asked, time.monotonic() - start, is_smallest)


def _of_texts(property: Property) -> Property:
    """The property of cases whose text reads back: what is found is handed on as text."""

    def ask(case: Case) -> bool:
        if not property.ask(case):
            return False
        driver.parse(case.text)
        return True

    return Property(property.name, ask, property.crash)


def _round(search: _Search) -> bool:
    """Each way to shrink, as often as it helps; whether any did."""
    changed = _fewer_instructions(search)
    for shrink in SHRINKS:
        before = search.best
        while search.better(shrink(search.best)):
            if shrink is shrinking.callees_alone:
                _fewer_instructions(search)
        changed |= search.best is not before
    return changed


def _fewer_instructions(search: _Search) -> bool:
    """Delta debugging over the entry's instructions: a part of them, or all but a part."""
    start = search.best
    values: Recorded = recorded(start)
    items = _items(start)
    parts = 2
    while len(items) > 1:
        runs = list(_runs(items, parts))
        subsets = _subsets(items, runs, parts)
        if search.better(extracted(s, values) for s in subsets):
            names = {i.name for i in _items(search.best)}
            fewer = [i for i in items if i.name in names]
            if len(fewer) >= len(items):
                break
            parts = 2 if len(fewer) <= len(items) // 2 else max(parts - 1, 2)
            items = fewer
        elif parts >= len(items):
            break
        else:
            parts = min(2 * parts, len(items))
    return search.best is not start


def _subsets(
    items: list[Instruction], runs: list[list[Instruction]], parts: int
) -> Iterator[list[Instruction]]:
    """Each part alone, then all but each part."""
    yield from runs
    if parts > 2:
        for run in runs:
            gone = set(run)
            yield [i for i in items if i not in gone]


def _items(case: Case) -> list[Instruction]:
    """The instructions that count: parameters and constants come along with their users."""
    entry = case.module.entry
    return [i for i in entry.instructions if i.opcode not in ("parameter", "constant")]


def _runs(items: list[Instruction], count: int) -> Iterator[list[Instruction]]:
    """The items in so many runs of nearly equal length."""
    size, extra = divmod(len(items), count)
    at = 0
    for number in range(count):
        end = at + size + (number < extra)
        if end > at:
            yield items[at:end]
        at = end
