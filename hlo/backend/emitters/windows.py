"""reduce-window as a fold over the window's positions, those in padding or holes left out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from hlo.analysis.reducers import reducer_of
from hlo.attributes.window import Window
from hlo.backend.emitters import reducers
from hlo.backend.emitters.blocked_sums import FEW, BlockedSums, axes_of, looped
from hlo.backend.emitters.elemental import Elemental, emits
from hlo.backend.emitters.reading import shown
from hlo.backend.ir.writer import Value
from hlo.backend.lanes import types
from hlo.backend.lanes.types import Lanes, joined, parts
from hlo.backend.loops.expression import Path
from hlo.backend.loops.schedule import Reduction, Role, Tree
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.indexing.maps import Condition
from hlo.ir.instruction import Instruction
from hlo.ops.windows import trimmed

_UNROLLED = 32  # windows up to this size are written without a loop
_UNROLLED_LONG = 4  # those whose fold is long code


@emits("reduce-window")
def reduce_window(
    elemental: Elemental, instruction: Instruction, indices: Sequence[Index], path: Path
) -> list[Lanes]:
    """f(acc, x[o*stride + w*window_dilation - pad]) over w, row-major, from the initial value."""
    which = path[0] if path else 0
    level = elemental.nest.path[-1]
    results = []
    for index, folded in zip(indices, _folded(elemental, instruction, indices), strict=True):
        for k, value in enumerate(folded):
            at = (k,) if instruction.shape.is_tuple else ()
            level.memo[instruction, at, index, elemental.guards] = value
        results.append(folded[which])
    return results


def _folded(
    elemental: Elemental, instruction: Instruction, indices: Sequence[Index]
) -> list[list[Lanes]]:
    """Large windows by one loop for all indices, whose accumulators do not wait for each other.

    Where lanes are far apart in memory, each has a line of its own: fewer of them are used at once.
    """
    count = len(instruction.operands) // 2
    inits = [elemental.lanes_at(z, [()])[0] for z in instruction.operands[count:]]
    totals = []
    for index in indices:
        lanes = max((e.lanes for e in index), default=1)
        totals.append([elemental.splat(z, lanes) for z in inits])
    for group in _groups(instruction, indices):
        own, own_totals = [indices[k] for k in group], [totals[k] for k in group]
        form = form_of(instruction, types.width(own_totals[0][0]), len(own))
        with elemental.nest.making(partial(shown, elemental, instruction, form)):
            if _is_written_out(instruction):
                made = _unrolled(elemental, instruction, own, own_totals)
            else:
                made = _looped(elemental, instruction, own, own_totals, form)
        for k, total in zip(group, made, strict=True):
            totals[k] = total
    if reducer_of(instruction).selects:
        return totals
    nest, kinds = elemental.nest, [z.shape.dtype for z in instruction.operands[count:]]
    return [  # sums and the like were kept wide
        [types.rounded(nest.w, nest.target, a, k) for a, k in zip(total, kinds, strict=True)]
        for total in totals
    ]


def _window(instruction: Instruction) -> Window:
    """What of the window meets elements. A scalar has one without dimensions, which a text may
    leave out.
    """
    window = instruction.attributes.get("window", Window(()))
    assert isinstance(window, Window)
    return trimmed(instruction.operands[0].shape.dims, window)


def _groups(instruction: Instruction, indices: Sequence[Index]) -> list[range]:
    """Which indices are folded in one loop."""
    if _is_written_out(instruction) or all(index and index[-1].lanes > 1 for index in indices):
        return [range(len(indices))]
    return [range(k, k + 1) for k in range(len(indices))]


def _is_written_out(instruction: Instruction) -> bool:
    is_cheap = reducer_of(instruction).is_cheap
    size = prod(d.size for d in _window(instruction).dims)
    return size <= (_UNROLLED if is_cheap else _UNROLLED_LONG)


def form_of(instruction: Instruction, lanes: int, results: int) -> Reduction:
    """How a window is folded: written out, in blocks of sums, or one by one."""
    reducer = reducer_of(instruction)
    extents = [d.size for d in _window(instruction).dims if d.size > 1]
    kinds = [z.shape.dtype for z in instruction.operands[len(instruction.operands) // 2 :]]
    is_written = _is_written_out(instruction)
    is_long = not is_written and reducer.sums and prod(extents) > FEW
    is_long = is_long and any(k.is_float or k.is_complex for k in kinds)
    role = Role.UNROLLED if is_written else Role.REDUCED
    axes = axes_of(extents, role, in_blocks=is_long)
    tree = Tree.BLOCKS if is_long else Tree.IN_ORDER
    return Reduction(instruction.name, reducer.name, axes, lanes, results, tree=tree)


def _unrolled(
    elemental: Elemental,
    instruction: Instruction,
    indices: Sequence[Index],
    totals: list[list[Lanes]],
) -> list[list[Lanes]]:
    """The window's positions one by one."""
    sizes = [d.size for d in _window(instruction).dims]
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
    count = len(instruction.operands) // 2
    kinds = [z.shape.dtype for z in instruction.operands[count:]]
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
    sizes = [d.size for d in _window(instruction).dims]
    extents = [axis.extent for axis in form.axes]

    def step(at: list[Expr], carried: list[Value]) -> list[Value]:
        places = iter(at)
        offsets = tuple(next(places) if size > 1 else affine.ZERO for size in sizes)
        pairs = zip(indices, _regrouped(instruction, carried), strict=True)
        return _flat([_stepped(elemental, instruction, i, offsets, a) for i, a in pairs])

    def joined(a: list[Value], b: list[Value]) -> list[Value]:
        pairs = zip(_regrouped(instruction, a), _regrouped(instruction, b), strict=True)
        return _flat(
            [reducers.apply(elemental.nest, reducer, x, y, rounds=False) for x, y in pairs]
        )

    if form.tree is not Tree.BLOCKS:
        return _regrouped(instruction, looped(nest, extents, step, _flat(totals)))
    kinds = [z.shape.dtype for z in instruction.operands[len(instruction.operands) // 2 :]]
    identities = reducers.identities(nest.w, reducer, kinds)
    zero = [[elemental.splat(z, types.width(t[0])) for z in identities] for t in totals]
    sums = BlockedSums(nest, extents, _flat(zero), step, joined)
    return _regrouped(instruction, sums.from_(_flat(totals)))


def _stepped(
    elemental: Elemental,
    instruction: Instruction,
    index: Index,
    offsets: Index,
    accumulators: list[Lanes],
) -> list[Lanes]:
    """One position of the window folded in, where it meets an element."""
    window = _window(instruction)
    count = len(instruction.operands) // 2
    dims = instruction.operands[0].shape.dims
    at: list[Expr] = []
    conditions: list[Condition] = []
    for e, w, d, size in zip(index, offsets, window.dims, dims, strict=True):
        moved = e * d.stride + w * d.window_dilation - d.pad_low
        conditions.append(Condition(moved, 0, (size - 1) * d.base_dilation))
        if d.base_dilation > 1:
            conditions.append(Condition(moved % d.base_dilation, 0, 0))
        at.append(moved // d.base_dilation)
    if any(c.never for c in conditions):
        return accumulators
    open_ = tuple(c for c in conditions if not c.always)
    with elemental.under(open_):
        elements = [elemental.lanes_at(x, [tuple(at)])[0] for x in instruction.operands[:count]]
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
