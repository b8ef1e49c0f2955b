"""Factors: what the operands of a product in a fusion are of the fusion's parameters.

    dot(p, reshape(dynamic-slice(q, i, 0)))  --factor_of-->  p whole; q from an element on

A layer's weights are a slice of all layers' in a loop over them. A slice that is one run of memory
is a factor as it lies there: its product begins at another address.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.attributes.slices import slice_dims
from hlo.indexing.affine import row_major_strides
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.table import Trait, opcodes

_FORMS = opcodes(Trait.REGROUPS)  # of the same elements in the same order
SLICES = opcodes(Trait.CUTS) | opcodes(Trait.CUTS_AT)


class Start(Struct, frozen=True):
    """One start of a slice: a scalar, clamped to 0..most; how many elements a step of it is."""

    index: Instruction
    most: int
    stride: int


class Factor(Struct, frozen=True):
    """A parameter, from `offset` elements on, and so many more as the starts say."""

    array: Instruction
    offset: int = 0
    starts: tuple[Start, ...] = ()


def factor_of(operand: Instruction) -> Factor | None:
    """What of a parameter a product's operand is; None where it is computed, or no run of one."""
    if operand.opcode == "parameter":
        return Factor(operand)
    cut = sliced_from(operand)
    if cut is None or cut.operands[0].opcode != "parameter":
        return None
    array, *indices = cut.operands
    strides = row_major_strides(array.shape.dims)
    if cut.opcode == "slice":
        begins = [s.start for s in slice_dims(cut.attributes)]
        return Factor(array, sum(b * n for b, n in zip(begins, strides, strict=True)))
    room = [n - m for n, m in zip(array.shape.dims, cut.shape.dims, strict=True)]
    found = zip(indices, room, strides, strict=True)
    starts = tuple(Start(index, most, stride) for index, most, stride in found if most)
    is_known = all(s.index.opcode == "parameter" for s in starts)
    return Factor(array, 0, starts) if is_known else None


def sliced_from(value: Instruction) -> Instruction | None:
    """The slice that a value has the elements of, in its order, if they are a run of memory."""
    cut = value
    while cut.opcode in _FORMS:
        (cut,) = cut.operands
    if cut.opcode not in SLICES or not _is_bytes(value.shape) or not _is_run(cut):
        return None
    is_same = value.shape.dtype is cut.shape.dtype and value.shape.size == cut.shape.size
    return cut if is_same else None


def _is_run(cut: Instruction) -> bool:
    """Whether a slice's elements follow each other in its array: one of each outer dimension, all
    of each inner one.
    """
    array, *indices = cut.operands
    if not _is_bytes(array.shape) or not _is_bytes(cut.shape):
        return False
    if cut.opcode == "slice":
        if any(s.stride != 1 for s in slice_dims(cut.attributes)):
            return False
    elif len(indices) != len(array.shape.dims) or any(i.shape.dims for i in indices):
        return False
    pairs = list(zip(cut.shape.dims, array.shape.dims, strict=True))
    while pairs and pairs[0][0] == 1:
        pairs.pop(0)
    return all(size == whole for size, whole in pairs[1:])


def _is_bytes(shape: Shape) -> bool:
    """Whether an array's elements are whole bytes, in the default order."""
    is_static = shape.is_array and not shape.is_dynamic and shape.layout is not None
    return is_static and shape == shape.without_layout() and shape.dtype.bits >= 8
