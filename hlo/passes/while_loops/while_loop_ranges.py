"""while-loop-ranges: what is known of the numbers that a loop counts.

    i = 0, 1, .. n-1:  i < 0  =>  false     j = i in every trip:  j  =>  i     behind it:  i  =>  n

JAX writes x[i] as select(i < 0, i + n, i), and a fori_loop as one that counts twice: once for the
condition and once for the body. A start that is the counter itself is a slice that other passes
know: rows that are taken in turn, weights of a layer, rows of a result. What a counter ends with is
a constant, so that nobody asks a loop for it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.analysis.while_loops.loop_state import Counter, counter, element_index, integer_constant
from hlo.ir.computation import Computation
from hlo.ir.graph import callers
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ops.making import make, make_constant
from hlo.passes.while_loops.counted_rows import counted_rows
from hlo.passes.while_loops.counted_runs import counted_runs

_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


class _Counted(Struct, frozen=True):
    """An element of the state that is `first` in the first trip, moves by `by` in each, and is
    `last` in the last one."""

    element: int
    first: int
    by: int
    last: int

    @property
    def range(self) -> tuple[int, int]:
        return min(self.first, self.last), max(self.first, self.last)


def while_loop_ranges(module: Module) -> bool:
    """Decide comparisons of what a loop counts, and count once. O(edges)."""
    changed = False
    for body, loops in callers(module).items():
        if not loops or not all(i.opcode == "while" for i in loops):
            continue
        if any(i.attributes["body"] is not body for i in loops):
            continue  # a condition
        for loop in loops:
            changed |= _ended(loop)
        known = _known_in_all(loops)
        if known is not None and len(body.parameters) == 1:
            changed |= _simplified(body, *known)
            if len(loops) == 1:
                ranges = {one.element: one.range for one in known[1]}
                changed |= counted_rows(body, loops[0], ranges)
                changed |= counted_runs(body, loops[0], ranges)
    return changed


def _ended(loop: Instruction) -> bool:
    """Put constants in the place of what a loop's counters end with."""
    known, computation = counter(loop), loop.computation
    if known is None or known.iterations == 0 or computation is None:
        return False
    ends = {one.element: one.last + one.by for one in _counted(loop, known)}
    if loop.is_root and ends:
        parts = [
            make(loop, "get-tuple-element", loop, index=k) for k in range(len(loop.shape.elements))
        ]
        computation.root = make(loop, "tuple", *parts, shape=loop.shape)
    read = [u for u in loop.users if u.opcode == "get-tuple-element" and element_index(u) in ends]
    for end in read:
        literal = Literal.of(np.array(ends[element_index(end)]), end.shape)
        computation.replace_uses(end, make_constant(end, literal))
    return bool(read)


def _known_in_all(loops: list[Instruction]) -> tuple[Counter, list[_Counted]] | None:
    """What the loops that run a body count alike; None where they do not, or nothing. Functions
    that are called several times, as random numbers are, become loops that share their bodies.
    """
    counters = {counter(loop) for loop in loops}
    known = counters.pop()
    if known is None or counters or known.iterations == 0:
        return None
    found = _counted(loops[0], known)
    for loop in loops[1:]:
        others = _counted(loop, known)
        found = [one for one in found if one in others]
    return known, found


def _simplified(body: Computation, known: Counter, counted: list[_Counted]) -> bool:
    """Use in a loop's body what is known of its numbers."""
    changed = False
    (parameter,) = body.parameters
    elements = [u for u in parameter.users if u.opcode == "get-tuple-element"]
    counting = [e for e in elements if element_index(e) == known.element]
    for found in counted:
        is_same = (found.first, found.by) == (known.first, 1)
        for value in [e for e in elements if element_index(e) == found.element]:
            for user in tuple(value.users):
                changed |= _decided(user, value, found)
            if is_same and counting and found.element != known.element:
                changed |= _counted_once(body, value, counting[0], found.element)
    return changed


def _counted_once(
    body: Computation, value: Instruction, counting: Instruction, number: int
) -> bool:
    """Let the counter stand where an equal element of the state is read, and its next value where
    that has its own.
    """
    if value.shape != counting.shape:
        return False
    step = body.root.operands[number]
    for user in tuple(value.users):
        for place, operand in enumerate(user.operands):
            if operand is value and user is not step:
                body.set_operand(user, place, counting)
    body.set_operand(body.root, number, body.root.operands[element_index(counting)])
    return True


def _counted(loop: Instruction, known: Counter) -> list[_Counted]:
    """The elements of the state that each trip adds a constant to, none of which wraps."""
    body, _ = loop.called_computations()
    (state,) = loop.operands
    found = []
    for number, (start, step) in enumerate(zip(state.operands, body.root.operands, strict=True)):
        first, by = integer_constant(start), _step(step, number)
        if first is None or by is None:
            continue
        last = first + by * (known.iterations - 1)
        bits = start.shape.dtype.bits - start.shape.dtype.is_signed
        if abs(last) + abs(by) < 1 << bits and (first >= 0 or start.shape.dtype.is_signed):
            found.append(_Counted(number, first, by, last))
    return found


def _step(step: Instruction, number: int) -> int | None:
    """What is added to the element of the state to make the next one; None where it is not so."""
    if step.opcode != "add":
        return None
    for before, by in (step.operands, step.operands[::-1]):
        is_element = before.opcode == "get-tuple-element" and not before.operands[0].operands
        if is_element and element_index(before) == number:
            return integer_constant(by)
    return None


def _decided(compare: Instruction, value: Instruction, found: _Counted) -> bool:
    """Put a constant in the place of a comparison that comes out the same in all trips."""
    if compare.opcode != "compare" or compare.operands[0] is compare.operands[1]:
        return False
    left, right = compare.operands
    direction = str(compare["direction"])
    if left is not value:
        left, right, direction = right, left, _MIRRORED[direction]
    number = integer_constant(right)
    if number is None:
        return False
    low, high = found.range
    ends = [_holds(direction, end, number) for end in (low, high)]
    is_between = direction in ("EQ", "NE") and low <= number <= high
    body = compare.computation
    if ends[0] is not ends[1] or is_between or body is None or not compare.users:
        return False
    literal = Literal.of(np.array(ends[0]), compare.shape)
    body.replace_uses(compare, make_constant(compare, literal))
    return True


def _holds(direction: str, a: int, b: int) -> bool:
    return {
        "LT": a < b, "LE": a <= b, "GT": a > b, "GE": a >= b, "EQ": a == b, "NE": a != b,
    }[direction]  # fmt: skip
