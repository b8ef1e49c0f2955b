"""What a sort's comparator means: a total order on a key, or on several, when it is written so.

    compare(g(a), g(b)), direction=LT or GT  =>  ascending or descending g
    first | (tie & second)  =>  by the first key, equal ones by the second, and so on
    select(tie, second, first)  =>  the same

g: any expression of one operand's element (JAX maps -0 to 0 and every NaN to one NaN this way).
Floats compared by FLOAT have -0 equal to +0; where NaN stands is free, as that is no weak order.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.table import attributes_of

_DESCENDING = {"LT": False, "LE": False, "GT": True, "GE": True}


class Order(Struct, frozen=True):
    """A key of a sort, and which way it runs.

    operand: which operand holds the key. root: g, of `parameter`; None: the element itself.
    """

    operand: int
    dtype: DType  # of g
    descending: bool
    total: bool  # TOTALORDER, or integers
    root: Instruction | None = None
    parameter: Instruction | None = None

    @property
    def bits(self) -> int:
        """Width of the order as unsigned integers."""
        return 32 if self.in_float_lanes else max(8, self.dtype.bits)

    @property
    def invertible(self) -> bool:
        """Whether the element can be made again from its key."""
        return self.root is None and self.total and not self.in_float_lanes

    @property
    def reads_codes(self) -> bool:
        """Whether keys come from the codes as they lie in memory, NaN payloads and all."""
        return self.invertible and self.dtype.is_float and self.dtype.bits < 32

    @property
    def in_float_lanes(self) -> bool:
        """Formats whose code is no sign and magnitude of whole bytes are ordered by their f32
        value."""
        fmt = self.dtype.float_format
        return fmt is not None and (self.dtype.bits < 8 or not fmt.has_sign)


def recognised(comparator: Computation) -> tuple[Order, ...]:
    """The orders that a comparator of sort applies, the first that decides first; none: unknown."""
    return _orders(comparator.root, comparator.parameters)


def _orders(root: Instruction, parameters: Sequence[Instruction]) -> tuple[Order, ...]:
    """a < b, or (a < b) | ((a = b) & rest), or a = b ? rest : a < b, further orders in the rest."""
    found: list[Order] = []
    while True:
        order = _order(root, parameters)
        if order is not None:
            return (*found, order)
        tied = _tied(root)
        order = _order(tied[0], parameters) if tied is not None else None
        if tied is None or order is None:
            return ()
        found.append(order)
        root = tied[1]


def _tied(root: Instruction) -> tuple[Instruction, Instruction] | None:
    """What decides first, and what decides where that compares equal keys."""
    if root.opcode == "select":
        tie, rest, first = root.operands
        return (first, rest) if _is_tie(tie, first) else None
    if root.opcode != "or":
        return None
    for first, both in (root.operands, root.operands[::-1]):
        if first.opcode != "compare" or both.opcode != "and":
            continue
        for tie, rest in (both.operands, both.operands[::-1]):
            if _is_tie(tie, first):
                return first, rest
    return None


def _is_tie(tie: Instruction, order: Instruction) -> bool:
    """Whether `tie` holds where `order` compares equal keys."""
    if tie.opcode != "compare" or tie["direction"] != "EQ" or tie.get("type") != order.get("type"):
        return False
    sides = (order.operands, order.operands[::-1])
    return any(all(map(_same_expression, tie.operands, side)) for side in sides)


def _order(root: Instruction, parameters: Sequence[Instruction]) -> Order | None:
    if root.opcode != "compare":
        return None
    descending = _DESCENDING.get(str(root["direction"]))
    left, right = root.operands
    sides = [_parameters(side) for side in (left, right)]
    if descending is None or any(len(s) != 1 for s in sides):
        return None
    a, b = (parameters.index(next(iter(s))) for s in sides)
    if a // 2 != b // 2 or a == b or left.shape.dims or not _alike(left, right):
        return None
    dtype = left.shape.dtype
    if dtype.is_complex:
        return None
    total = not dtype.is_float or root.get("type") == "TOTALORDER"
    is_plain = left.opcode == "parameter"
    return Order(
        a // 2, dtype, descending != (a % 2 == 1), total,
        None if is_plain else left, None if is_plain else parameters[a],
    )  # fmt: skip


def _parameters(root: Instruction) -> set[Instruction]:
    """The parameters that an expression reads."""
    seen, stack = {root}, [root]
    while stack:
        for operand in stack.pop().operands:
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return {i for i in seen if i.opcode == "parameter"}


def _same_expression(a: Instruction, b: Instruction) -> bool:
    return a is b or (_parameters(a) == _parameters(b) and _alike(a, b))


def _alike(a: Instruction, b: Instruction) -> bool:
    """Whether two expressions are the same function of the one parameter that each reads."""
    pairs, seen = [(a, b)], set()
    while pairs:
        x, y = pairs.pop()
        if (x, y) in seen:
            continue
        seen.add((x, y))
        if x.opcode != y.opcode or x.shape != y.shape or len(x.operands) != len(y.operands):
            return False
        if x.opcode == "constant" and not x["literal"].same_bits(y["literal"]):  # type: ignore[attr-defined]  # Literals
            return False
        if x.opcode not in ("constant", "parameter") and attributes_of(x) != attributes_of(y):
            return False
        pairs.extend(zip(x.operands, y.operands, strict=True))
    return True
