"""Divergence: the first instruction at which two programs, or two ways to run one, part.

A, B --paired as diff pairs them, values of every call in order--> the first pair that differs
optimised module --every instruction alone, on the values that it had--> the first wrong kernel
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from hlo import driver
from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.tools.cases import arrays
from hlo.tools.cases.case import Case, fits, recorded
from hlo.tools.cases.extract import extracted
from hlo.tools.comparison import check
from hlo.tools.comparison.check import budget_of
from hlo.tools.comparison.compare import EXACT, compare
from hlo.tools.comparison.diff import matched
from hlo.tools.faults.bisect import line_of
from hlo.tools.faults.properties import same_results

MOST_BYTES = 1 << 30  # of values that are kept of the first program
SKIPPED = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "while", "conditional",
                     "call"})  # fmt: skip


class Diverged(Struct, frozen=True):
    """The first pair of instructions with other values, from operands that agree.

    iteration: how often its computation had been called before in a run, counted from 0; loop: the
    computation's name, "" for the entry. budget: what would have passed. is_whole: False where
    values were too many to keep, and the first one may stand earlier.
    """

    first: str
    second: str
    where: str
    loop: str
    iteration: int
    index: tuple[int, ...]
    actual: str
    expected: str
    budget: str
    is_whole: bool = True


def diverged(a: Case, b: Case, *, exact: bool = False) -> Diverged | None:
    """The first instruction of A whose value differs from its partner's in B; both are run by the
    reference. None where none does, or none of those that differ has a partner. exact: by a single
    bit already.
    """
    partner = {y: x for x, y in matched(a.module, b.module).items()}
    kept: dict[tuple[Instruction, int], np.ndarray] = {}
    times: Counter[Instruction] = Counter()
    room = [MOST_BYTES]
    wanted = set(partner.values())

    def keep(instruction: Instruction, value: object) -> object:
        is_kept = instruction in wanted and instruction.opcode not in SKIPPED
        if is_kept and isinstance(value, np.ndarray) and fits(instruction, value):
            room[0] -= value.nbytes
            if room[0] > 0:
                kept[instruction, times[instruction]] = value
        times[instruction] += 1
        return value

    driver.evaluate(a.module, *a.values, watch=keep)
    found: list[Diverged] = []
    again: Counter[Instruction] = Counter()

    def look(instruction: Instruction, value: object) -> object:
        x = partner.get(instruction)
        number = again[instruction]
        again[instruction] += 1
        if found or x is None or not isinstance(value, np.ndarray):
            return value
        theirs = kept.get((x, number))
        if theirs is not None and theirs.shape == value.shape and theirs.dtype == value.dtype:
            found.extend(_difference(x, instruction, number, theirs, value, exact=exact,
                                     whole=room[0] > 0))  # fmt: skip
        return value

    driver.evaluate(b.module, *b.values, watch=look)
    return found[0] if found else None


def _difference(
    x: Instruction,
    y: Instruction,
    number: int,
    a: np.ndarray,
    b: np.ndarray,
    *,
    exact: bool,
    whole: bool,
) -> list[Diverged]:
    """One finding, or none."""
    budget = EXACT if exact else budget_of(b)
    (report,) = compare(a, b, budget).arrays
    if report.passed:
        return []
    worst = report.worst[0]
    home = x.computation
    is_entry = home is None or home.module is None or home is home.module.entry
    where = f"{x.span.source.name}:{x.span.line}" if x.span else ""
    return [
        Diverged(
            line_of(x), line_of(y), where, "" if is_entry or home is None else home.name,
            0 if is_entry else number, worst.index, str(worst.actual), str(worst.expected),
            str(budget), whole,
        )
    ]  # fmt: skip


class WrongAlone(Struct, frozen=True):
    """An instruction whose compiled code differs from the reference on the values that it had."""

    instruction: str
    where: str
    case: Case


class Alone(Struct, frozen=True):
    """How far an instruction is off by itself, on the values that it had: in ulps of its type."""

    instruction: str
    where: str
    ulp: float
    passed: bool
    case: Case


def wrong_alone(
    case: Case, mode: str = "strict", against: str = "interpreter"
) -> WrongAlone | None:
    """The first instruction of a module that compiled code computes otherwise than the reference,
    or the reference in f64, each from equal inputs; the module is not optimised further.
    """
    for found in alone(case, mode, against):
        if not found.passed:
            return WrongAlone(found.instruction, found.where, found.case)
    return None


def alone(case: Case, mode: str = "strict", against: str = "interpreter") -> Iterator[Alone]:
    """Each instruction of a module by itself, from equal inputs: compiled code beside the
    reference (interpreter) or beside the reference in f64, rounded once.
    """
    rival = "f64" if against == "f64" else "interpreter"
    values = recorded(case)
    for instruction in (i for c in case.module.computations for i in c.instructions):
        if instruction.opcode in SKIPPED or instruction not in values:
            continue
        part = extracted([instruction], values)
        try:
            ours = driver.compile(part.module, "", mode, cache=False)(*part.values)
            expected = tuple(check.rival_leaves(part.module, list(part.values), rival))
        except HloError:  # of what does not run by itself
            continue
        leaves = tuple(arrays.leaves(ours))
        pairs = zip(leaves, expected, strict=True)
        ulp = max((compare(a, e).largest_ulp for a, e in pairs), default=0.0)
        span = instruction.span
        where = f"{span.source.name}:{span.line}" if span else ""
        yield Alone(line_of(instruction), where, ulp, same_results(leaves, expected), part)
