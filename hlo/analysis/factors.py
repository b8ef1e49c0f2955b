"""Factors: what the operands of a product in a fusion are of the fusion's parameters.

    dot(p, reshape(dynamic-slice(q, i, 0)))  --factor_of-->  p whole; q from an element on
    dot(p, multiply(convert(q), broadcast(s)))  --prologue_of-->  q, s

A layer's weights are a slice of all layers' in a loop over them. A slice that is one run of memory
is a factor as it lies there: its product begins at another address. Other factors are computed
where the product reads them, by a prologue: an element is arithmetic on elements of arrays (weights
and their scales), at places that index maps name; rows that a gather picks are one too.
"""

from __future__ import annotations

from itertools import islice

from msgspec import Struct

from hlo.attributes.slices import slice_dims
from hlo.indexing.affine import row_major_strides
from hlo.ir.graph import computed_from
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.table import Trait, opcodes

# The most rows of a product that reads its other factor once, as it lies.
STREAMED_ROWS = 16
# More than so many meet its columns in groups: of seven or eight the registers hold the sums of two
# columns, so that all rows are read again for each two. Zen 4, 7 and 8 rows: 0.75 of the time.
ROWS_AT_ONCE = 6
MOST_MEMBERS = 40  # What a factor may be computed by: the code stands in each place that reads it.
_ELEMENTWISE = opcodes(Trait.ELEMENTWISE)
MOST_JOINED = 4  # Arrays of which each is looked at where a seam between them is not seen.
_JOINS = opcodes(Trait.JOINS)
MOVES = opcodes(Trait.REPEATS | Trait.REGROUPS | Trait.CUTS | Trait.CUTS_AT | Trait.PICKS) | _JOINS
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


def prologue_of(operand: Instruction) -> tuple[Instruction, ...] | None:
    """The parameters that a product's factor is computed from; None where it is one itself, or a
    run of one, or computed by what no product can hold.
    """
    if factor_of(operand) is not None or not _is_in_order(operand.shape):
        return None
    members = list(islice(computed_from(operand), MOST_MEMBERS + 1))
    if len(members) > MOST_MEMBERS or not all(map(_is_held, members)):
        return None
    arrays = [m for m in members if m.opcode == "parameter"]
    return tuple(sorted(arrays, key=_number)) or None


def _number(parameter: Instruction) -> int:
    number = parameter["parameter_number"]
    assert isinstance(number, int), "an INT64"
    return number


def _is_held(member: Instruction) -> bool:
    if not member.shape.is_array or member.shape.is_dynamic or member.shape.dtype.is_complex:
        return False
    if "control-predecessors" in member.attributes:
        return False
    if member.opcode == "constant":
        return member.shape.is_scalar
    if member.opcode in MOVES:
        (source, *_) = (o.shape for o in member.operands)
        is_same = source.size == member.shape.size or member.opcode != "bitcast"
        is_few = member.opcode not in _JOINS or len(member.operands) <= MOST_JOINED
        return bool(source.size) and is_same and is_few
    return member.opcode in ("parameter", "iota") or member.opcode in _ELEMENTWISE


def _is_in_order(shape: Shape) -> bool:
    """Whether elements of whole bytes lie in the default order."""
    if not shape.is_array or not shape.rank or not shape.size or shape.is_dynamic:
        return False
    return shape == shape.without_layout() and shape.dtype.bits >= 8  # a byte
