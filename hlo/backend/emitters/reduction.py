"""reduce: reductions as loops that appear where their value is asked for.

Which loops is decided in loops/reductions.py. A reduction over lanes leaves several vectors of
partial results, which are joined by a fixed tree; a reducer that is not known to be associative and
commutative is applied as f(acc, x).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from msgspec import Struct

from hlo.analysis.reducers import Reducer, reducer_of
from hlo.analysis.underflow import multiplies_many
from hlo.backend.emitters import reducers
from hlo.backend.emitters.blocked_sums import BlockedSums, Step, looped
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.horizontal_reduction import Accumulators, HorizontalReduction
from hlo.backend.emitters.reading import shown
from hlo.backend.ir.writer import Value
from hlo.backend.lanes import types
from hlo.backend.lanes.types import Lanes, joined, parts
from hlo.backend.lanes.vector_loops import vector_loop, vector_loop_bounded, vector_loop_within
from hlo.backend.loops.expression import Path
from hlo.backend.loops.reductions import (
    kinds_of,
    lanes_of,
    reduced_arrays,
    reduction_form,
    says_sums,
)
from hlo.backend.loops.schedule import Axis, Join, Reduction, Role, Source, Tree
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.indexing.reductions import reduction_dims
from hlo.ir.dtype import F32, DType
from hlo.ir.instruction import Instruction

# Factors of a product whose passing through the subnormal numbers takes long enough to be spared.
_LONG = 1024


def reduce(
    elemental: Elemental, instruction: Instruction, indices: Sequence[Index], path: Path
) -> list[Lanes]:
    """All results of the reduction are remembered, so that the second of a tuple costs nothing."""
    form = reduction_form(
        elemental.expression, instruction, indices, elemental.lanes, elemental.saved
    )
    results = _reduced(elemental, instruction, list(indices), form)
    which = path[0] if path else 0
    level = elemental.nest.path[-1]
    for index, lanes in zip(indices, results, strict=True):
        for k, value in enumerate(lanes):
            at = (k,) if instruction.shape.is_tuple else ()
            level.memo[instruction, at, index, elemental.guards] = value
    return [lanes[which] for lanes in results]


def _reduced(
    elemental: Elemental, instruction: Instruction, indices: list[Index], form: Reduction
) -> list[Accumulators]:
    """The reductions that the form says, at all indices."""
    space = space_of(elemental, instruction, reducer_of(instruction))
    if 0 in space.extents:
        return space.spread(space.inits, indices)
    is_outer, elemental.is_reducing = not elemental.is_reducing, True
    with elemental.nest.making(partial(shown, elemental, instruction, form)):
        is_across = any(axis.role is Role.VECTOR for axis in form.axes)
        made = space.across_lanes if is_across else space.in_order
        results = made(indices, form)
    if is_outer:
        elemental.is_reducing = False
    if is_outer and form.lanes == 1 and not elemental.guards:
        elemental.end_stage()
    return results


def space_of(elemental: Elemental, instruction: Instruction, reducer: Reducer) -> Space:
    """What a reduce runs over."""
    arrays, domain = reduced_arrays(instruction), reduction_dims(instruction)
    inits = [elemental.lanes_at(z, [()])[0] for z in instruction.operands[len(arrays) :]]

    def element(at: Sequence[Index]) -> list[Accumulators]:
        """The arrays' elements at full indices."""
        columns = [elemental.lanes_at(x, at) for x in arrays]
        return [[column[n] for column in columns] for n in range(len(at))]

    kinds = kinds_of(instruction)
    extents = domain.extents
    return Space(elemental, reducer, kinds, inits, extents, domain.index, element, instruction)


class Space(Struct):
    """One reduction: what it starts from, what it runs over, how an element is read."""

    elemental: Elemental
    reducer: Reducer
    kinds: list[DType]
    inits: list[Lanes]
    extents: tuple[int, ...]
    full: Callable[[Index, Index], Index]
    element: Callable[[Sequence[Index]], list[Accumulators]]
    instruction: Instruction

    @property
    def underflows(self) -> bool:
        """Whether it is a product that waits for subnormal numbers."""
        target = self.elemental.nest.target
        if not target.waits_for_subnormals or target.is_small or self.kinds != [F32]:
            return False
        return multiplies_many(self.instruction, _LONG)

    @property
    def joining(self) -> HorizontalReduction:
        """Of its partial results."""
        return HorizontalReduction(self.elemental, self.reducer, self.kinds)

    def spread(self, values: Accumulators, indices: Sequence[Index]) -> list[Accumulators]:
        """Numbers as each index has them: in all of its lanes."""
        widths = map(lanes_of, indices)
        return [[self.elemental.splat(v, lanes) for v in values] for lanes in widths]

    # -- each lane for itself ----------------------------------------------------------------

    def in_order(self, indices: list[Index], form: Reduction) -> list[Accumulators]:
        """Row-major over the reduced dimensions, f(acc, x), for all indices in one loop."""
        elemental, start = self.elemental, self.spread(self.inits, indices)
        if all(axis.role is Role.UNROLLED for axis in form.axes):
            inner = [
                affine.delinearized(affine.number(position), self.extents)
                for position in range(prod(self.extents))
            ]
            if form.source is Source.TURNED:
                # Asked for together, rows are read from end to end; each is remembered.
                self.element([self.full(index, at) for index in indices for at in inner])
            made = self._in_pairs if form.tree is Tree.PAIRS else self._one_by_one
            return [self.rounded(a) for a in made(indices, start)]
        if form.tree is Tree.BLOCKS:
            return self._in_blocks(indices, form)
        flat = looped(elemental.nest, form.axes, self._step(indices, form.axes), _flat(start))
        return [self.rounded(a) for a in self._regrouped(flat, len(indices))]

    def _one_by_one(self, indices: list[Index], start: list[Accumulators]) -> list[Accumulators]:
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
        nest = self.elemental.nest
        if self.underflows:
            from hlo.backend.emitters.subnormal_products import multiplied  # few multiply so much

            return [multiplied(nest, *parts(a[0]), *parts(x[0]))]
        return reducers.apply(nest, self.reducer, a, x, rounds=False)

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

    def inner(self, variables: Sequence[Expr], extents: Sequence[int]) -> Index:
        return affine.reshaped(tuple(variables), extents, self.extents)

    def _step(self, indices: list[Index], axes: Sequence[Axis]) -> Step:
        """One step of the reduction inside of loops over the axes."""
        extents = [axis.extent for axis in axes]

        def step(at: list[Expr], carried: list[Value]) -> list[Value]:
            inner, accumulators = self.inner(at, extents), self._regrouped(carried, len(indices))
            return _flat(self._stepped(accumulators, [self.full(i, inner) for i in indices]))

        return step

    def _in_blocks(self, indices: list[Index], form: Reduction) -> list[Accumulators]:
        """Sums of a few elements, of a few such sums each, and so on."""
        nest = self.elemental.nest
        identities = reducers.identities(nest.w, self.reducer, self.kinds)
        zero = _flat(self.spread(identities, indices))
        sums = BlockedSums(
            nest,
            form.axes,
            zero,
            self._step(indices, form.axes),
            lambda a, b: self._joined(a, b, len(indices)),
        )
        total = self._regrouped(sums.from_(zero), len(indices))
        return [self.with_init(t, types.width(t[0])) for t in total]

    def _joined(self, a: list[Value], b: list[Value], count: int) -> list[Value]:
        pairs = zip(self._regrouped(a, count), self._regrouped(b, count), strict=True)
        return _flat([self.applied(x, y) for x, y in pairs])

    def with_init(self, total: Accumulators, lanes: int) -> Accumulators:
        """f(z, total), rounded to the type."""
        elemental = self.elemental
        inits = [elemental.splat(z, lanes) for z in self.inits]
        return self.rounded(self.applied(inits, total))

    # -- over lanes --------------------------------------------------------------------------

    def across_lanes(self, indices: list[Index], form: Reduction) -> list[Accumulators]:
        """Partial results per lane, several vectors of them, joined by a fixed tree."""
        elemental, unroll = self.elemental, form.accumulators
        identity = self.start(form.axes[-1].lanes)
        start = _flat([identity for _ in range(unroll) for _ in indices])
        with elemental.in_other_lanes():
            flat = self._over_vectors(indices, form, start)
        partial = self._regrouped(flat, unroll * len(indices))
        totals = [
            self.joining.joined_accumulators([partial[c * len(indices) + n] for c in range(unroll)])
            for n in range(len(indices))
        ]
        return self._finished(totals, form)

    def _over_vectors(
        self, indices: list[Index], form: Reduction, start: list[Value]
    ) -> list[Value]:
        """Loops over all axes, vectors along the last; long sums in blocks."""
        nest, unroll, last = self.elemental.nest, form.accumulators, form.axes[-1]
        *rows, _ = form.axes
        within = self._bounds(indices, last)
        extents, length = tuple(axis.extent for axis in form.axes), last.extent
        lanes, count = last.lanes, unroll * len(indices)

        def vectors(outer: list[Expr], limits: tuple[int, int], values: list[Value]) -> list[Value]:
            *outer, first = outer

            def run(variables: list[Expr], carried: list[Value]) -> list[Value]:
                inner = [self.inner([*outer, first + v], extents) for v in variables]
                at = [self.full(index, i) for i in inner for index in indices]
                accumulators = self._regrouped(carried, count)
                live = self._masked(accumulators[: len(at)], at, variables, len(indices))
                return _flat(live + accumulators[len(at) :])

            low, high = limits
            if within is None:
                return vector_loop(nest, low, high - low, lanes, unroll, values, run)
            begin, end = (nest.w.binary("sub", bound, nest.scalar(first)) for bound in within)
            if self.instruction in self.elemental.bounded:
                return vector_loop_bounded(nest, limits, (begin, end), lanes, unroll, values, run)
            return vector_loop_within(nest, limits, (begin, end), lanes, unroll, values, run)

        def joined(a: list[Value], b: list[Value]) -> list[Value]:
            return self._joined(a, b, count)

        def row(outer: list[Expr], values: list[Value]) -> list[Value]:
            if not last.blocks:
                return vectors([*outer, affine.ZERO], (0, length), values)
            *groups, size = last.blocks
            whole = length // size

            def block(at: list[Expr], values: list[Value]) -> list[Value]:
                return vectors([*outer, at[0] * size], (0, size), values)

            blocks = Axis(
                last.name, whole, Role.REDUCED, blocks=tuple(n // size for n in groups), apart=True
            )
            values = BlockedSums(nest, [blocks], start, block, joined).from_(values)
            if whole * size == length:
                return values
            rest = vectors([*outer, affine.ZERO], (whole * size, length), start)
            return joined(values, rest)

        if form.tree is not Tree.BLOCKS:
            return looped(nest, rows, row, start)
        return BlockedSums(nest, rows, start, row, joined).from_(start)

    def _bounds(self, indices: list[Index], axis: Axis) -> tuple[Value, Value] | None:
        """Between which the axis runs; None for all of it."""
        if not axis.is_bounded:
            return None
        if says_sums(self.elemental.expression, self.instruction):
            self.elemental.bounded.add(self.instruction)
            return self.elemental.bounds
        from hlo.backend.emitters.ranges import reduced_bounds  # few reductions are masked

        return reduced_bounds(self.elemental, self.instruction, indices, axis.extent)

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

    def _finished(self, totals: list[Accumulators], form: Reduction) -> list[Accumulators]:
        """One lane of each vector is left, and the initial value is taken in."""
        if form.join is Join.TESTED:
            return [self.joining.tested(total) for total in totals]
        if form.join is Join.TOGETHER:
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


def _flat(accumulators: Sequence[Accumulators]) -> list[Value]:
    return [v for a in accumulators for x in a for v in parts(x)]
