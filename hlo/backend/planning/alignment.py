"""Alignment: which unchanging arrays of a loop are worth being where a cache line begins.

A product reads its factors in whole vectors. Arrays of NumPy begin 16 bytes behind a line as a
rule, so that every vector of theirs lies in two lines; out of the second-level cache that takes
twice the time.
"""

from __future__ import annotations

from hlo.analysis.factors import factor_of
from hlo.analysis.fusibility import contraction_of
from hlo.analysis.legality import is_contraction
from hlo.analysis.while_loops.loop_state import counter
from hlo.backend.planning.schedule import Schedule, Source
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.machine import Machine

LEAST_TRIPS = 8  # Trips of a loop for which a copy pays.


def is_worth_aligning(
    schedule: Schedule, loop: Instruction, leaf: int, size: int, machine: Machine
) -> bool:
    """Whether products inside the loop read all of a state's leaf, often enough.

    Less than a part of the first-level cache is in there soon; more than half of the second-level
    one does not stay there beside the rest.
    """
    if not machine.first_cache.bytes // 16 <= size <= machine.second_cache.bytes // 2:
        return False
    known = counter(loop)
    if known is not None and known.iterations < LEAST_TRIPS:
        return False
    body = loop.attributes["body"]
    assert isinstance(body, Computation), "a while has a body"
    return _is_factor(schedule, body, (body.parameters[0], leaf))


def _is_factor(schedule: Schedule, body: Computation, source: Source) -> bool:
    """Whether a product in the body, or in a loop in it, has the value as a factor."""
    waiting = [(body, source)]
    while waiting:
        computation, wanted = waiting.pop()
        for instruction in schedule.orders[computation]:
            if instruction.opcode == "while":
                inner = instruction.attributes["body"]
                assert isinstance(inner, Computation), "a while has a body"
                (start,) = instruction.operands
                waiting += [
                    (inner, (inner.parameters[0], n))
                    for n in schedule.invariant[inner] - schedule.unread[inner]
                    if schedule.resolve(start, n) == wanted
                ]
            elif any(schedule.resolve(f, 0) == wanted for f in _factors(instruction)):
                return True
    return False


def _factors(instruction: Instruction) -> tuple[Instruction, ...]:
    """The arrays that a contraction multiplies, as the instruction's operands."""
    if not is_contraction(instruction):
        return ()
    inner = contraction_of(instruction)
    if inner is None:
        return instruction.operands[:2]
    factors = [factor_of(o) for o in inner.operands]
    numbers = [f.array["parameter_number"] for f in factors if f is not None]
    return tuple(o for n, o in enumerate(instruction.operands) if n in numbers)
