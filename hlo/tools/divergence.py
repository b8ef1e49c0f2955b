"""Divergence: the first instruction at which two programs, or two ways to run one, part.

A, B --paired as diff pairs them, values of every call in order--> the first pair that differs
optimised module --every instruction alone, on the values that it had--> the first wrong kernel
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from hlo import driver
from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.tools.bisect import line_of
from hlo.tools.cases import Case, fits, recorded
from hlo.tools.check import budget_of
from hlo.tools.compare import compare
from hlo.tools.diff import matched
from hlo.tools.extract import extracted
from hlo.tools.properties import same_results

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


def diverged(a: Case, b: Case) -> Diverged | None:
    """The first instruction of A whose value differs from its partner's in B; both are run by the
    reference. None where none does, or none of those that differ has a partner.
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
            found.extend(_difference(x, instruction, number, theirs, value, whole=room[0] > 0))
        return value

    driver.evaluate(b.module, *b.values, watch=look)
    return found[0] if found else None


def _difference(
    x: Instruction, y: Instruction, number: int, a: np.ndarray, b: np.ndarray, *, whole: bool
) -> list[Diverged]:
    """One finding, or none."""
    budget = budget_of(b, None, None)
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


def wrong_alone(case: Case, mode: str = "strict") -> WrongAlone | None:
    """The first instruction of a module that compiled code computes otherwise than the reference,
    each from equal inputs; the module is not optimised further.
    """
    values = recorded(case)
    for instruction in (i for c in case.module.computations for i in c.instructions):
        if instruction.opcode in SKIPPED or instruction not in values:
            continue
        alone = extracted([instruction], values)
        try:
            ours = driver.compile(alone.module, "", mode, cache=False)(*alone.values)
            expected = driver.evaluate(alone.module, *alone.values)
        except HloError:  # of what does not run by itself
            continue
        if not same_results(ours, expected):
            where = (
                f"{instruction.span.source.name}:{instruction.span.line}"
                if instruction.span
                else ""
            )
            return WrongAlone(line_of(instruction), where, alone)
    return None
