"""Integer division and remainder that round down, as frameworks write them: shifts and masks.

HLO's `divide` and `remainder` round towards zero; `//` and `%` are these, and a correction of
negative results.
"""

from __future__ import annotations

from hlo.ir.instruction import Instruction
from hlo.ops.making import make
from hlo.passes.patterns.matching import is_splat, log2_of, splat, splat_literal
from hlo.passes.rewriting import rewrite


def _is_compare(test: Instruction, direction: str, x: Instruction, number: int) -> bool:
    """Whether it says `x <direction> number`."""
    if test.opcode != "compare" or test["direction"] != direction:
        return False
    return test.operands[0] is x and is_splat(test.operands[1], number)


@rewrite("and", operand="compare")
def negative_and_not_zero(root: Instruction) -> Instruction | None:
    """x < 0 and x != 0 => x < 0"""
    for negative, other in (root.operands, root.operands[::-1]):
        if negative.opcode == "compare":
            x = negative.operands[0]
            if _is_compare(negative, "LT", x, 0) and _is_compare(other, "NE", x, 0):
                return negative
    return None


@rewrite("select", operand="remainder")
def remainder_rounded_down(root: Instruction) -> Instruction | None:
    """select(r < 0, r + 2^k, r) => x & (2^k - 1)  with r = x % 2^k, for signed integers"""
    test, moved, r = root.operands
    if r.opcode != "remainder" or moved.opcode != "add" or moved.operands[0] is not r:
        return None
    x, divisor = r.operands
    value, k = splat_literal(moved.operands[1]), log2_of(divisor)
    if k is None or value is None or int(value) != 1 << k or not root.shape.dtype.is_signed:
        return None
    if not _is_compare(test, "LT", r, 0):
        return None
    return make(root, "and", x, splat(root, (1 << k) - 1), shape=root.shape)


@rewrite("select", operand="divide")
def quotient_rounded_down(root: Instruction) -> Instruction | None:
    """select(sign(x) != 1 and x % 2^k != 0, x / 2^k - 1, x / 2^k) => x >> k  for signed integers"""
    test, moved, quotient = root.operands
    if quotient.opcode != "divide" or not root.shape.dtype.is_signed or test.opcode != "and":
        return None
    x, divisor = quotient.operands
    k = log2_of(divisor)
    if k is None or not _is_one_less(moved, quotient):
        return None
    if not any(_says_inexact(a, b, x, k) for a, b in (test.operands, test.operands[::-1])):
        return None
    return make(root, "shift-right-arithmetic", x, splat(root, k), shape=root.shape)


def _is_one_less(moved: Instruction, quotient: Instruction) -> bool:
    if moved.opcode not in ("subtract", "add") or moved.operands[0] is not quotient:
        return False
    return is_splat(moved.operands[1], 1 if moved.opcode == "subtract" else -1)


def _says_inexact(signs: Instruction, rests: Instruction, x: Instruction, k: int) -> bool:
    """sign(x) != 1, and x % 2^k != 0."""
    if signs.opcode != "compare" or rests.opcode != "compare":
        return False
    sign, rest = signs.operands[0], rests.operands[0]
    if sign.opcode != "sign" or sign.operands[0] is not x or not _is_compare(signs, "NE", sign, 1):
        return False
    if rest.opcode != "remainder" or rest.operands[0] is not x:
        return False
    return log2_of(rest.operands[1]) == k and _is_compare(rests, "NE", rest, 0)
