"""Moving averages: parameters that a program gives back as multiples of themselves.

They are optimisers' moments and running statistics.

    m' = 0.9 m + input

Whoever calls it step by step gives the result of one as the parameter of the next: without input,
they decay as states of loops do (while_loops/decays.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

from hlo.analysis.flow import Callers, Value, is_body, onward
from hlo.analysis.fusibility import is_large_fraction
from hlo.ir.computation import Computation
from hlo.ir.graph import callers_below
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape


def averages(entry: Computation) -> frozenset[Value]:
    """The values of such parameters, from the parameter to the result."""
    return entry.fact(_averages)


def _averages(entry: Computation) -> frozenset[Value]:
    results = dict(_results(entry.root))
    shapes = set(results.values())
    found: set[Value] = set()
    for parameter in entry.parameters:
        if parameter.shape in shapes and parameter.shape.dtype.is_float:
            found |= _followed(parameter, entry, results)
    return frozenset(found)


def _results(root: Instruction) -> list[tuple[Value, Shape]]:
    """What the program gives: its arrays."""
    if root.opcode != "tuple":
        return [((root, ()), root.shape)]
    return [((root, (n,)), operand.shape) for n, operand in enumerate(root.operands)]


class _Stage(IntEnum):
    """What a value is of the parameter."""

    SAME = 0
    MULTIPLE = 1
    AVERAGE = 2  # a multiple and something else


def _followed(
    parameter: Instruction, entry: Computation, results: Mapping[Value, Shape]
) -> set[Value]:
    """The values from a parameter on that are it, multiples of it and sums with such; none if no
    such sum is a result.
    """
    callers = entry.fact(callers_below)
    stages: dict[Value, _Stage] = {(parameter, ()): _Stage.SAME}
    waiting: list[Value] = [(parameter, ())]
    while waiting:
        value = waiting.pop()
        for to, stage in _made(value, stages, callers):
            if to not in stages:
                stages[to] = stage
                waiting.append(to)
    averages = (value for value, stage in stages.items() if stage is _Stage.AVERAGE)
    is_given = any(results.get(value) == parameter.shape for value in averages)
    return set(stages) if is_given else set()


def _made(
    value: Value, stages: Mapping[Value, _Stage], callers: Callers
) -> Iterator[tuple[Value, _Stage]]:
    """What is made of a value in these ways; but not in loops, which begin with it alone."""
    stage = stages[value]
    for to, op in onward(value, callers):
        match op:
            case None if not is_body(to[0].computation):
                yield to, stage
            case Instruction(opcode="multiply") if any(_is_part(o) for o in op.operands):
                yield to, max(stage, _Stage.MULTIPLE)
            case Instruction(opcode="add" | "subtract") if stage is not _Stage.SAME:
                if not all((o, ()) in stages for o in op.operands):
                    yield to, _Stage.AVERAGE
            case Instruction(opcode="select") if value[0] in op.operands[1:]:
                yield to, stage
            case Instruction(opcode="convert" | "copy" | "negate" | "reshape" | "bitcast"):
                yield to, stage


def _is_part(factor: Instruction) -> bool:
    """Whether it is a number that an average keeps of itself: of an input, or a step, it is less
    than a half.
    """
    return is_large_fraction(factor.operands[0] if factor.opcode == "broadcast" else factor)
