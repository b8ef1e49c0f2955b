"""Flow: where a value goes, into computations that are called and out of them again.

    callers, value --onward--> (next value, the op that makes it of the value)

A value is an instruction and the element of its tuple; an op is None where the value is handed on
as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hlo.ir.computation import Computation
from hlo.ir.graph import body_of, callers_below
from hlo.ir.instruction import Instruction

Value = tuple[Instruction, tuple[int, ...]]
Callers = Mapping[Computation, Sequence[Instruction]]


def onward(value: Value, callers: Callers) -> Iterator[tuple[Value, Instruction | None]]:
    """The values next to a value: through tuples, fusions, calls, loops and branches."""
    instruction, path = value
    around = instruction.computation
    if around is not None and around.root is instruction:
        for caller in callers.get(around, ()):
            yield from (((v, path), None) for v in _of_root(caller, around))
    for user in instruction.users:
        places = [n for n, o in enumerate(user.operands) if o is instruction]
        match user.opcode:
            case "tuple":
                yield from (((user, (n, *path)), None) for n in places)
            case "get-tuple-element":
                if path and user["index"] == path[0]:
                    yield (user, path[1:]), None
            case "opt-barrier" | "copy" | "domain" if path:
                yield (user, path), None
            case "fusion" | "call":
                (callee,) = user.called_computations()
                yield from (((callee.parameters[n], path), None) for n in places)
            case "while":
                yield (body_of(user).parameters[0], path), None
            case "conditional":
                branches = user.called_computations()
                yield from (((branches[n - 1].parameters[0], path), None) for n in places if n)
            case _ if not path:
                yield (user, ()), user
            case _:
                pass


def _of_root(caller: Instruction, callee: Computation) -> Iterator[Instruction]:
    """What the value of a computation's root is around it."""
    match caller.opcode:
        case "fusion" | "call" | "conditional":
            yield caller
        case "while" if body_of(caller) is callee:
            yield caller
            yield callee.parameters[0]
        case _:
            pass


def origin(value: Instruction) -> Instruction:
    """What makes an array: seen through tuples and into fusions, and out of fusions and of loops
    that hand it on.
    """
    while True:
        seen = _before(value)
        if seen is None:
            return value
        value = seen


def _before(value: Instruction) -> Instruction | None:
    match value.opcode:
        case "fusion" if value.shape.is_array:
            return value.called_computations()[0].root
        case "get-tuple-element":
            index = value["index"]
            assert isinstance(index, int), "an element has an integer index"
            return _element(value.operands[0], index)
        case "parameter" if value.shape.is_array and (caller := _only_caller(value)) is not None:
            number = value["parameter_number"]
            assert isinstance(number, int), "an INT64"
            return caller.operands[number] if caller.opcode == "fusion" else None
        case "opt-barrier" | "copy" | "bitcast" if value.shape == value.operands[0].shape:
            return value.operands[0]
    return None


def _element(source: Instruction, index: int) -> Instruction | None:
    """What an element of a tuple is."""
    # Factors of products alone are looked for so.
    from hlo.analysis.while_loops.loop_state import element_index, unchanged_elements

    while source.opcode == "parameter":  # of a loop that hands the element on
        caller = _only_caller(source)
        if caller is None or caller.opcode != "while":
            return None
        kept = unchanged_elements(body_of(caller))
        if not any(e in source.users and element_index(e) == index for e in kept):
            return None
        (source,) = caller.operands
    if source.opcode == "fusion":
        source = source.called_computations()[0].root
    return source.operands[index] if source.opcode == "tuple" else None


def is_body(computation: Computation | None) -> bool:
    """Whether a while runs it."""
    if computation is None or computation.module is None:
        return False
    callers = computation.module.entry.fact(callers_below).get(computation, [])
    return any(c.opcode == "while" for c in callers)


def _only_caller(parameter: Instruction) -> Instruction | None:
    """The one instruction that calls the parameter's computation."""
    around = parameter.computation
    if around is None or around.module is None:
        return None
    found = around.module.entry.fact(callers_below).get(around, [])
    return found[0] if len(found) == 1 else None
