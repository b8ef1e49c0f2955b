"""while-loop-result-batching: one product behind a loop for the rows that its trips would write.

    for i: ys[i] = dot(z, w) + b     =>     for i: zs[i] = z;     ys = dot(zs, w) + b

The gradient of a scan's inputs is such a product, and so is what a recurrent network says in each
step, with what is made of it element by element (trip_rows.py). With few rows a trip reads the
matrix for little arithmetic; all rows together are arithmetic at full speed, for which a factor is
kept, where the loop does not keep it anyway. Nobody in the loop looks at the rows, and no trip
changes the matrix.

It does behind a loop what while-loop-dot-batching does before it for rows that are there by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from math import prod

from msgspec import Struct

from hlo.analysis.fusibility import is_elementwise
from hlo.analysis.while_loops.loop_state import (
    Counter,
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
from hlo.passes.loop_making import blank, element, home
from hlo.passes.patterns.contraction import exchanged_attributes
from hlo.passes.patterns.matching import is_plain
from hlo.passes.while_loops.loop_shrinking import shrink
from hlo.passes.while_loops.loop_sums import is_simple_dot
from hlo.passes.while_loops.trip_products import Limits, loops_with_dots
from hlo.passes.while_loops.trip_rows import MOST_MEMBERS, Taken, TripRows


class Written(Struct, frozen=True):
    """An element of the state of which each trip writes a row, all in all one run of memory.

    row: what is written, as it is computed; at: which row that is.
    """

    number: int
    row: Instruction
    at: Instruction
    order: RowOrder


class Product(Struct, frozen=True):
    """A dot of operand `side`, which trips compute, and a matrix."""

    dot: Instruction
    side: int

    @property
    def factor(self) -> Instruction:
        return self.dot.operands[self.side]

    @property
    def matrix(self) -> Instruction:
        return self.dot.operands[1 - self.side]

    @property
    def contracted(self) -> Ints:
        """The factor's dimensions that are summed over."""
        dims = DotAttributes.of(self.dot.attributes).dims
        return dims.rhs_contracting if self.side else dims.lhs_contracting

    @property
    def depth(self) -> int:
        return prod(self.factor.shape.dims[d] for d in self.contracted)

    @property
    def rows(self) -> int:
        return self.factor.shape.size // max(1, self.depth)

    @property
    def operations(self) -> int:
        """Of one trip."""
        return 2 * self.depth * self.dot.shape.size


class Result(Struct, frozen=True):
    """Rows that are computed of products, element by element."""

    written: Written
    products: tuple[Product, ...]
    rows: TripRows


def while_loop_result_batching(
    module: Module,
    *,
    max_rows: int = 4,
    max_ops: int = 1 << 21,
    max_bytes: int = 1 << 24,
    least_bytes: int = 1 << 13,
) -> bool:
    """Multiply what trips write by a matrix that no trip changes behind the loop, at once.

    max_rows: rows of one trip, where it has more than max_ops operations; max_bytes: of a factor
    that is kept, and of a product; least_bytes: of a matrix. Only for loops with a known number of
    iterations. O(edges) for each array that trips write.
    """
    changed = False
    limits = Limits(max_rows, max_ops, max_bytes, least_bytes)
    for loop, known in loops_with_dots(module):
        written = _written(loop, known)
        results = _results(loop, known, written)
        found = [r for r in results if all(_pays(p, known, limits) for p in r.products)]
        if found:
            _Moving(loop, known, written).move(found)
            changed = True
    return changed


def _pays(product: Product, known: Counter, limits: Limits) -> bool:
    """Whether all trips' products at once take less than one in each trip."""
    kept = known.iterations * product.factor.shape.size_bytes
    made = known.iterations * product.dot.shape.size_bytes
    return limits.admit(product.rows, product.operations, product.matrix.shape, kept, made)


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


def _results(loop: Instruction, known: Counter, written: Sequence[Written]) -> Iterator[Result]:
    """The rows that such products give, of which nothing else in a trip reads anything."""
    body, _ = loop.called_computations()
    unchanged, kept = unchanged_elements(body), awaited(body)
    for one in written:
        products: list[Product] = []
        waiting, seen = [one.row], {one.row}
        while waiting and len(seen) <= MOST_MEMBERS:
            value = waiting.pop()
            product = None if value in kept else _product(value, unchanged)
            if product is not None:
                products.append(product)
            elif value.opcode == "reshape" or is_elementwise(value):
                waiting += (o for o in dict.fromkeys(value.operands) if o not in seen)
                seen |= set(value.operands)
        if not products or not _is_all_read(one, products):
            continue
        given = {p.dot: Taken(known.iterations, one.at) for p in products}
        rows = TripRows(loop, known, given)
        if rows.taken(one.row) is not None:
            yield Result(one, tuple(products), rows)


def _product(dot: Instruction, unchanged: Set[Instruction]) -> Product | None:
    """A value as a product with a matrix that no trip changes; None where it is none."""
    if dot.opcode != "dot" or "control-predecessors" in dot.attributes:
        return None
    dims = DotAttributes.of(dot.attributes).dims
    if not is_simple_dot(dot) or not is_plain(dot.shape) or dims.lhs_batch:
        return None
    sides = [n for n, operand in enumerate(dot.operands) if operand not in unchanged]
    return Product(dot, sides[0]) if len(sides) == 1 else None


def _is_all_read(written: Written, products: Sequence[Product]) -> bool:
    """Whether what comes of products is read on the way to the written row alone."""
    waiting = [p.dot for p in products]
    seen = set(waiting)
    while waiting and len(seen) <= MOST_MEMBERS:
        value = waiting.pop()
        if value.is_root or not value.users:
            return False
        for user in value.users:
            if user.opcode == "dynamic-update-slice":
                if not _is_row_of(user, value, written):
                    return False
            elif user.opcode == "reshape" or is_elementwise(user):
                if user not in seen:
                    seen.add(user)
                    waiting.append(user)
            else:
                return False
    return not waiting


def _is_row_of(update: Instruction, value: Instruction, written: Written) -> bool:
    """Whether an update puts a value in as the written row."""
    target, row = update.operands[:2]
    is_here = target.opcode == "get-tuple-element" and element_index(target) == written.number
    return is_here and row is value and update.operands.count(value) == 1


class _Moving:
    """Takes products out of a loop."""

    def __init__(self, loop: Instruction, known: Counter, written: Sequence[Written]) -> None:
        self.loop, self.trips = loop, known.iterations
        self.stacks = {(one.row, one.order): one.number for one in written}
        self.starts: list[Shape] = []  # of further elements of the state

    def move(self, results: Sequence[Result]) -> None:
        """Let the loop keep the factors, and make the products behind it."""
        every = [(r.written, p) for r in results for p in r.products]
        new = [(one, p.factor) for one, p in every if self._is_new(one, p)]
        loop, elements = extend(self.loop, [blank(self.loop, s) for s in self.starts])
        body, _ = loop.called_computations()
        for (written, factor), stack in zip(new, elements, strict=True):
            one = make(factor, "reshape", factor, shape=self._all(factor, 1))
            zero = make_constant(written.at, Literal.of(0, written.at.shape))
            starts = [written.at, *[zero] * factor.shape.rank]
            row = make(factor, "dynamic-update-slice", stack, one, *starts)
            body.set_operand(body.root, element_index(stack), row)
        for result in results:
            self._replace(loop, result)
        shrink(loop, {r.written.number for r in results})

    def _is_new(self, written: Written, product: Product) -> bool:
        """Whether the loop does not keep a factor yet; it gets its place."""
        key = product.factor, written.order
        if key in self.stacks:
            return False
        self.stacks[key] = len(self.loop.shape.elements) + len(self.starts)
        self.starts.append(self._all(product.factor, self.trips))
        return True

    def _all(self, row: Instruction, count: int) -> Shape:
        """The shape of so many rows."""
        return Shape.array(row.shape.dtype, (count, *row.shape.dims))

    def _replace(self, loop: Instruction, result: Result) -> None:
        """What all trips write, computed behind the loop."""
        written = result.written
        readers = [u for u in loop.users if element_index(u) == written.number]
        if not readers:
            return
        made = {p.dot: self._product(loop, written.order, p) for p in result.products}
        result.rows.loop = loop
        rows = result.rows.before(written.row, made)
        whole = _as(loop, rows, loop.shape.elements[written.number])
        for reader in readers:
            home(loop).replace_uses(reader, whole)
            home(loop).remove(reader)

    def _product(self, loop: Instruction, order: RowOrder, product: Product) -> Instruction:
        """The products of all trips, one after the other."""
        dot, factor = product.dot, product.factor
        rows = element(loop, self.stacks[factor, order])
        rows = _as(loop, rows, self._all(factor, self.trips))
        attributes = dict(exchanged_attributes(dot) if product.side else dot.attributes)
        attributes["lhs_contracting_dims"] = tuple(d + 1 for d in product.contracted)
        matrix = start_of(loop, element_index(product.matrix))
        free = factor.shape.rank - len(product.contracted)
        dims = dot.shape.dims
        first, last = (dims[-free:], dims[:-free]) if product.side and free else (dims, ())
        shape = Shape.array(dot.shape.dtype, (self.trips, *first, *last))
        made = home(loop).new("dot", shape, [rows, matrix], attributes, like=dot)
        moved = range(1 + len(first), shape.rank), range(1, 1 + len(first))
        return transposed(made, (0, *moved[0], *moved[1])) if last else made


def _as(like: Instruction, value: Instruction, shape: Shape) -> Instruction:
    """The same elements in another shape."""
    return value if value.shape == shape else make(like, "reshape", value, shape=shape)
