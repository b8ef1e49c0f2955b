"""Loop state: the elements of a while's tuple, which of them stay, and how to add further ones."""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec
from msgspec import Struct

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.ops.making import make

ASSUMED_TRIPS = 16  # Trips of a loop whose end is not known.


def is_extensible(loop: Instruction, calls: dict[Computation, list[Instruction]]) -> bool:
    """Whether the loop's state is a tuple that is its own to change: nobody else runs its body."""
    if "control-predecessors" in loop.attributes or not loop.shape.is_tuple:
        return False
    body, condition = loop.called_computations()
    own = all(len(calls.get(c, ())) == 1 for c in (body, condition)) and body is not condition
    return own and body.root.opcode == "tuple" and len(body.parameters) == 1


def unchanged_elements(body: Computation) -> Set[Instruction]:
    """The get-tuple-elements of the parameter that the root hands on in their own places, in the
    order of its users: passes that go through them add to states. None where the root is no tuple.
    """
    (parameter,) = body.parameters
    if body.root.opcode != "tuple":
        return dict[Instruction, None]().keys()
    return dict.fromkeys(
        element
        for element in parameter.users
        if element.opcode == "get-tuple-element"
        and body.root.operands[element_index(element)] in parameter.users
        and body.root.operands[element_index(element)].opcode == "get-tuple-element"
        and element_index(body.root.operands[element_index(element)]) == element_index(element)
    ).keys()


def element_index(element: Instruction) -> int:
    """Which element a get-tuple-element takes."""
    index = element["index"]
    assert isinstance(index, int), "an element has an integer index"
    return index


def start_of(loop: Instruction, index: int) -> Instruction:
    """What an element of the state is before the loop: itself, not an element of a tuple of it.

    An outer loop asks next whether it changes.
    """
    (start,) = loop.operands
    if start.opcode == "tuple":
        return start.operands[index]
    return make(loop, "get-tuple-element", start, index=index)


def extend(
    loop: Instruction, starts: Sequence[Instruction]
) -> tuple[Instruction, list[Instruction]]:
    """Further elements that no iteration changes, with these values: the loop, which is another
    instruction afterwards, and they, in the body.

    Whoever reads the whole old state gets a tuple. What attributes say of each element of the old
    state is forgotten.
    """
    body, condition = loop.called_computations()
    count = len(loop.shape.elements)
    shape = Shape.tuple((*loop.shape.elements, *(s.shape for s in starts)))
    kept = [start_of(loop, index) for index in range(count)]
    state = make(loop, "tuple", *kept, *starts, shape=shape)
    (parameter,) = body.parameters
    _widen(parameter, shape)
    elements = [
        make(parameter, "get-tuple-element", parameter, index=at)
        for at in range(count, count + len(starts))
    ]
    root = body.root
    body.root = body.new("tuple", shape, (*root.operands, *elements), like=root, name=root.name)
    body.remove(root)
    for parameter in condition.parameters:
        _widen(parameter, shape)
    return _replaced(loop, state, shape), elements


def _widen(parameter: Instruction, shape: Shape) -> None:
    """Gives the parameter the shape; whoever reads all of it gets a tuple of the old one."""
    whole = [user for user in parameter.users if user.opcode != "get-tuple-element"]
    old, computation = parameter.shape, parameter.computation
    parameter.shape = shape
    parameter.attributes = of_any_shape(parameter)
    if not whole:
        return
    assert computation is not None, "a parameter stands in a computation"
    parts = [
        make(parameter, "get-tuple-element", parameter, index=i) for i in range(len(old.elements))
    ]
    state = make(parameter, "tuple", *parts, shape=old)
    for user in whole:
        for k, operand in enumerate(user.operands):
            if operand is parameter:
                computation.set_operand(user, k, state)


def of_any_shape(instruction: Instruction) -> dict[str, object]:
    """The attributes but those with a part for each element."""
    return {k: v for k, v in instruction.attributes.items() if k not in ("sharding", "origin")}


def _replaced(loop: Instruction, state: Instruction, shape: Shape) -> Instruction:
    """A loop over the wider state in the loop's place."""
    computation = loop.computation
    assert computation is not None, "a loop stands in a computation"
    attributes = of_any_shape(loop)
    wider = computation.new("while", shape, (state,), attributes, like=loop, name=loop.name)
    readers = [u for u in loop.users if u.opcode == "get-tuple-element"]
    for reader in readers:
        computation.set_operand(reader, 0, wider)
    if loop.users or loop.is_root:
        parts = [
            make(loop, "get-tuple-element", wider, index=i) for i in range(len(loop.shape.elements))
        ]
        computation.replace_uses(loop, make(loop, "tuple", *parts, shape=loop.shape))
    computation.remove(loop)
    return wider


class Counter(Struct, frozen=True):
    """A loop's counter: its element of the state takes the values of range(first, limit)."""

    element: int
    first: int
    limit: int

    @property
    def iterations(self) -> int:
        return max(0, self.limit - self.first)


def counter(loop: Instruction) -> Counter | None:
    """The counter of a loop with a known number of iterations; None where none is seen.

    condition: state[n] < constant; body: state[n] + 1; start: a tuple with a constant at n.
    """
    body, condition = loop.attributes["body"], loop.attributes["condition"]
    assert isinstance(body, Computation), "a while has a body"
    assert isinstance(condition, Computation), "a while has a condition"
    test = condition.root
    if test.opcode != "compare" or test["direction"] != "LT":
        return None
    if body.root.opcode != "tuple" or loop.operands[0].opcode != "tuple":
        return None
    element, limit = test.operands
    last = integer_constant(limit)
    if last is None or element.opcode != "get-tuple-element" or element.operands[0].operands:
        return None
    number = element_index(element)
    step = body.root.operands[number]
    start = loop.operands[0]
    if step.opcode != "add":
        return None
    first = integer_constant(start.operands[number])
    before, by = step.operands
    steps_by_one = (
        before.opcode == "get-tuple-element"
        and before.operands[0] is body.parameters[0]
        and element_index(before) == number
        and integer_constant(by) == 1
    )
    return Counter(number, first, last) if first is not None and steps_by_one else None


class _TripCount(Struct, frozen=True):
    """XLA's record of how many trips a loop has.

    n: in digits, as XLA writes it.
    """

    n: str = ""


class _LoopConfig(Struct, frozen=True):
    """What of a loop's backend_config is read."""

    known_trip_count: _TripCount = _TripCount()


def trip_count(loop: Instruction) -> int | None:
    """How often a loop's body runs: what its counter says, else what its text does (XLA writes
    `known_trip_count`); None where neither is there.
    """
    known = counter(loop)
    if known is not None:
        return known.iterations
    text = loop.get("backend_config", "")
    if not isinstance(text, str) or "known_trip_count" not in text:
        return None
    try:
        said = msgspec.json.decode(text, type=_LoopConfig).known_trip_count.n
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return int(said) if said.isascii() and said.isdigit() and len(said) < 19 else None


def integer_constant(instruction: Instruction) -> int | None:
    """The value of an integer scalar constant; None of all else."""
    literal = instruction.get("literal")
    shape = instruction.shape
    if instruction.opcode != "constant" or not shape.is_scalar or not shape.dtype.is_integral:
        return None
    assert isinstance(literal, Literal), "a constant holds a literal"
    return None if literal.is_elided else int(literal.array)
