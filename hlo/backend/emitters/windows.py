"""reduce-window as a reduction over the window's positions, those in padding or holes left out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from hlo.analysis.reducers import reducer_of
from hlo.backend.emitters import reducers
from hlo.backend.emitters.blocked_sums import BlockedSums, looped
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.reading import shown
from hlo.backend.ir.writer import Value
from hlo.backend.lanes import types
from hlo.backend.lanes.types import Lanes, joined, parts
from hlo.backend.loops.expression import Path
from hlo.backend.loops.reductions import kinds_of, lanes_of, reduced_arrays, window_forms
from hlo.backend.loops.schedule import Reduction, Role, Tree
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.indexing.reductions import term_cases, term_extents
from hlo.ir.instruction import Instruction


def reduce_window(
    elemental: Elemental, instruction: Instruction, indices: Sequence[Index], path: Path
) -> list[Lanes]:
    """f(acc, x[o*stride + w*window_dilation - pad]) over w, row-major, from the initial value."""
    which = path[0] if path else 0
    level = elemental.nest.path[-1]
    forms = window_forms(instruction, indices)
    totals = _reduced(elemental, instruction, indices, forms)
    results = []
    for index, total in zip(indices, totals, strict=True):
        for k, value in enumerate(total):
            at = (k,) if instruction.shape.is_tuple else ()
            level.memo[instruction, at, index, elemental.guards] = value
        results.append(total[which])
    return results


def _reduced(
    elemental: Elemental,
    instruction: Instruction,
    indices: Sequence[Index],
    forms: Sequence[tuple[range, Reduction]],
) -> list[list[Lanes]]:
    """Each group of indices by the loops of its form."""
    count = len(reduced_arrays(instruction))
    inits = [elemental.lanes_at(z, [()])[0] for z in instruction.operands[count:]]
    totals = []
    for index in indices:
        totals.append([elemental.splat(z, lanes_of(index)) for z in inits])
    for group, form in forms:
        own, own_totals = [indices[k] for k in group], [totals[k] for k in group]
        with elemental.nest.making(partial(shown, elemental, instruction, form)):
            if all(axis.role is Role.UNROLLED for axis in form.axes):
                made = _unrolled(elemental, instruction, own, own_totals)
            else:
                made = _looped(elemental, instruction, own, own_totals, form)
        for k, total in zip(group, made, strict=True):
            totals[k] = total
    if reducer_of(instruction).selects:
        return totals
    nest, kinds = elemental.nest, kinds_of(instruction)
    return [  # sums and the like were kept wide
        [types.rounded(nest.w, nest.target, a, k) for a, k in zip(total, kinds, strict=True)]
        for total in totals
    ]


def _unrolled(
    elemental: Elemental,
    instruction: Instruction,
    indices: Sequence[Index],
    totals: list[list[Lanes]],
) -> list[list[Lanes]]:
    """The window's positions one by one."""
    sizes = term_extents(instruction)
    found = list(totals)
    for k, index in enumerate(indices):
        for position in range(prod(sizes)):
            offsets = affine.delinearized(affine.number(position), sizes)
            found[k] = _stepped(elemental, instruction, index, offsets, found[k])
    return found


def _flat(totals: Sequence[Sequence[Lanes]]) -> list[Value]:
    return [v for total in totals for a in total for v in parts(a)]


def _regrouped(instruction: Instruction, flat: Sequence[Value]) -> list[list[Lanes]]:
    """What `_flat` made one list of: the accumulators of each index."""
    kinds = kinds_of(instruction)
    values = iter(flat)
    totals = len(flat) // sum(2 if k.is_complex else 1 for k in kinds)
    return [
        [joined([next(values) for _ in range(2 if k.is_complex else 1)]) for k in kinds]
        for _ in range(totals)
    ]


def _looped(
    elemental: Elemental,
    instruction: Instruction,
    indices: Sequence[Index],
    totals: Sequence[list[Lanes]],
    form: Reduction,
) -> list[list[Lanes]]:
    """The window's positions row-major; long sums in blocks."""
    nest, reducer = elemental.nest, reducer_of(instruction)
    sizes = term_extents(instruction)

    def step(at: list[Expr], carried: list[Value]) -> list[Value]:
        steps = iter(at)
        offsets = tuple(next(steps) if size > 1 else affine.ZERO for size in sizes)
        pairs = zip(indices, _regrouped(instruction, carried), strict=True)
        return _flat([_stepped(elemental, instruction, i, offsets, a) for i, a in pairs])

    def joined(a: list[Value], b: list[Value]) -> list[Value]:
        pairs = zip(_regrouped(instruction, a), _regrouped(instruction, b), strict=True)
        return _flat(
            [reducers.apply(elemental.nest, reducer, x, y, rounds=False) for x, y in pairs]
        )

    if form.tree is not Tree.BLOCKS:
        return _regrouped(instruction, looped(nest, form.axes, step, _flat(totals)))
    identities = reducers.identities(nest.w, reducer, kinds_of(instruction))
    zero = [[elemental.splat(z, types.width(t[0])) for z in identities] for t in totals]
    sums = BlockedSums(nest, form.axes, _flat(zero), step, joined)
    return _regrouped(instruction, sums.from_(_flat(totals)))


def _stepped(
    elemental: Elemental,
    instruction: Instruction,
    index: Index,
    offsets: Index,
    accumulators: list[Lanes],
) -> list[Lanes]:
    """One position of the window taken in, where it meets an element."""
    element = term_cases(instruction, index, offsets)[0]
    if any(c.never for c in element.conditions):
        return accumulators
    open_ = tuple(c for c in element.conditions if not c.always)
    with elemental.under(open_):
        elements = [elemental.lanes_at(x, [element.index])[0] for x in reduced_arrays(instruction)]
    lanes = types.width(accumulators[0])
    wide = [elemental.splat(x, lanes) for x in elements]
    new = reducers.apply(elemental.nest, reducer_of(instruction), accumulators, wide, rounds=False)
    if not open_:
        return new
    w_ = elemental.nest.w
    holds = w_.splat(elemental.test(open_), lanes)
    return [
        joined([w_.select(holds, v, o) for v, o in zip(parts(n), parts(a), strict=True)])
        for n, a in zip(new, accumulators, strict=True)
    ]
