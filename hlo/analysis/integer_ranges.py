"""Ranges of integers: between which ends the elements of an array stay, whatever the run is given.

    computation --ranges--> instruction -> (least, most); none for what may be anything of 64 bits

Forward over the instructions: iotas, constants and what is of 32 bits and less have ends, and
arithmetic of these has, as long as nothing leaves its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.movement import IotaAttributes
from hlo.ops.table import Trait, opcodes

Range = tuple[int, int]
_WORD_BITS = 32
# Each element is one of the first operand's; those of a bitcast may be halves of others.
_TAKEN = opcodes(
    Trait.REPEATS | Trait.REGROUPS | Trait.PERMUTES | Trait.CUTS | Trait.CUTS_AT | Trait.PICKS
) - {"bitcast"}
_OF_SEVERAL = opcodes(Trait.JOINS | Trait.PADS)


def ranges(
    computation: Computation, known: Mapping[Instruction, Range] = MappingProxyType({})
) -> dict[Instruction, Range]:
    """Of all arrays of integers and truths that have ends. O(instructions).

    known: of those that others know about, as of what a loop counts.
    """
    found: dict[Instruction, Range] = {}
    for one in post_order(computation):
        dtype = one.shape.dtype if one.shape.is_array else None
        if dtype is None or not (dtype.is_integral or dtype.is_pred) or one.shape.is_dynamic:
            continue
        whole = (0, 1) if dtype.is_pred else dtype.int_range
        least, most = known.get(one) or _range_of(one, found) or whole
        if least < whole[0] or most > whole[1]:
            least, most = whole  # it may wrap
        if dtype.is_pred or dtype.bits <= _WORD_BITS or (least, most) != whole:
            found[one] = least, most
    return found


def _range_of(one: Instruction, found: dict[Instruction, Range]) -> Range | None:
    if one.opcode in _SOURCES:
        return _SOURCES[one.opcode](one)
    operands = one.operands[:1] if one.opcode in _TAKEN else one.operands
    parts = [found[o] for o in operands if o in found]
    if len(parts) < len(operands) or not parts:
        return None
    if one.opcode in _TAKEN:
        return parts[0]
    if one.opcode in _OF_SEVERAL:
        return _any_of(*parts)
    rule = _RULES.get(one.opcode)
    return rule(*parts) if rule is not None else None


def _iota(one: Instruction) -> Range:
    return 0, max(0, one.shape.dims[IotaAttributes.of(one.attributes).iota_dimension] - 1)


def _constant(one: Instruction) -> Range | None:
    literal = one.attributes.get("literal")
    if not isinstance(literal, Literal) or literal.is_elided or not literal.shape.size:
        return None
    values = np.asarray(literal.array)
    return int(values.min()), int(values.max())


def _any_of(*parts: Range) -> Range:
    return min(low for low, _ in parts), max(high for _, high in parts)


def _product(a: Range, b: Range) -> Range:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotient(a: Range, b: Range) -> Range | None:
    """Towards zero, by what is positive."""
    if b[0] <= 0:
        return None
    corners = [abs(x) // y * (1 if x >= 0 else -1) for x in a for y in b]
    return min(*corners, 0 if a[0] <= 0 <= a[1] else corners[0]), max(corners)


def _rest(a: Range, b: Range) -> Range | None:
    """Of the sign of what is divided, by what is positive."""
    if b[0] <= 0:
        return None
    most = b[1] - 1
    return max(a[0], -most) if a[0] < 0 else 0, min(a[1], most) if a[1] > 0 else 0


def _both_bits(a: Range, b: Range) -> Range | None:
    ends = [r[1] for r in (a, b) if r[0] >= 0]
    return (0, min(ends)) if ends else None


_SOURCES: dict[str, Callable[[Instruction], Range | None]] = {
    "iota": _iota,
    "constant": _constant,
}
_RULES: dict[str, Callable[..., Range | None]] = {
    "copy": lambda a: a,
    "convert": lambda a: a,
    "select": lambda _, a, b: _any_of(a, b),
    "clamp": lambda low, _, high: (min(low[0], high[0]), high[1]),
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "multiply": _product,
    "negate": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (max(a[0], -a[1], 0), max(-a[0], a[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "divide": _quotient,
    "remainder": _rest,
    "and": _both_bits,
}
# What has a rule and takes its operands' elements at places that the text says.
FOLLOWED = frozenset({*_SOURCES, *_RULES}) | _TAKEN | _OF_SEVERAL
FOLLOWED -= opcodes(Trait.CUTS_AT | Trait.PICKS)
