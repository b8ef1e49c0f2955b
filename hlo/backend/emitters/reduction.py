"""reduce and map: folds as loops that appear where their value is asked for.

Asked for at an index that lanes share, a fold runs over lanes itself (several vectors of partial
results, joined by a fixed tree); asked for in lanes, each lane folds for itself. A reducer that is
not known to be associative and commutative is applied in row-major order, f(acc, x).
Long sums are summed in blocks, so that their error grows with the square root of the length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from msgspec import Struct

from hlo.analysis.op_costs import HEAVY
from hlo.analysis.reducers import Reducer, reducer_of
from hlo.backend.emitters import reducers
from hlo.backend.emitters.blocked_sums import FEW, BlockedSums, axes_of, looped, sizes_of
from hlo.backend.emitters.elemental import Elemental, emits
from hlo.backend.emitters.joining import Accumulators, Joining
from hlo.backend.emitters.reading import shown
from hlo.backend.ir.writer import Value
from hlo.backend.lanes import types
from hlo.backend.lanes.access import stride
from hlo.backend.lanes.lane_loops import lane_loop
from hlo.backend.lanes.types import Lanes, joined, parts
from hlo.backend.loops.expression import Path
from hlo.backend.loops.schedule import Axis, Reduction, Role, Source, Tail, Tree, axis_name
from hlo.backend.loops.trace import trace
from hlo.indexing import affine, spaces
from hlo.indexing.affine import Expr, Index, Variable
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.table import attribute

BLOCK = 256  # elements that one accumulator takes before it is added to the total
_MOST_SEARCHED = 32  # instructions after a fold
UNROLLED = 8  # folds up to this length are written without a loop,
SHORT = 16  # and up to this one where each lane folds a row of its own,
SHORT_PICKED = 24  # of which it picks elements
FEWEST_TURNED = 4
MOST_ROW_OPS, MOST_ROW_READS = 96, 24  # of such a row


class Fold(Struct, frozen=True):
    """Folds of equal extents, made in one loop: (reduce, its reducer) pairs."""

    members: tuple[tuple[Instruction, Reducer], ...]


@emits("reduce")
def reduce(
    elemental: Elemental, instruction: Instruction, indices: Sequence[Index], path: Path
) -> list[Lanes]:
    """All results of the fold are remembered, so that the second of a tuple costs nothing."""
    fold = Fold(((instruction, reducer_of(instruction)),))
    results = _folded(elemental, fold, list(indices))
    which = path[0] if path else 0
    level = elemental.nest.path[-1]
    for index, lanes in zip(indices, results, strict=True):
        for k, value in enumerate(lanes):
            at = (k,) if instruction.shape.is_tuple else ()
            level.memo[instruction, at, index, elemental.guards] = value
    return [lanes[which] for lanes in results]


def _folded(elemental: Elemental, fold: Fold, indices: list[Index]) -> list[Accumulators]:
    (instruction, reducer) = fold.members[0]
    lanes = max((e.lanes for index in indices for e in index), default=1)
    space = space_of(elemental, instruction, reducer)
    if 0 in space.extents:
        return [[elemental.splat(z, lanes) for z in space.inits] for _ in indices]
    is_outer, elemental.is_folding = not elemental.is_folding, True
    is_across = lanes == 1 and reducer.reassociates and prod(space.extents) >= UNROLLED
    form = space.across(indices) if is_across else space.within(indices, lanes)
    with elemental.nest.making(partial(shown, elemental, instruction, form)):
        made = space.across_lanes if is_across else space.in_order
        results = made(indices, form)
    if is_outer:
        elemental.is_folding = False
    if is_outer and lanes == 1 and not elemental.guards:
        elemental.end_stage()
    return results


def space_of(elemental: Elemental, instruction: Instruction, reducer: Reducer) -> Space:
    """What a reduce runs over."""
    count = len(instruction.operands) // 2
    dims = instruction.operands[0].shape.dims
    reduced = [d for d in range(len(dims)) if d in attribute(instruction, "dimensions")]  # type: ignore[operator]  # INTS
    inits = [elemental.lanes_at(z, [()])[0] for z in instruction.operands[count:]]
    kinds = [z.shape.dtype for z in instruction.operands[count:]]
    extents = tuple(dims[d] for d in reduced)

    def element(at: Sequence[Index]) -> list[Accumulators]:
        """The arrays' elements at full indices."""
        columns = [elemental.lanes_at(x, at) for x in instruction.operands[:count]]
        return [[column[n] for column in columns] for n in range(len(at))]

    def full(index: Index, inner: Index) -> Index:
        kept, folded = iter(index), dict(zip(reduced, inner, strict=True))
        return tuple(folded[d] if d in folded else next(kept) for d in range(len(dims)))

    return Space(elemental, reducer, kinds, inits, extents, full, element, instruction)


class Space(Struct):
    """One fold: what it starts from, what it runs over, how an element is read."""

    elemental: Elemental
    reducer: Reducer
    kinds: list[DType]
    inits: list[Lanes]
    extents: tuple[int, ...]
    full: Callable[[Index, Index], Index]
    element: Callable[[Sequence[Index]], list[Accumulators]]
    instruction: Instruction

    @property
    def joining(self) -> Joining:
        """Of its partial results."""
        return Joining(self.elemental, self.reducer, self.kinds)

    # -- each lane for itself ----------------------------------------------------------------

    @property
    def _rounds(self) -> bool:
        """Whether each addition loses something."""
        return self.reducer.sums and any(k.is_float or k.is_complex for k in self.kinds)

    def within(self, indices: list[Index], lanes: int) -> Reduction:
        """How each lane folds for itself: written out, in blocks of sums, or one by one."""
        is_turned = lanes > 1 and self._reads_rows(indices[0])
        is_short = prod(self.extents) <= UNROLLED
        if is_short or is_turned:
            axes = axes_of(self.extents, Role.UNROLLED)
            tree = Tree.PAIRS if self._rounds else Tree.IN_ORDER
        else:
            is_long = self._rounds and prod(self.extents) > FEW
            axes = axes_of(self.factored(indices[0]), Role.REDUCED, in_blocks=is_long)
            tree = Tree.BLOCKS if is_long else Tree.IN_ORDER
        source = Source.TURNED if is_turned else Source.DIRECT
        name = self.instruction.name
        return Reduction(
            name, self.reducer.name, axes, lanes, len(indices), tree=tree, source=source
        )

    def in_order(self, indices: list[Index], form: Reduction) -> list[Accumulators]:
        """Row-major over the reduced dimensions, f(acc, x), for all indices in one loop."""
        elemental, lanes = self.elemental, form.lanes
        start = [[elemental.splat(z, lanes) for z in self.inits] for _ in indices]
        if all(axis.role is Role.UNROLLED for axis in form.axes):
            inner = [
                affine.delinearized(affine.number(position), self.extents)
                for position in range(prod(self.extents))
            ]
            if form.source is Source.TURNED:
                # Asked for together, rows are read from end to end; each is remembered.
                self.element([self.full(index, at) for index in indices for at in inner])
            return [self.rounded(a) for a in self._unrolled(indices, start)]
        extents = tuple(axis.extent for axis in form.axes)
        if form.tree is Tree.BLOCKS:
            return self._in_blocks(indices, extents, lanes)
        flat = self._nested(indices, extents, [], _flat(start))
        return [self.rounded(a) for a in self._regrouped(flat, len(indices))]

    def _reads_rows(self, index: Index) -> bool:
        """Whether each lane folds a short row of its own, neighbours in memory, by little code."""
        length = prod(self.extents)
        most = most_turned(self.instruction)
        if not FEWEST_TURNED <= length <= most or len(self.extents) != 1:
            return False
        variable = Variable("row", 0, length - 1)
        at = self.full(index, (affine.of(variable),))
        arrays = self.instruction.operands[: len(self.inits)]
        found = trace(self.elemental.expression, [(x, at, ()) for x in arrays])
        if length * (1 + found.ops + 8 * found.heavy) > MOST_ROW_OPS or found.reductions:
            return False
        along = [r for r in found.reads if r.position.depends_on(variable)]
        if length > UNROLLED and len({r.source for r in along}) * length > MOST_ROW_READS:
            return False
        return bool(along) and all(
            r.position.coefficient(variable) == 1
            and (stride(r.position) or 0) > 1
            and r.source not in self.elemental.saved  # its elements are gathered once
            for r in along
        )

    def _unrolled(self, indices: list[Index], start: list[Accumulators]) -> list[Accumulators]:
        if self._rounds:
            return self._in_pairs(indices, start)
        results = start
        for position in range(prod(self.extents)):
            inner = affine.delinearized(affine.number(position), self.extents)
            results = self._stepped(results, [self.full(index, inner) for index in indices])
        return results

    def _in_pairs(self, indices: list[Index], start: list[Accumulators]) -> list[Accumulators]:
        """Halves summed first, as a binary counter does: small terms are not lost one by one."""
        partials: list[tuple[int, list[Accumulators]]] = []  # (elements in it, sums)
        for position in range(prod(self.extents)):
            inner = affine.delinearized(affine.number(position), self.extents)
            elements = self.element([self.full(index, inner) for index in indices])
            taken = [self.wide(x, a) for x, a in zip(elements, start, strict=True)]
            count = 1
            while partials and partials[-1][0] == count:
                taken, count = self._summed(partials.pop()[1], taken), 2 * count
            partials.append((count, taken))
        while len(partials) > 1:
            (_, right), (count, left) = partials.pop(), partials.pop()
            partials.append((count, self._summed(left, right)))
        return self._summed(start, partials[0][1]) if partials else start

    def applied(self, a: Accumulators, x: Accumulators) -> Accumulators:
        """f(a, x), wide."""
        return reducers.apply(self.elemental.nest, self.reducer, a, x, rounds=False)

    def join(self, a: Accumulators, b: Accumulators) -> Accumulators:
        """f of two partial results, the earlier one on the left where that matters."""
        return reducers.join(self.elemental.nest, self.reducer, a, b, self.kinds)

    def _summed(self, left: list[Accumulators], right: list[Accumulators]) -> list[Accumulators]:
        pairs = zip(left, right, strict=True)
        return [self.applied(a, b) for a, b in pairs]

    def _stepped(self, accumulators: list[Accumulators], at: list[Index]) -> list[Accumulators]:
        elements = self.element(at)
        return [
            self.applied(a, self.wide(x, a)) for a, x in zip(accumulators, elements, strict=True)
        ]

    def wide(self, elements: Accumulators, accumulators: Accumulators) -> Accumulators:
        lanes = types.width(accumulators[0])
        return [self.elemental.splat(x, lanes) for x in elements]

    def rounded(self, accumulators: Accumulators) -> Accumulators:
        """In the results' types; sums and the like were kept wide."""
        nest = self.elemental.nest
        pairs = zip(accumulators, self.kinds, strict=True)
        return [types.rounded(nest.w, nest.target, x, kind) for x, kind in pairs]

    def factored(self, index: Index) -> tuple[int, ...]:
        """The reduced dimensions as few loops, for one of the indices."""

        def met(inner: Index) -> list[Expr]:
            roots = self.instruction.operands[: len(self.inits)]
            at = self.full(index, affine.reshaped(inner, self.extents, self.extents))
            return trace(self.elemental.expression, [(x, at, ()) for x in roots]).expressions()

        return spaces.factored(self.extents, met)

    def inner(self, variables: Sequence[Expr], extents: Sequence[int]) -> Index:
        return affine.reshaped(tuple(variables), extents, self.extents)

    def _nested(
        self, indices: list[Index], extents: Sequence[int], outer: list[Expr], carried: list[Value]
    ) -> list[Value]:
        """Loops over extents[len(outer):], one step of the fold inside."""
        depth = len(outer)
        if depth == len(extents):
            inner = self.inner(outer, extents)
            stepped = self._stepped(
                self._regrouped(carried, len(indices)), [self.full(i, inner) for i in indices]
            )
            return _flat(stepped)
        nest = self.elemental.nest

        def body(counter: Value, values: list[Value]) -> list[Value]:
            variable = nest.variable(counter, 0, extents[depth] - 1)
            return self._nested(indices, extents, [*outer, variable], values)

        return nest.loop(0, extents[depth], 1, carried, body)

    def _in_blocks(
        self, indices: list[Index], extents: tuple[int, ...], lanes: int
    ) -> list[Accumulators]:
        """Sums of a few elements, of a few such sums each, and so on."""
        elemental, nest = self.elemental, self.elemental.nest
        zero = _flat(
            [
                [
                    elemental.splat(z, lanes)
                    for z in reducers.identities(nest.w, self.reducer, self.kinds)
                ]
                for _ in indices
            ]
        )
        sums = BlockedSums(
            nest,
            extents,
            zero,
            lambda at, values: self._nested(indices, extents, at, values),
            lambda a, b: self._joined(a, b, len(indices)),
        )
        total = self._regrouped(sums.from_(zero), len(indices))
        return [self.with_init(t, lanes) for t in total]

    def _joined(self, a: list[Value], b: list[Value], count: int) -> list[Value]:
        pairs = zip(self._regrouped(a, count), self._regrouped(b, count), strict=True)
        return _flat([self.applied(x, y) for x, y in pairs])

    def with_init(self, total: Accumulators, lanes: int) -> Accumulators:
        """f(z, total), rounded to the type."""
        elemental = self.elemental
        inits = [elemental.splat(z, lanes) for z in self.inits]
        return self.rounded(self.applied(inits, total))

    # -- over lanes --------------------------------------------------------------------------

    def across(self, indices: list[Index]) -> Reduction:
        """How a fold runs over lanes: vectors along its last axis, long sums in blocks of them."""
        *rows, length = self.factored(indices[0])
        lanes = _fitting(length, self.elemental.lanes)
        copies = self._copies(length, lanes, len(indices))
        step = lanes * copies
        rounds = -(-length // step)
        is_long = self._rounds and prod(rows) * rounds > BLOCK
        size = step * BLOCK
        blocks = (*(n * size for n in sizes_of(length // size)), size)
        tail = Tail.MASKED if length % lanes else Tail.SHORT if length % step else Tail.NONE
        last = Axis(
            axis_name(len(rows), "r"), length, Role.VECTOR, step, lanes, tail,
            blocks=blocks if is_long and length >= size else (),
        )  # fmt: skip
        return Reduction(
            self.instruction.name,
            self.reducer.name,
            (*axes_of(rows, Role.REDUCED, in_blocks=is_long), last),
            results=len(indices),
            accumulators=copies,
            tree=Tree.BLOCKS if is_long else Tree.IN_ORDER,
        )

    def across_lanes(self, indices: list[Index], form: Reduction) -> list[Accumulators]:
        """Partial results per lane, several vectors of them, joined by a fixed tree."""
        elemental, copies = self.elemental, form.accumulators
        identity = self.start(form.axes[-1].lanes)
        start = _flat([identity for _ in range(copies) for _ in indices])
        with elemental.in_other_lanes():
            flat = self._over_vectors(indices, form, start)
        partial = self._regrouped(flat, copies * len(indices))
        return self._finished(
            [
                self.joining.joined_copies([partial[c * len(indices) + n] for c in range(copies)])
                for n in range(len(indices))
            ]
        )

    def _over_vectors(
        self, indices: list[Index], form: Reduction, start: list[Value]
    ) -> list[Value]:
        """Loops over all axes, vectors along the last; long sums in blocks."""
        nest, copies, last = self.elemental.nest, form.accumulators, form.axes[-1]
        extents = tuple(axis.extent for axis in form.axes)
        *rows, length = extents
        lanes, count = last.lanes, copies * len(indices)
        size = last.blocks[-1] if last.blocks else 0
        blocks = length // size if size else 0

        def vectors(outer: list[Expr], limits: tuple[int, int], values: list[Value]) -> list[Value]:
            *outer, first = outer

            def run(variables: list[Expr], carried: list[Value]) -> list[Value]:
                inner = [self.inner([*outer, first + v], extents) for v in variables]
                at = [self.full(index, i) for i in inner for index in indices]
                accumulators = self._regrouped(carried, count)
                live = self._masked(accumulators[: len(at)], at, variables, len(indices))
                return _flat(live + accumulators[len(at) :])

            low, high = limits
            return lane_loop(nest, low, high - low, lanes, copies, values, run)

        def joined(a: list[Value], b: list[Value]) -> list[Value]:
            return self._joined(a, b, count)

        def row(outer: list[Expr], values: list[Value]) -> list[Value]:
            if not blocks:
                return vectors([*outer, affine.ZERO], (0, length), values)

            def block(at: list[Expr], values: list[Value]) -> list[Value]:
                return vectors([*outer, at[0] * size], (0, size), values)

            values = BlockedSums(nest, [blocks], start, block, joined, BLOCK).from_(values)
            if blocks * size == length:
                return values
            rest = vectors([*outer, affine.ZERO], (blocks * size, length), start)
            return joined(values, rest)

        if form.tree is not Tree.BLOCKS:
            return looped(nest, rows, row, start)
        return BlockedSums(nest, rows, start, row, joined, last.rounds).from_(start)

    def _copies(self, length: int, lanes: int, indices: int) -> int:
        """How many vectors of partial results: enough to hide the latency of the fold."""
        vectors = -(-length // lanes)
        wanted = 4 if self.reducer.is_cheap else 2
        return max(1, min(wanted // min(indices, wanted), vectors))

    def start(self, lanes: int) -> Accumulators:
        elemental = self.elemental
        if self.reducer.idempotent:
            return [elemental.splat(z, lanes) for z in self.inits]
        identities = reducers.identities(elemental.nest.w, self.reducer, self.kinds)
        return [elemental.splat(z, lanes) for z in identities]

    def _masked(
        self, accumulators: list[Accumulators], at: list[Index], variables: list[Expr], group: int
    ) -> list[Accumulators]:
        """One step; lanes beyond the end keep what they have."""
        w = self.elemental.nest.w
        elements = self.element(at)
        results = []
        for n, (a, x) in enumerate(zip(accumulators, elements, strict=True)):
            new = self.applied(a, self.wide(x, a))
            mask = next((m.mask for m in variables[n // group].terms if m.mask is not None), None)
            if isinstance(mask, Value):
                new = [
                    joined(
                        [w.select(mask, v, o) for v, o in zip(parts(y), parts(old), strict=True)]
                    )
                    for y, old in zip(new, a, strict=True)
                ]
            results.append(new)
        return results

    def _finished(self, totals: list[Accumulators]) -> list[Accumulators]:
        """Vectors halved until one lane is left, and the initial value."""
        lanes = types.width(totals[0][0])
        if lanes > 1 and [k.is_pred for k in self.kinds] == [True] and self.reducer.idempotent:
            return [self.joining.tested(total) for total in totals]
        are_pairs = len(totals).bit_count() == 1 < len(totals)
        if lanes > 1 and are_pairs and not _is_used_alone(self.instruction):
            ended = [self._ended(total) for total in self.joining.halved_together(totals)]
            return self.joining.taken_apart(ended, len(totals))
        return [self._ended(self.joining.halved(total)) for total in totals]

    def _ended(self, total: Accumulators) -> Accumulators:
        """With the initial value, in the result's type."""
        if self.reducer.selects:
            return total
        if self.reducer.idempotent:
            return self.rounded(total)
        return self.with_init(total, types.width(total[0]))

    def _regrouped(self, flat: Sequence[Value], count: int) -> list[Accumulators]:
        """The accumulators of `count` elements from their values in a row."""
        widths = [2 if kind.is_complex else 1 for kind in self.kinds]
        values = iter(flat)
        return [[joined([next(values) for _ in range(n)]) for n in widths] for _ in range(count)]


def most_turned(reduce: Instruction) -> int:
    """How long rows are at most that lanes fold for themselves."""
    return SHORT_PICKED if reduce.shape.is_tuple else SHORT


def _is_used_alone(reduce: Instruction) -> bool:
    """Whether much is done with each result, or lanes take it again: none may wait for another."""
    stack, seen = [reduce], {reduce}
    while stack and len(seen) < _MOST_SEARCHED:
        for user in stack.pop().users:
            if user.opcode == "broadcast" or user.opcode in HEAVY:
                return True
            if user not in seen and user.opcode != "reduce":
                seen.add(user)
                stack.append(user)
    return False


def _fitting(length: int, lanes: int) -> int:
    """The lanes of a fold's vectors: as few as hold a short one."""
    return min(lanes, 1 << (length - 1).bit_length()) if length > 1 else lanes


def _flat(accumulators: Sequence[Accumulators]) -> list[Value]:
    return [v for a in accumulators for x in a for v in parts(x)]
