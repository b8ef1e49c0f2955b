"""Masked ranges: the stretch of a dimension outside of which a mask of counted positions is false.

    select(i >= low & i < high, x, z) --masked_range--> MaskedRange: bounds of i, x's place, z

A program that cannot cut `x[low:high]`, whose length the run decides, masks all of x and reduces
it. What is outside of the bounds is z everywhere there: where z is what the reduction starts from,
nobody need read it. Does not know: what becomes of the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Variable
from hlo.indexing.maps import cases
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.table import Trait, has_trait, opcodes

Path = tuple[int, ...]
# What makes an instruction's value: itself, or what a fusion's parameter stands for.
Source = Callable[[Instruction, Path], tuple[Instruction, Path]]
# Moves from places that are known before the run, each from one.
_PLACED = opcodes(Trait.REPEATS | Trait.PERMUTES | Trait.CUTS | Trait.REGROUPS) - opcodes(
    Trait.FREE
)
_MOST_SEARCHED = 64  # Instructions of a mask that are looked at.
_FAR = 1 << 40  # No dimension is as long.


class Bound(Struct, frozen=True):
    """What the counted position p is not below (is_low), or is below, where the mask is true: the
    integer that `value` holds at the index, plus the offset.
    """

    value: Instruction
    index: Index
    offset: Expr
    is_low: bool


class MaskedRange(Struct, frozen=True):
    """A reduction's operand of which a mask leaves a range of positions.

    bounds: of the dimension's position; masked: the select; at: its index; rest: what stands
    outside, the same at every position of the dimension, at its index.
    """

    bounds: tuple[Bound, ...]
    masked: Instruction
    at: Index
    rest: tuple[Instruction, Index]


def itself(instruction: Instruction, path: Path) -> tuple[Instruction, Path]:
    """The source of a value outside of kernels."""
    return instruction, path


def masked_range(
    value: Instruction, index: Index, along: Variable, source: Source = itself
) -> MaskedRange | None:
    """Where a value at an index is masked along a variable; None where it is not."""
    masked, at = _moved_from(value, index, source)
    if masked.opcode != "select":
        return None
    mask, *values = masked.operands
    places = [_moved_from(v, at, source) for v in values]
    for number in (1, 0):
        rest, where = places[number]
        if any(e.depends_on(along) for e in where):
            continue
        mask_at = at if mask.shape.dims else ()
        bounds = tuple(bounds_of(mask, mask_at, along, source, holds=number == 1))
        if bounds:
            return MaskedRange(bounds, masked, at, (rest, where))
    return None


def bounds_of(
    mask: Instruction, index: Index, along: Variable, source: Source = itself, *, holds: bool = True
) -> Iterator[Bound]:
    """What is known of a variable's value where a mask at an index is true (or false)."""
    waiting = [(mask, index, holds)]
    searched = 0
    while waiting and searched < _MOST_SEARCHED:
        searched += 1
        value, at, is_true = waiting.pop()
        value, at = _moved_from(value, at, source)
        match value.opcode:
            case "not":
                waiting.append((value.operands[0], at, not is_true))
            case "and" | "or" if (value.opcode == "and") is is_true:
                waiting += [(o, at, is_true) for o in reversed(value.operands)]
            case "compare":
                yield from _compared(value, at, along, source, is_true=is_true)


_NEGATED = {"LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT", "EQ": "NE", "NE": "EQ"}
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def _compared(
    compare: Instruction, at: Index, along: Variable, source: Source, *, is_true: bool
) -> Iterator[Bound]:
    """position + c <direction> value, for a value that is one along the variable."""
    direction = str(compare["direction"])
    if not is_true:
        direction = _NEGATED[direction]
    sides = [(o, at if o.shape.dims else ()) for o in compare.operands]
    for (counted, there), (other, where) in (sides, sides[::-1]):
        position = _position(counted, there, source)
        value, place = _moved_from(other, where, source)
        is_one = not any(e.depends_on(along) for e in place) and _is_bound(value)
        if position is not None and position.coefficient(along) == 1 and is_one:
            offset = affine.of(along) - position  # along = position + offset
            if direction in ("GE", "GT", "EQ"):
                yield Bound(value, place, offset + int(direction == "GT"), is_low=True)
            if direction in ("LT", "LE", "EQ"):
                yield Bound(value, place, offset + int(direction != "LT"), is_low=False)
            return
        direction = _MIRRORED[direction]


def _is_bound(value: Instruction) -> bool:
    """Whether the integers of a value fit in 64 bits with a sign."""
    dtype = value.shape.dtype
    return value.shape.is_array and dtype.is_integral and (dtype.is_signed or dtype.bits < 64)


def _position(value: Instruction, index: Index, source: Source) -> Expr | None:
    """What a counted value is at an index: an iota, converted, with constants added."""
    added, kinds = 0, [value.shape.dtype]
    while True:
        value, index = _moved_from(value, index, source)
        kinds.append(value.shape.dtype)
        if not kinds[-1].is_integral:
            return None
        match value.opcode:
            case "iota":
                d = value["iota_dimension"]
                assert isinstance(d, int), "an INT64"
                found = index[d] + added
                fit = all(_holds(kind, index[d]) and _holds(kind, found) for kind in kinds)
                return found if fit and (not added or all(k.is_signed for k in kinds)) else None
            case "convert":
                (value,) = value.operands
            case "add":
                value, other = value.operands
                number = _number(other, source)
                if number is None:
                    return None
                added += number
            case _:
                return None


def _holds(dtype: DType, e: Expr) -> bool:
    """Whether all values of a count are integers of a type, with as much room above."""
    most = 1 << (dtype.bits - 1)
    return (-most if dtype.is_signed else 0) <= e.low and e.high < min(most, _FAR)


def _number(value: Instruction, source: Source) -> int | None:
    """The integer that a value is everywhere."""
    value, path = source(value, ())
    while has_trait(value, Trait.REPEATS | Trait.REGROUPS) and not path:
        value, path = source(value.operands[0], ())
    literal = value.get("literal") if value.opcode == "constant" else None
    if not isinstance(literal, Literal) or literal.is_elided or not literal.is_uniform:
        return None
    return int(literal.array.reshape(-1)[0])


def _moved_from(value: Instruction, index: Index, source: Source) -> tuple[Instruction, Index]:
    """The element that an element is, looked for through moves at known places."""
    for _ in range(_MOST_SEARCHED):
        found, path = source(value, ())
        if path:
            return value, index
        value = found
        if value.opcode not in _PLACED:
            break
        (first, *others) = cases(value, index, _no_start)
        if others:
            break
        value, index = value.operands[first.operand], first.index
    return value, index


def _no_start(*_: object) -> Expr:
    raise AssertionError("moves at known places have no starts")
