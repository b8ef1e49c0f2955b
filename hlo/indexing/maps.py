"""Ops that move elements: which element of which operand stands at an index. They cost no code.

    instruction, index of the result --cases--> [(operand, its index, conditions)], first that holds

An operand's index is symbolic; a start that is known at run time only comes from `start`, clamped.
The last case needs no test: where no other holds, its conditions do.
Formulas: docs/semantics.md 7 and 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from hlo.indexing import affine
from hlo.indexing.affine import ZERO, Expr, Index
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.table import attribute


class Condition(Struct, frozen=True):
    """low <= index <= high."""

    index: Expr
    low: int
    high: int

    @property
    def always(self) -> bool:
        return self.low <= self.index.low and self.index.high <= self.high

    @property
    def never(self) -> bool:
        return self.index.high < self.low or self.index.low > self.high


class Case(Struct, frozen=True):
    """The result's element is that of the operand at the index, if all conditions hold."""

    operand: int
    index: Index
    conditions: tuple[Condition, ...] = ()


# (operand number, index into it, least, greatest) -> the integer there, clamped
Start = Callable[[int, Index, int, int], Expr]
Cases = Callable[[Instruction, Index, Start], list[Case]]


def cases(instruction: Instruction, index: Index, start: Start) -> list[Case]:
    """What can stand at the index: no impossible cases, no conditions that always hold."""
    found: list[Case] = []
    for case in CASES[instruction.opcode](instruction, index, start):
        if any(c.never for c in case.conditions):
            continue
        open_ = tuple(c for c in case.conditions if not c.always)
        found.append(Case(case.operand, case.index, open_))
        if not open_:
            return found
    return found


def _ints(instruction: Instruction, name: str) -> tuple[int, ...]:
    return tuple(attribute(instruction, name))  # type: ignore[arg-type]  # an INTS attribute


def _broadcast(instruction: Instruction, index: Index, _: Start) -> list[Case]:
    """x[j_b0, j_b1, ..]"""
    dimensions = _ints(instruction, "dimensions") if instruction.operands[0].shape.dims else ()
    return [Case(0, tuple(index[d] for d in dimensions))]


def _reshape(instruction: Instruction, index: Index, _: Start) -> list[Case]:
    """The element at the same row-major position."""
    source = instruction.operands[0].shape
    return [Case(0, affine.reshaped(index, instruction.shape.dims, source.dims))]


def _bitcast(instruction: Instruction, index: Index, _: Start) -> list[Case]:
    """The element at the same position of the physical orders that the layouts name."""
    source, target = instruction.operands[0].shape, instruction.shape
    order, source_order = _major_to_minor(target), _major_to_minor(source)
    physical = affine.reshaped(
        tuple(index[d] for d in order),
        tuple(target.dims[d] for d in order),
        tuple(source.dims[d] for d in source_order),
    )
    return [Case(0, tuple(physical[source_order.index(d)] for d in range(source.rank)))]


def _major_to_minor(shape: Shape) -> tuple[int, ...]:
    assert shape.layout is not None, "an array has a layout"
    return shape.layout.minor_to_major[::-1]


def _transpose(instruction: Instruction, index: Index, _: Start) -> list[Case]:
    """x[k] with k[p_d] = j[d]"""
    permutation = _ints(instruction, "dimensions")
    return [Case(0, tuple(index[permutation.index(d)] for d in range(len(permutation))))]


def _reverse(instruction: Instruction, index: Index, _: Start) -> list[Case]:
    """x[.., dim - 1 - j_d, ..] for the dimensions listed"""
    flipped = _ints(instruction, "dimensions")
    dims = instruction.shape.dims
    return [
        Case(0, tuple(e * -1 + (dims[d] - 1) if d in flipped else e for d, e in enumerate(index)))
    ]


def _slice(instruction: Instruction, index: Index, _: Start) -> list[Case]:
    """x[start + j*stride]"""
    dims = attribute(instruction, "slice")
    pairs = zip(index, dims, strict=True)  # type: ignore[call-overload]  # a SLICE attribute
    return [Case(0, tuple(e * d.stride + d.start for e, d in pairs))]


def _concatenate(instruction: Instruction, index: Index, _: Start) -> list[Case]:
    """The operand whose stretch of the dimension holds j_d, at j_d minus what stands before it"""
    (d,) = _ints(instruction, "dimensions")
    found: list[Case] = []
    before = 0
    for number, operand in enumerate(instruction.operands):
        size = operand.shape.dims[d]
        if size:
            own = (*index[:d], index[d] - before, *index[d + 1 :])
            found.append(Case(number, own, (Condition(index[d], before, before + size - 1),)))
        before += size
    return found


def _pad(instruction: Instruction, index: Index, _: Start) -> list[Case]:
    """x[(j - low) / (interior + 1)] where that is whole and in range, else the padding value"""
    own: list[Expr] = []
    conditions: list[Condition] = []
    padding = attribute(instruction, "padding")
    dims = instruction.operands[0].shape.dims
    if 0 in dims:
        return [Case(1, ())]
    for e, size, pad in zip(index, dims, padding, strict=True):  # type: ignore[call-overload]  # PADDING
        step = pad.interior + 1
        moved = e - pad.low
        conditions.append(Condition(moved, 0, (size - 1) * step))
        if step > 1:
            conditions.append(Condition(moved % step, 0, 0))
        own.append(moved // step)
    return [Case(0, tuple(own), tuple(conditions)), Case(1, ())]


def _dynamic_slice(instruction: Instruction, index: Index, start: Start) -> list[Case]:
    """x[clamp(0, s, dim - size) + j]"""
    dims = instruction.operands[0].shape.dims
    starts = window_starts(instruction, 1, dims, instruction.shape.dims, start)
    return [Case(0, tuple(e + s for e, s in zip(index, starts, strict=True)))]


def window_starts(
    instruction: Instruction, first: int, dims: Sequence[int], sizes: Sequence[int], start: Start
) -> list[Expr]:
    """Clamped starts from scalar operands, `first` on, or from one array (the older form)."""
    one_array = instruction.operands[first].shape.rank == 1 if dims else False
    return [
        start(first, (affine.number(d),), 0, dims[d] - sizes[d])
        if one_array
        else start(first + d, (), 0, dims[d] - sizes[d])
        for d in range(len(dims))
    ]


def _dynamic_update_slice(instruction: Instruction, index: Index, start: Start) -> list[Case]:
    """The update inside the window, the operand around it"""
    update = instruction.operands[1].shape.dims
    if 0 in update:
        return [Case(0, index)]
    starts = window_starts(instruction, 2, instruction.shape.dims, update, start)
    own = tuple(e - s for e, s in zip(index, starts, strict=True))
    inside = tuple(Condition(e, 0, n - 1) for e, n in zip(own, update, strict=True))
    return [Case(1, own, inside), Case(0, index)]


def _gather(instruction: Instruction, index: Index, start: Start) -> list[Case]:
    """operand[clamp(p) + w]: p from the start indices at the batch index, w the window's index"""

    def clamped(number: int, at: Index, low: int, high: int) -> Expr:
        return start(number, at, low, max(low, high))

    return [Case(0, _in_windows(instruction, _GATHERED, instruction.shape, 1, index, clamped))]


def scattered(scatter: Instruction, index: Index, start: Start) -> Index:
    """Where in the operands an element of the updates goes: p + w, p from the indices at the batch
    index, w the window's index. Not clamped: a start beyond the greatest writes nothing.
    """
    count = len(scatter.operands) // 2
    updates = scatter.operands[count + 1].shape
    return _in_windows(scatter, _SCATTERED, updates, count, index, start)


# The attributes of a gather and of a scatter that say how an array of windows lies in the operand:
# the array's dimensions along windows, the operand's that windows lack, batch dimensions of the
# operand and of the indices, and the operand's dimensions that an index vector counts.
_GATHERED = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims",
             "start_indices_batching_dims", "start_index_map")  # fmt: skip
_SCATTERED = ("update_window_dims", "inserted_window_dims", "input_batching_dims",
              "scatter_indices_batching_dims", "scatter_dims_to_operand_dims")  # fmt: skip


def _in_windows(
    op: Instruction, names: Sequence[str], windows: Shape, number: int, index: Index, start: Start
) -> Index:
    """An index of the first operand for one of an array of its windows, which begin where the
    operand of that number says.
    """
    along, dropped, batching, start_batching, counted = (_ints(op, name) for name in names)
    vector_dim = int(attribute(op, "index_vector_dim"))  # type: ignore[call-overload]  # INT64
    dims, starts = op.operands[0].shape.dims, op.operands[number].shape
    kept = (d for d in range(len(dims)) if d not in dropped and d not in batching)
    window = dict(zip(kept, along, strict=True))
    batch = [e for d, e in enumerate(index) if d not in along]
    own = [index[window[d]] if d in window else ZERO for d in range(len(dims))]
    for k, d in enumerate(counted):
        where = list(batch)
        if vector_dim < starts.rank:
            where.insert(vector_dim, affine.number(k))
        size = windows.dims[window[d]] if d in window else 1
        own[d] = own[d] + start(number, tuple(where), 0, dims[d] - size)
    for k, d in enumerate(batching):
        position = start_batching[k] - (start_batching[k] > vector_dim)
        own[d] = own[d] + batch[position]
    return tuple(own)


def _same(_: Instruction, index: Index, __: Start) -> list[Case]:
    return [Case(0, index)]


CASES: dict[str, Cases] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "bitcast": _bitcast,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "copy": _same,
    "opt-barrier": _same,
    "domain": _same,
    "add-dependency": _same,
}
