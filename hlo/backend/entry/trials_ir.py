"""Trials: whether a program's loops are run by its team or by the caller alone, as its runs show.

    hlo_tried(record, alone, ns)    a run took so long: what the record says of the next one

Both give the same bits. Which one is faster nobody knows before: processors of one machine may be
so far apart that what one of them has read is written by another at 2 GB/s instead of 9 or 60, and
a host may move them while a program runs (docs/measurements.md 6). So short programs are tried both
ways: now and then some runs go the other way, and where these are faster, so are those that follow.
A trial and what it costs are a small part of the runs between two of them.
"""

from __future__ import annotations

from hlo.backend.entry.layouts import Record
from hlo.backend.entry.process import ALONE, PLANNED, TRIED, WOKEN
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word

WARM = 6  # Runs before the first trial.
# The least of a trial: a worker that sleeps takes up to 50 us to wake.
TRIAL_RUNS, TRIAL_NS = 3, 100_000
LONG_NS = 10_000_000  # Runs that take longer are not tried, whatever they were estimated at.
PATIENCE = 64  # Between two trials runs take so many times as long as the first of them took.
# The same where runs have come to take longer than those that went the other way.
IMPATIENCE = 8
# In eighths of what runs take now: what the other way has to stay below.
BETTER = 7

_ORDER = "monotonic"  # Several threads may call one program.


def define(unit: Unit) -> None:
    """The function in a unit with others."""
    unit.define(TRIED, _tried, attributes="noinline")


def told(p: Procedure, record: Word, alone: Word) -> Word:
    """What the frame of the next run is told."""
    is_trial = record.load(Record.left, _ORDER).ne(0)
    together = is_trial.select(p.word(WOKEN), p.word(PLANNED))
    return alone.ne(0).select(p.word(ALONE), together)


def _tried(p: Procedure, record: Word, alone: Word, ns: Word) -> None:
    with p.when(record.load(Record.alone, _ORDER).ne(alone)):
        p.ret()  # another thread's run has ended meanwhile, and said otherwise
    cost, left = record.load(Record.cost, _ORDER), record.load(Record.left, _ORDER)
    settled = p.join()
    settled.go_if(left.eq(0))
    _in_trial(p, record, alone, ns, cost, left)
    settled.here()
    _between_trials(p, record, alone, ns, cost)


def _in_trial(p: Procedure, record: Word, alone: Word, ns: Word, cost: Word, left: Word) -> None:
    """The shortest of the trial's runs; after the last one, the way that is faster."""
    best = _lesser(record.load(Record.best, _ORDER), ns)
    spent = record.load(Record.spent, _ORDER) + ns
    left = left.above(1).select(left - 1, p.word(1))
    record.store(Record.best, best, _ORDER)
    record.store(Record.spent, spent, _ORDER)
    record.store(Record.left, left, _ORDER)
    with p.when(left.above(1) | spent.below(TRIAL_NS)):
        p.ret()
    is_better = _is_better(best, cost)
    record.store(Record.cost, is_better.select(best, cost), _ORDER)
    record.store(Record.alone, is_better.select(alone, 1 - alone), _ORDER)
    record.store(Record.rest, spent * PATIENCE, _ORDER)
    record.store(Record.left, 0, _ORDER)
    p.ret()


def _between_trials(p: Procedure, record: Word, alone: Word, ns: Word, cost: Word) -> None:
    """What runs take, followed; when it is time, a trial of the other way."""
    runs, rest = record.load(Record.runs, _ORDER), record.load(Record.rest, _ORDER)
    is_warm = runs.at_least(WARM)
    first = runs.below(2).select(ns, _lesser(cost, ns))
    later = (cost * 7 + _lesser(cost * 2, ns)) >> 3  # a run that was held up counts as twice one
    record.store(Record.cost, is_warm.select(later, first), _ORDER)
    with p.when(~is_warm):
        record.store(Record.runs, runs + 1, _ORDER)
        p.ret()
    # As when a worker has been awake since, or the host has moved the processors.
    is_slower = _is_better(record.load(Record.best, _ORDER), cost)
    patience = is_slower.select(p.word(PATIENCE - IMPATIENCE), p.word(0))
    least = record.load(Record.spent, _ORDER) * patience
    with p.when(rest.above(_greater(ns, least)) | cost.above(LONG_NS)):
        record.store(Record.rest, _greater(rest, ns) - ns, _ORDER)
        p.ret()
    record.store(Record.best, cost * 16, _ORDER)
    record.store(Record.spent, 0, _ORDER)
    record.store(Record.left, TRIAL_RUNS + 1, _ORDER)
    record.store(Record.alone, 1 - alone, _ORDER)
    p.ret()


def _is_better(other: Word, cost: Word) -> Word:
    return (other * 8).below(cost * BETTER)


def _greater(a: Word, b: Word) -> Word:
    return a.below(b).select(b, a)


def _lesser(a: Word, b: Word) -> Word:
    return a.below(b).select(a, b)
