"""while-loop-result-batching: one product behind a loop for the rows that its trips would write.

    for i: ys[i] = dot(z, w)     =>     for i: zs[i] = z;     ys = dot(zs, w)

The gradient of a scan's inputs is such a product, and so is what a recurrent network says in each
step. With few rows a trip reads the matrix for little arithmetic; all rows together are arithmetic
at full speed, for which a factor is kept, where the loop does not keep it anyway. Nobody in the
loop looks at the rows, and the matrix is one that no trip changes.

The other way round as while-loop-dot-batching, for the products that it does for rows that are
there before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from msgspec import Struct

from hlo.analysis.while_loops.loop_state import (
    Counter,
    counter,
    element_index,
    extend,
    start_of,
    unchanged_elements,
)
from hlo.analysis.while_loops.row_updates import RowOrder, row_dim, row_order, row_update
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Ints, Shape
from hlo.ops.contraction import DotAttributes
from hlo.ops.making import make, make_constant, transposed
from hlo.passes.liveness import awaited
from hlo.passes.loop_making import blank, element, extensible_loops, home
from hlo.passes.patterns.contraction import exchanged_attributes
from hlo.passes.patterns.matching import has_one_user, is_plain
from hlo.passes.while_loops.loop_shrinking import shrink
from hlo.passes.while_loops.loop_sums import is_simple_dot

LEAST_ITERATIONS = 4


class Written(Struct, frozen=True):
    """An element of the state of which each trip writes a row, all in all one run of memory.

    row: what is written, as it is computed; at: which row that is.
    """

    number: int
    row: Instruction
    at: Instruction
    order: RowOrder


class Result(Struct, frozen=True):
    """Rows that are products: of operand `side`, which trips compute, and a matrix."""

    written: Written
    side: int

    @property
    def dot(self) -> Instruction:
        return self.written.row

    @property
    def factor(self) -> Instruction:
        return self.dot.operands[self.side]

    @property
    def matrix(self) -> Instruction:
        return self.dot.operands[1 - self.side]


def while_loop_result_batching(
    module: Module,
    *,
    max_rows: int = 4,
    max_ops: int = 1 << 21,
    max_bytes: int = 1 << 24,
    least_bytes: int = 1 << 13,
) -> bool:
    """Multiply what trips write by a matrix that no trip changes behind the loop, at once.

    max_rows: rows of one trip, where it has more than max_ops operations; max_bytes: of the factor
    that is kept, and of the product; least_bytes: of the matrix. Only for loops with a known number
    of iterations. O(edges).
    """
    changed = False
    for loop in extensible_loops(module):
        known = counter(loop)
        if known is None or known.iterations < LEAST_ITERATIONS:
            continue
        written = _written(loop, known)
        found = [
            result
            for result in _results(loop, written)
            if (_rows(result) <= max_rows or _operations(result) <= max_ops)
            and known.iterations * result.factor.shape.size_bytes <= max_bytes
            and known.iterations * result.dot.shape.size_bytes <= max_bytes
            and result.matrix.shape.size_bytes >= least_bytes
        ]
        if found:
            _Moving(loop, known, written).move(found)
            changed = True
    return changed


def _written(loop: Instruction, known: Counter) -> list[Written]:
    """The elements of the state that trips write."""
    body, _ = loop.called_computations()
    kept = awaited(body)
    found = []
    for number in range(len(loop.shape.elements)):
        update = row_update(loop, number, known)
        if update is None or update in kept or not is_plain(update.shape):
            continue
        target, row, *starts = update.operands
        dim = row_dim(target.shape, row.shape)
        assert dim is not None, "a row is updated"
        order = row_order(starts[dim], body, known, target.shape.dims[dim])
        if order is None or prod(target.shape.dims[:dim]) != 1:
            continue
        while row.opcode == "reshape" and row not in kept:
            (row,) = row.operands
        found.append(Written(number, row, starts[dim], order))
    return found


def _results(loop: Instruction, written: Sequence[Written]) -> Iterator[Result]:
    """The rows that are such products, which nobody else in a trip reads."""
    body, _ = loop.called_computations()
    unchanged, kept = unchanged_elements(body), awaited(body)
    for one in written:
        dot = one.row
        if dot.opcode != "dot" or dot in kept or "control-predecessors" in dot.attributes:
            continue
        dims = DotAttributes.of(dot.attributes).dims
        is_whole = is_simple_dot(dot) and is_plain(dot.shape) and not dims.lhs_batch
        sides = [n for n, operand in enumerate(dot.operands) if operand not in unchanged]
        if is_whole and len(sides) == 1 and _is_read_once(dot):
            yield Result(one, sides[0])


def _is_read_once(value: Instruction) -> bool:
    """Whether an update is all that a value is for, through reshapes."""
    while has_one_user(value):
        (value,) = value.users
        if value.opcode == "dynamic-update-slice":
            return True
        if value.opcode != "reshape":
            return False
    return False


def _contracted(result: Result) -> Ints:
    dims = DotAttributes.of(result.dot.attributes).dims
    return dims.rhs_contracting if result.side else dims.lhs_contracting


def _depth(result: Result) -> int:
    return prod(result.factor.shape.dims[d] for d in _contracted(result))


def _rows(result: Result) -> int:
    return result.factor.shape.size // max(1, _depth(result))


def _operations(result: Result) -> int:
    """Of one trip's product."""
    return 2 * _depth(result) * result.dot.shape.size


class _Moving:
    """Takes products out of a loop."""

    def __init__(self, loop: Instruction, known: Counter, written: Sequence[Written]) -> None:
        self.loop, self.trips = loop, known.iterations
        self.stacks = {(one.row, one.order): one.number for one in written}
        self.starts: list[Shape] = []  # of further elements of the state

    def move(self, results: Sequence[Result]) -> None:
        """Let the loop keep the factors, and make the products behind it."""
        new = [r for r in results if self._is_new(r)]
        loop, elements = extend(self.loop, [blank(self.loop, s) for s in self.starts])
        body, _ = loop.called_computations()
        for result, stack in zip(new, elements, strict=True):
            one = make(result.factor, "reshape", result.factor, shape=self._all(result.factor, 1))
            at = result.written.at
            zero = make_constant(at, Literal.of(0, at.shape))
            starts = [at, *[zero] * result.factor.shape.rank]
            row = make(result.factor, "dynamic-update-slice", stack, one, *starts)
            body.set_operand(body.root, element_index(stack), row)
        for result in results:
            self._replace(loop, result)
        shrink(loop, {r.written.number for r in results})

    def _is_new(self, result: Result) -> bool:
        """Whether the loop does not keep a factor yet; it gets its place."""
        key = result.factor, result.written.order
        if key in self.stacks:
            return False
        self.stacks[key] = len(self.loop.shape.elements) + len(self.starts)
        self.starts.append(self._all(result.factor, self.trips))
        return True

    def _all(self, row: Instruction, count: int) -> Shape:
        """The shape of so many rows."""
        return Shape.array(row.shape.dtype, (count, *row.shape.dims))

    def _replace(self, loop: Instruction, result: Result) -> None:
        """The product of all rows in the place of what trips write."""
        number = result.written.number
        readers = [u for u in loop.users if element_index(u) == number]
        if not readers:
            return
        product = self._product(loop, result)
        whole = _as(loop, product, loop.shape.elements[number])
        for reader in readers:
            home(loop).replace_uses(reader, whole)
            home(loop).remove(reader)

    def _product(self, loop: Instruction, result: Result) -> Instruction:
        """The products of all trips, one after the other."""
        dot, factor = result.dot, result.factor
        rows = element(loop, self.stacks[factor, result.written.order])
        rows = _as(loop, rows, self._all(factor, self.trips))
        attributes = dict(exchanged_attributes(dot) if result.side else dot.attributes)
        attributes["lhs_contracting_dims"] = tuple(d + 1 for d in _contracted(result))
        matrix = start_of(loop, element_index(result.matrix))
        free = factor.shape.rank - len(_contracted(result))
        dims = dot.shape.dims
        first, last = (dims[-free:], dims[:-free]) if result.side and free else (dims, ())
        shape = Shape.array(dot.shape.dtype, (self.trips, *first, *last))
        product = home(loop).new("dot", shape, [rows, matrix], attributes, like=dot)
        moved = range(1 + len(first), shape.rank), range(1, 1 + len(first))
        return transposed(product, (0, *moved[0], *moved[1])) if last else product


def _as(like: Instruction, value: Instruction, shape: Shape) -> Instruction:
    """The same elements in another shape."""
    return value if value.shape == shape else make(like, "reshape", value, shape=shape)
