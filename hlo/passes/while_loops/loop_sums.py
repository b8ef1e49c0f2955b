"""Loop sums: what the trips of a loop add up in its state, and where the summands come from.

    acc = acc + dot(x[i], z)     acc = acc + dot(v, w)     acc[m, n] = acc[m, n] + x[m] * z[n]

As gradients of what all steps share: what a trip adds is a product of two values of the trip, or
linear in one, its product with a matrix that no trip changes. Nobody in the loop looks at the sum.
A product without depth, or of depth one, is written as a multiplication of broadcast values.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.analysis.while_loops.loop_state import Counter, unchanged_elements
from hlo.analysis.while_loops.row_updates import RowOrder, reads_of, row_dim, row_order
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints, Shape
from hlo.ops.table import Trait, opcodes
from hlo.passes.liveness import awaited
from hlo.passes.patterns.matching import has_one_user, ints

_MOVES = opcodes(Trait.REGROUPS) | opcodes(Trait.PERMUTES)
MOST_GROWTH = 4  # Of a sum that stays in the loop beside the one that leaves it.
# Elements of an outer product for each of its factors' that is kept instead of it.
LEAST_OUTER = 4


class Term(Struct, frozen=True):
    """What a trip adds, linear in `base`: steps, the first of which takes the base. A product of
    two values of the trip is a base without the steps before it.
    """

    value: Instruction
    base: Instruction
    steps: tuple[Instruction, ...]

    @property
    def is_product(self) -> bool:
        """Whether the base is a product of two values of the trip."""
        return self.base.opcode == "dot" or outer_factors(self.base) is not None


class LoopSum(Struct, frozen=True):
    """An element of the state to which each trip adds: its number, and what is added, in order."""

    number: int
    element: Instruction
    values: tuple[Instruction, ...]
    terms: tuple[Term, ...]


class Rows(Struct, frozen=True):
    """An array of the state, never changed, of which a trip takes a row along a dimension.

    at: where, as the trip says it.
    """

    element: Instruction
    dim: int
    at: Instruction
    order: RowOrder


class SummingLoop:
    """A loop that counts, and what its body has."""

    def __init__(self, loop: Instruction, known: Counter) -> None:
        self.loop, self.known = loop, known
        self.body, self.condition = loop.called_computations()
        self.unchanged = unchanged_elements(self.body)
        self._kept = awaited(self.body)

    def sums(self) -> list[LoopSum]:
        """The elements of the state that trips add to, with terms that need not be summed there."""
        found = (self._sum(number) for number in range(len(self.body.root.operands)))
        return [one for one in found if one is not None and one.terms]

    def _sum(self, number: int) -> LoopSum | None:
        """An element that is read by nobody but the additions that make it anew."""
        reads = reads_of(self.body, number)
        shape = self.loop.shape.elements[number]
        if len(reads) != 1 or reads_of(self.condition, number):
            return None
        (element,) = reads
        if element is None:
            return None
        if not shape.is_array or shape.is_dynamic or shape.dtype.is_pred:
            return None
        values = []
        waiting = [self.body.root.operands[number]]
        while waiting:
            value = waiting.pop()
            if value.opcode == "add" and self._is_alone(value):
                waiting += value.operands[::-1]
            else:
                values.append(value)
        if values.count(element) != 1 or len(element.users) != 1 or len(values) == 1:
            return None
        values.remove(element)
        terms = (self._term(value) for value in values)
        return LoopSum(number, element, tuple(values), tuple(t for t in terms if t is not None))

    def _is_alone(self, value: Instruction) -> bool:
        """Whether a value is read at one place, and nothing waits for it."""
        if not has_one_user(value) or value in self._kept:
            return False
        (user,) = value.users
        return user.operands.count(value) == 1 and "control-predecessors" not in value.attributes

    def _term(self, value: Instruction) -> Term | None:
        """A value as what it is linear in, from the last product with a matrix on, or as a product
        of two values of the trip.
        """
        steps: list[Instruction] = []
        mixing = 0  # of the steps, those down to the last that is worth to leave the loop
        base = value
        while self._is_alone(base):
            source = base.operands[0] if base.opcode in _MOVES else self._multiplied(base)
            if source is None:
                break
            steps.append(base)
            if base.opcode not in _MOVES:
                mixing = len(steps)
            base = source
        outer = outer_factors(base)
        is_changing = self.unchanged.isdisjoint(outer or base.operands)
        is_product = (base.opcode == "dot" and is_simple_dot(base)) or outer is not None
        if is_product and self._is_alone(base) and is_changing:
            return Term(value, base, tuple(steps[::-1]))
        if not mixing:
            return None
        last = steps[mixing - 1]
        return Term(value, last.operands[self.side(last)], tuple(steps[:mixing][::-1]))

    def _multiplied(self, dot: Instruction) -> Instruction | None:
        """What is multiplied by a matrix that no trip changes, of the result's type and not much
        larger.
        """
        kept = [operand in self.unchanged for operand in dot.operands]
        if dot.opcode != "dot" or not is_simple_dot(dot) or sum(kept) != 1:
            return None
        source = dot.operands[kept.index(False)]
        is_held = source.shape.dtype == dot.shape.dtype
        return source if is_held and source.shape.size <= MOST_GROWTH * dot.shape.size else None

    def side(self, step: Instruction) -> int:
        """Which operand of a step it is linear in."""
        return int(step.opcode == "dot" and step.operands[0] in self.unchanged)

    def rows(self, value: Instruction) -> Rows | None:
        """The array of which a value is the row of each trip, each row in one trip."""
        if value.opcode != "reshape" or value.operands[0].opcode != "dynamic-slice":
            return None
        (slice,) = value.operands
        array, *starts = slice.operands
        dim = row_dim(array.shape, slice.shape) if array in self.unchanged else None
        if dim is None or not _is_row(array.shape, dim, value.shape):
            return None
        order = row_order(starts[dim], self.body, self.known, array.shape.dims[dim])
        return None if order is None else Rows(array, dim, starts[dim], order)


def _is_row(array: Shape, dim: int, row: Shape) -> bool:
    """Whether a shape is that of an array's row; of one along the first dimension, dimensions of
    one element may have gone or come."""
    rest = without(array.dims, dim)
    return rest == row.dims or (dim == 0 and longer(rest) == longer(row.dims))


def longer(dims: Ints) -> Ints:
    """Sizes but for those of one element."""
    return tuple(n for n in dims if n != 1)


def outer_factors(value: Instruction) -> tuple[Instruction, Instruction] | None:
    """The two values of which a multiplication is the outer product, whose dimensions follow each
    other in the result; None where it is none, or not much larger than both.
    """
    spread = value.operands
    if value.opcode != "multiply" or any(o.opcode != "broadcast" for o in spread):
        return None
    first, second = sorted(spread, key=lambda o: ints(o, "dimensions"))
    if ints(first, "dimensions") + ints(second, "dimensions") != tuple(range(value.shape.rank)):
        return None
    (left,), (right,) = first.operands, second.operands
    is_short = not left.shape.dims or not right.shape.dims or value.shape.is_dynamic
    few = LEAST_OUTER * (left.shape.size + right.shape.size)
    return None if is_short or value.shape.size < few else (left, right)


def without(dims: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """Sizes but for one dimension's."""
    return (*dims[:dim], *dims[dim + 1 :])


def is_simple_dot(dot: Instruction) -> bool:
    """Whether a dot is of whole arrays."""
    return "sparsity" not in dot.attributes and not any(o.shape.is_dynamic for o in dot.operands)
