"""while-loop-sum-batching: one product behind a loop for what its trips would add up.

    for i: a = a + dot(x[i], z)     =>   for i: s[i] = z;        a + dot(x, s) over rows and trips
    for i: a = a + dot(v, w)        =>   for i: b = b + v;       a + dot(b, w)
    for i: a[m, n] = a[m, n] + x[i, m] * z[n]   =>   as the first

Gradients of what the steps of a scan share are such sums. With few rows a trip reads and writes the
whole of a sum for little arithmetic; the product of all rows of all trips is arithmetic at full
speed, for which its factors are kept where the program has not kept them anyway. More rows find
both factors in a cache, where memory would have to hold them: their sums stay. What is linear in
values of the trip is computed once, of their sum.

Narrow rows count for less, as dot products take two and more of them at a time, and twice as many
pay where the second cache does not hold the sum. Of gradients of recurrent networks (Zen 5, one
thread) those with 12 and 16 rows of f32 take 0.78 to 0.98 of the time, with 12 to 32 of bf16 0.55
to 0.95; with 32 of f32 0.94 to 1.13, or 0.86 where sums are of 4 MiB, with 64 0.97 to 1.05.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from msgspec import Struct

from hlo.analysis.while_loops.loop_state import element_index, extend, start_of
from hlo.analysis.while_loops.row_updates import RowOrder
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Ints, Shape
from hlo.machine import COMMON
from hlo.ops.contraction import DotAttributes, DotDims
from hlo.ops.making import make, make_constant
from hlo.passes.loop_making import blank, element, home
from hlo.passes.patterns.contraction import exchanged_dot
from hlo.passes.while_loops.loop_shrinking import shrink
from hlo.passes.while_loops.loop_sums import Rows, SummingLoop, Term, outer_factors
from hlo.passes.while_loops.trip_products import counted_loops

# A sum that the second cache does not hold comes from afar in each trip, so that more rows pay.
# How sums are parted is an order of additions: COMMON's cache decides.
LARGE_SUM_BYTES = COMMON.second_cache.bytes


class Stack(Struct, frozen=True):
    """Where a factor's rows of all trips are: an element of the state, and their dimension there.

    row: what a factor's dimensions are. new: what each trip has to write there; None: the element
    has them.
    """

    element: int
    dim: int
    row: Ints
    new: Instruction | None = None


def while_loop_sum_batching(
    module: Module,
    *,
    max_depth_bytes: int = 64,
    max_bytes: int = 1 << 26,
    max_sum_bytes: int = 1 << 18,
) -> bool:
    """Make sums of products behind the loop whose trips add them up.

    max_depth_bytes: of a column that a trip's product is summed over, twice that for large sums;
    max_bytes: of the factors that are kept for a loop; max_sum_bytes: of what is summed in the loop
    instead. Only for loops with a known number of iterations. O(edges).
    """
    changed = False
    for loop, known in counted_loops(module):
        moving = _Moving(SummingLoop(loop, known), max_depth_bytes, max_bytes, max_sum_bytes)
        if moving.sums:
            moving.move()
            changed = True
    return changed


class _Moving:
    """Takes sums out of a loop."""

    def __init__(self, inner: SummingLoop, max_depth: int, max_bytes: int, max_sum: int) -> None:
        self.inner = inner
        self.count = len(inner.loop.shape.elements)
        self.stacks: dict[tuple[Instruction, RowOrder], Stack] = {}
        self.starts: list[Shape] = []  # of further elements of the state
        self.products: dict[Instruction, tuple[Stack, Stack]] = {}
        self.totals: dict[Instruction, int] = {}  # the elements that add up a base
        self.at: dict[RowOrder, Instruction] = {}
        self._bytes, self._depth, self._most = max_bytes, max_depth, max_sum
        found = [(s, [t for t in s.terms if self._takes(t)]) for s in inner.sums()]
        self.sums = [(s, terms) for s, terms in found if terms]

    def _takes(self, term: Term) -> bool:
        """Whether a term leaves the loop; it gets its place."""
        return self._takes_product(term.base) if term.is_product else self._takes_base(term)

    def _takes_product(self, product: Instruction) -> bool:
        factors, dims = _factors(product), _dims(product)
        depth = prod(factors[0].shape.dims[d] for d in dims.lhs_contracting)
        if not product.shape.size or not self._is_shallow(product, depth):
            return False
        kept = [self.inner.rows(o) for o in factors]
        orders = [rows.order for rows in kept if rows is not None]
        if not orders and not self._counts_all():
            return False
        order = orders[0] if orders else RowOrder(1, -self.inner.known.first)
        new = [
            o for o, rows in zip(factors, kept, strict=True)
            if (o, order) not in self.stacks and (rows is None or rows.order != order)
        ]  # fmt: skip
        size = sum(self._all(o.shape).size_bytes for o in dict.fromkeys(new))
        if size > self._bytes:
            return False
        self._bytes -= size
        for rows in kept:
            if rows is not None and rows.order == order:
                self.at.setdefault(order, rows.at)
        left, right = (self._stack(o, rows, order) for o, rows in zip(factors, kept, strict=True))
        self.products[product] = (left, right)
        return True

    def _is_shallow(self, product: Instruction, depth: int) -> bool:
        """Whether a trip's product is little arithmetic for the sum that it reads and writes."""
        wider = 2 if product.shape.size_bytes >= LARGE_SUM_BYTES else 1
        element_bits = max(o.shape.dtype.bits for o in product.operands)
        return depth * element_bits <= 8 * wider * self._depth

    def _counts_all(self) -> bool:
        """Whether the counter's type holds the number of every trip, from zero."""
        known = self.inner.known
        bits = self.inner.loop.shape.elements[known.element].dtype.bits
        return known.iterations <= 1 << (bits - 1)

    def _all(self, row: Shape) -> Shape:
        """The shape of the rows of all trips."""
        return Shape.array(row.dtype, (self.inner.known.iterations, *row.dims))

    def _stack(self, value: Instruction, rows: Rows | None, order: RowOrder) -> Stack:
        if rows is not None and rows.order == order:
            return Stack(element_index(rows.element), rows.dim, value.shape.dims)
        if (value, order) not in self.stacks:
            further = self._further(self._all(value.shape))
            self.stacks[value, order] = Stack(further, 0, value.shape.dims, value)
        return self.stacks[value, order]

    def _further(self, shape: Shape) -> int:
        self.starts.append(shape)
        return self.count + len(self.starts) - 1

    def _takes_base(self, term: Term) -> bool:
        """Whether what a term is linear in is little to add up."""
        if term.base.shape.size_bytes > self._most:
            return False
        if term.base not in self.totals:
            shape = term.base.shape
            self.totals[term.base] = self._further(Shape.array(shape.dtype, shape.dims))
        return True

    def move(self) -> None:
        """Let the loop keep factors and add up bases, and make the sums behind it."""
        body = self.inner.body
        blanks = [blank(self.inner.loop, shape) for shape in self.starts]
        loop, elements = extend(self.inner.loop, blanks)
        for (value, order), stack in self.stacks.items():
            written = self._written(value, order, elements[stack.element - self.count])
            body.set_operand(body.root, stack.element, written)
        for base, place in self.totals.items():
            total = make(base, "add", elements[place - self.count], base)
            body.set_operand(body.root, place, total)
        gone: set[int] = set()
        for one, terms in self.sums:
            left = [v for v in one.values if all(v is not t.value for t in terms)]
            readers = [u for u in loop.users if element_index(u) == one.number]
            total = self._behind(loop, one.number, terms, is_whole=not left)
            for reader in readers:
                home(loop).replace_uses(reader, total)
                home(loop).remove(reader)
            inside = one.element
            for value in left:
                inside = make(value, "add", inside, value)
            body.set_operand(body.root, one.number, inside)
            if not left:
                gone.add(one.number)
        shrink(loop, gone)

    def _written(self, value: Instruction, order: RowOrder, stack: Instruction) -> Instruction:
        """The stack with the trip's row of a value."""
        at = self.at.get(order)
        if at is None:
            at = self.at[order] = self._place(order)
        zero = make_constant(at, Literal.of(0, at.shape))
        one = make(value, "reshape", value, shape=value.shape.with_dims((1, *value.shape.dims)))
        starts = [at, *[zero] * value.shape.rank]
        return make(value, "dynamic-update-slice", stack, one, *starts)

    def _place(self, order: RowOrder) -> Instruction:
        """The trip's number, from zero."""
        assert order.sign == 1, "an order of a row that is taken has a place"
        (state,) = self.inner.body.parameters
        index = self.inner.known.element
        count = next(u for u in state.users if element_index(u) == index)
        if not order.offset:
            return count
        first = make_constant(count, Literal.of(-order.offset, count.shape))
        return make(count, "subtract", count, first)

    def _behind(
        self, loop: Instruction, number: int, terms: Sequence[Term], *, is_whole: bool
    ) -> Instruction:
        """What the element is in the end: where it begins, or what of it stays in the loop, and the
        terms.
        """
        total = start_of(loop, number) if is_whole else element(loop, number)
        for term in self._merged(loop, terms):
            total = make(loop, "add", total, term)
        return total

    def _merged(self, loop: Instruction, terms: Sequence[Term]) -> Iterator[Instruction]:
        """The terms, each of all trips; those that are linear by equal steps are one."""
        waiting = list(terms)
        while waiting:
            first, *others = waiting
            alike = [t for t in others if self._are_alike(first.steps, t.steps)]
            value = self._base(loop, first)
            for term in alike:
                value = make(loop, "add", value, self._base(loop, term))
            for step in first.steps:
                value = self._step(loop, step, value)
            yield value
            waiting = [t for t in others if t not in alike]

    def _are_alike(self, some: Sequence[Instruction], others: Sequence[Instruction]) -> bool:
        """Whether steps do the same, each to its operand."""
        return len(some) == len(others) and all(map(self._is_alike, some, others))

    def _is_alike(self, one: Instruction, other: Instruction) -> bool:
        dims, others = ([o.shape.dims for o in (i, *i.operands)] for i in (one, other))
        if one.opcode != other.opcode or one.attributes != other.attributes or dims != others:
            return False
        sides = self.inner.side(one), self.inner.side(other)
        kept = one.operands[1 - sides[0] :: 2], other.operands[1 - sides[1] :: 2]
        return sides[0] == sides[1] and kept[0] == kept[1]

    def _base(self, loop: Instruction, term: Term) -> Instruction:
        """The sum of a term's base over all trips."""
        if term.base in self.totals:
            return element(loop, self.totals[term.base])
        product, pair = term.base, self.products[term.base]
        dims = _dims(product)
        sides = [self._ending(loop, stack) for stack in pair]
        lists = [
            {f"{side}_batch_dims": _behind_row(batch, stack.dim),
             f"{side}_contracting_dims": (stack.dim, *_behind_row(depth, stack.dim))}
            for side, stack, batch, depth in (
                ("lhs", pair[0], dims.lhs_batch, dims.lhs_contracting),
                ("rhs", pair[1], dims.rhs_batch, dims.rhs_contracting),
            )
        ]  # fmt: skip
        said = {k: v for k, v in _said(product).items() if k not in lists[0] | lists[1]}
        named = {k: v for k, v in (lists[0] | lists[1]).items() if v}
        shape = Shape.array(product.shape.dtype, product.shape.dims)
        return home(loop).new("dot", shape, sides, {**said, **named}, like=product)

    def _ending(self, loop: Instruction, stack: Stack) -> Instruction:
        """The rows of all trips, behind the loop."""
        if stack.new is not None:
            return element(loop, stack.element)
        rows = start_of(loop, stack.element)
        dims = (*stack.row[: stack.dim], self.inner.known.iterations, *stack.row[stack.dim :])
        if rows.shape.dims == dims:
            return rows
        return make(loop, "reshape", rows, shape=Shape.array(rows.shape.dtype, dims))

    def _step(self, loop: Instruction, step: Instruction, value: Instruction) -> Instruction:
        """A step from a base, behind the loop."""
        operands = [value]
        if step.opcode == "dot":
            side = self.inner.side(step)
            operands.insert(1 - side, start_of(loop, element_index(step.operands[1 - side])))
        shape = Shape.array(step.shape.dtype, step.shape.dims)
        made = home(loop).new(step.opcode, shape, operands, step.attributes, like=step)
        turned = exchanged_dot(made) if step.opcode == "transpose" else None
        if turned is not None:
            home(loop).remove(made)
        return turned or made


def _factors(product: Instruction) -> Sequence[Instruction]:
    """The two values that a dot or an outer product multiplies."""
    return outer_factors(product) or product.operands


def _said(product: Instruction) -> Mapping[str, object]:
    """The attributes of a product as a dot: without any it is an outer one."""
    return product.attributes if product.opcode == "dot" else {}


def _dims(product: Instruction) -> DotDims:
    return DotAttributes.of(_said(product)).dims


def _behind_row(dims: Ints, row: int) -> Ints:
    """Dimensions where another one has come in."""
    return tuple(d + (d >= row) for d in dims)
