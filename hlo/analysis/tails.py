"""Tails: which values are likely to have subnormal elements, so that processors wait for them.

    computation --tails--> values of its module: an instruction, which element of a tuple

Such elements begin where numbers underflow (underflow.py), in states of loops that decay
(while_loops/decays.py), and in those that a program hands from call to call (moving_averages.py).
What multiplies or moves such a number hands it on. Other functions, sums and the numbers that
programs are given hardly come near.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo.analysis.decisions import Decisions, config_of
from hlo.analysis.flow import Callers, Value, onward
from hlo.analysis.moving_averages import averages
from hlo.analysis.underflow import beginnings
from hlo.ir.computation import Computation
from hlo.ir.graph import callers_below, calls
from hlo.ir.instruction import Instruction
from hlo.ops.table import INDEX_MAPS, Trait, opcodes

_LIKE = opcodes(INDEX_MAPS | Trait.KEEPS_TINY)  # whose results are as tiny as operands
# Of an op's operands those whose tiny elements make tiny results; of moves all.
_FROM = {
    "multiply": slice(None), "negate": slice(None), "abs": slice(None), "convert": slice(None),
    "divide": slice(1), "select": slice(1, None),
}  # fmt: skip


def tails(computation: Computation) -> frozenset[Value]:
    """Those of a computation and of what it calls and is called by; what the program is given
    counts as normal. Of a module that is not edited any more.
    """
    module = computation.module
    return (computation if module is None else module.entry).fact(_tails)


def tell(part: Computation, whole: Computation) -> None:
    """Say of a part's parameters, which are called as those of the whole are, what is known of
    these.
    """
    found = tails(whole)
    names = {p.name for p in whole.parameters if (p, ()) in found}
    for parameter in part.parameters:
        if parameter.name in names:
            said = config_of(Decisions(underflows=True))
            part.set_attributes(parameter, {**parameter.attributes, "backend_config": said})


def _tails(entry: Computation) -> frozenset[Value]:
    called = entry.fact(callers_below)
    waiting: list[Value] = list(averages(entry))
    for around in called:
        waiting += ((begin, ()) for begin in beginnings(around))
        for loop in calls(around):
            if loop.opcode == "while":
                from hlo.analysis.while_loops.decays import decaying  # few programs have loops

                waiting += decaying(loop, called)
    found = set(waiting)
    while waiting:
        for value in _handed_on(waiting.pop(), called, found):
            if value not in found:
                found.add(value)
                waiting.append(value)
    return frozenset(found)


def _handed_on(value: Value, called: Callers, found: set[Value]) -> Iterator[Value]:
    """The values with elements that are tiny where the value's are."""
    instruction, _ = value
    for to, op in onward(value, called):
        match op:
            case None:
                yield to
            case Instruction(opcode="add" | "subtract" | "dot"):
                if all((o, ()) in found for o in op.operands):
                    yield to
            case Instruction(opcode=opcode):
                taken = op.operands[_FROM.get(opcode, slice(0))]
                if opcode in _LIKE or instruction in taken:
                    yield to
