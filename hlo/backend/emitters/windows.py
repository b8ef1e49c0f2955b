"""reduce-window as a fold over the window's positions, those in padding or holes left out."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo.attributes.window import Window
from hlo.backend.codegen import indexing, types
from hlo.backend.codegen.elemental import Elemental, Path, emits
from hlo.backend.codegen.indexing import Expr, Index
from hlo.backend.codegen.types import Lanes, joined, parts
from hlo.backend.codegen.writer import Value
from hlo.backend.emitters import reducers
from hlo.backend.emitters.movement import Condition
from hlo.ir.instruction import Instruction

_UNROLLED = 32  # windows up to this size are written without a loop


@emits("reduce-window")
def reduce_window(
    elemental: Elemental, instruction: Instruction, indices: Sequence[Index], path: Path
) -> list[Lanes]:
    """f(acc, x[o*stride + w*window_dilation - pad]) over w, row-major, from the initial value."""
    which = path[0] if path else 0
    level = elemental.nest.path[-1]
    results = []
    for index in indices:
        folded = _folded(elemental, instruction, index)
        for k, value in enumerate(folded):
            at = (k,) if instruction.shape.is_tuple else ()
            level.memo[instruction, at, index, elemental.guards] = value
        results.append(folded[which])
    return results


def _folded(elemental: Elemental, instruction: Instruction, index: Index) -> list[Lanes]:
    window = _window(instruction)
    count = len(instruction.operands) // 2
    lanes = max((e.lanes for e in index), default=1)
    inits = [elemental.lanes_at(z, [()])[0] for z in instruction.operands[count:]]
    start = [elemental.splat(z, lanes) for z in inits]
    sizes = [d.size for d in window.dims]
    if prod(sizes) <= _UNROLLED:
        accumulators = start
        for position in range(prod(sizes)):
            offsets = indexing.delinearized(indexing.number(position), sizes)
            accumulators = _stepped(elemental, instruction, index, offsets, accumulators)
    else:
        flat = _nested(elemental, instruction, index, [], [v for a in start for v in parts(a)])
        accumulators = _regrouped(instruction, flat)
    nest, kinds = elemental.nest, [z.shape.dtype for z in instruction.operands[count:]]
    pairs = zip(accumulators, kinds, strict=True)  # sums and the like were kept wide
    return [types.rounded(nest.w, nest.target, a, kind) for a, kind in pairs]


def _window(instruction: Instruction) -> Window:
    """A scalar has a window without dimensions, which a text may leave out."""
    window = instruction.attributes.get("window", Window(()))
    assert isinstance(window, Window)
    return window


def _regrouped(instruction: Instruction, flat: Sequence[Value]) -> list[Lanes]:
    count = len(instruction.operands) // 2
    values = iter(flat)
    kinds = [z.shape.dtype for z in instruction.operands[count:]]
    return [joined([next(values) for _ in range(2 if k.is_complex else 1)]) for k in kinds]


def _nested(
    elemental: Elemental,
    instruction: Instruction,
    index: Index,
    outer: list[Expr],
    carried: list[Value],
) -> list[Value]:
    window = _window(instruction)
    if len(outer) == len(window.dims):
        accumulators = _regrouped(instruction, carried)
        stepped = _stepped(elemental, instruction, index, tuple(outer), accumulators)
        return [v for a in stepped for v in parts(a)]
    size = window.dims[len(outer)].size
    nest = elemental.nest
    if size == 1:
        return _nested(elemental, instruction, index, [*outer, indexing.ZERO], carried)

    def body(counter: Value, values: list[Value]) -> list[Value]:
        offset = nest.variable(counter, 0, size - 1)
        return _nested(elemental, instruction, index, [*outer, offset], values)

    return nest.loop(0, size, 1, carried, body)


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
    new = reducers.reducer(instruction).apply(elemental, accumulators, wide, rounds=False)
    if not open_:
        return new
    w_ = elemental.nest.w
    holds = w_.splat(elemental.test(open_), lanes)
    return [
        joined([w_.select(holds, v, o) for v, o in zip(parts(n), parts(a), strict=True)])
        for n, a in zip(new, accumulators, strict=True)
    ]
