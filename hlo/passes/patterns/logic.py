"""Boolean and bitwise identities, comparisons, select, minimum and maximum, clamp."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import isnan

from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.making import make
from hlo.passes.patterns.matching import (
    is_discrete,
    is_plain,
    is_splat,
    same_array,
    splat,
    splat_literal,
)
from hlo.passes.rewriting import rewrite


def _all_ones(dtype_of: Instruction) -> int:
    dtype = dtype_of.shape.dtype
    return (
        1
        if dtype.is_pred or (dtype.is_unsigned and dtype.bits == 1)
        else (-1 if dtype.is_signed else (1 << dtype.bits) - 1)
    )


def _is_all_ones(x: Instruction) -> bool:
    value = splat_literal(x)
    return value is not None and int(value) == _all_ones(x)


@rewrite("and")
def and_with_constant(root: Instruction) -> Instruction | None:
    """x and 0 => 0,  x and 11..1 => x"""
    x, c = root.operands
    if is_splat(c, 0):
        return c
    return x if _is_all_ones(c) else None


@rewrite("or")
def or_with_constant(root: Instruction) -> Instruction | None:
    """x or 0 => x,  x or 11..1 => 11..1"""
    x, c = root.operands
    if is_splat(c, 0):
        return x
    return c if _is_all_ones(c) else None


@rewrite("xor")
def xor_with_constant(root: Instruction) -> Instruction | None:
    """x xor 0 => x,  x xor 11..1 => not x"""
    x, c = root.operands
    if is_splat(c, 0):
        return x
    return make(root, "not", x, shape=root.shape) if _is_all_ones(c) else None


@rewrite("and", "or", "maximum", "minimum")
def same_operands(root: Instruction) -> Instruction | None:
    """op(x, x) => x  for and, or, maximum, minimum"""
    x, y = root.operands
    return x if x is y and same_array(x.shape, root.shape) else None


@rewrite("xor")
def xor_self(root: Instruction) -> Instruction | None:
    """x xor x => 0"""
    x, y = root.operands
    return splat(root, 0) if x is y else None


@rewrite("not", operand="not")
def not_twice(root: Instruction) -> Instruction | None:
    """not(not(x)) => x"""
    return root.operands[0].operands[0]


RELATIONS: dict[str, Callable[..., bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
}
NEGATED = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


@rewrite("not", operand="compare")
def not_compare(root: Instruction) -> Instruction | None:
    """not(a < b) => a >= b  for integers and pred, or EQ and NE of anything;
    the comparison used once
    """
    (comparison,) = root.operands
    a, b = comparison.operands
    direction = comparison["direction"]
    assert isinstance(direction, str), "a direction is a word"
    if len(comparison.users) != 1 or not (is_discrete(a.shape.dtype) or direction in ("EQ", "NE")):
        return None
    attributes = {**comparison.attributes, "direction": NEGATED[direction]}
    return make(root, "compare", a, b, shape=root.shape, **attributes)


@rewrite("compare")
def compare_self(root: Instruction) -> Instruction | None:
    """x == x, x <= x, x >= x => true;  x != x, x < x, x > x => false;  for integers and pred"""
    x, y = root.operands
    if x is not y or not is_discrete(x.shape.dtype):
        return None
    return splat(root, root["direction"] in ("EQ", "LE", "GE"))


@rewrite("compare")
def compare_unsigned_zero(root: Instruction) -> Instruction | None:
    """x < 0 => false,  x >= 0 => true,  0 > x => false,  0 <= x => true  for unsigned x"""
    x, y = root.operands
    if not x.shape.dtype.is_unsigned:
        return None
    if is_splat(y, 0) and root["direction"] in ("LT", "GE"):
        return splat(root, root["direction"] == "GE")
    if is_splat(x, 0) and root["direction"] in ("GT", "LE"):
        return splat(root, root["direction"] == "LE")
    return None


@rewrite("compare", operand="abs")
def compare_absolute_below_zero(root: Instruction) -> Instruction | None:
    """|x| < 0 => false,  0 > |x| => false

    Not of integers, the least of which is its own absolute value. In total order too.
    """
    x, y = root.operands
    if root["direction"] == "GT":
        x, y = y, x
    elif root["direction"] != "LT":
        return None
    if x.opcode != "abs" or not x.shape.dtype.is_float or not is_splat(y, 0):
        return None
    return splat(root, False)


@rewrite("compare")
def compare_with_truth(root: Instruction) -> Instruction | None:
    """p != false => p,  p == true => p  for pred"""
    p, c = root.operands
    if not p.shape.dtype.is_pred or not same_array(p.shape, root.shape):
        return None
    keeps = {"NE": 0, "EQ": 1}.get(str(root["direction"]))
    return p if keeps is not None and is_splat(c, keeps) else None


@rewrite("compare", operand="convert")
def compare_converted_truth(root: Instruction) -> Instruction | None:
    """convert(p) != 0 => p,  convert(p) > 0 => p,  convert(p) == 0 => not p,  convert(p) >= 0 =>
    true  and so on for pred p and any constant:  what the comparison says of 0 and of 1

    Not in total order, where -0 and NaN have places.
    """
    converted, c = root.operands
    value = splat_literal(c)
    if converted.opcode != "convert" or value is None or root.get("type") == "TOTALORDER":
        return None
    (p,) = converted.operands
    if not _holds_truth(converted.shape.dtype, p) or not same_array(p.shape, root.shape):
        return None
    number = complex(value) if converted.shape.dtype.is_complex else float(value)
    relation = RELATIONS[str(root["direction"])]
    of_false, of_true = bool(relation(0, number)), bool(relation(1, number))
    if of_false == of_true:
        return splat(root, of_true)
    return p if of_true else make(root, "not", p, shape=root.shape)


@rewrite("compare", operand="convert")
def compare_converted_integer(root: Instruction) -> Instruction | None:
    """convert(x) < c => true,  convert(x) == c => false  and so on for integers x that all stand on
    the same side of c: bytes of a picture that index a table are not below 0
    """
    converted, c = root.operands
    value = splat_literal(c)
    if converted.opcode != "convert" or value is None or converted.shape.dtype.is_complex:
        return None
    from hlo.passes.patterns.conversion import holds

    own, direction = converted.operands[0].shape.dtype, str(root["direction"])
    if not own.is_integral or not holds(converted.shape.dtype, own):
        return None
    least = -(1 << (own.bits - 1)) if own.is_signed else 0
    greatest = least + (1 << own.bits) - 1
    number = float(value) if converted.shape.dtype.is_float else int(value)
    if least <= number <= greatest and direction in ("EQ", "NE"):
        return None
    of_least, of_greatest = (bool(RELATIONS[direction](end, number)) for end in (least, greatest))
    is_known = of_least == of_greatest and not isnan(number) and is_plain(root.shape)
    return splat(root, of_least) if is_known else None


def _holds_truth(dtype: DType, p: Instruction) -> bool:
    """Whether p is pred, whose values the type has as 0 and 1."""
    from hlo.passes.patterns.conversion import holds

    return p.shape.dtype.is_pred and holds(
        dtype.component if dtype.is_complex else dtype, p.shape.dtype
    )


EXTREMES = {"GT": "maximum", "LE": "maximum", "LT": "minimum", "GE": "minimum"}
MOST_READERS = 32  # The most readers of a value that an extreme may stand for.
MIRRORED = {"GT": "LT", "LE": "GE", "LT": "GT", "GE": "LE"}


@rewrite("compare")
def compare_extreme(root: Instruction) -> Instruction | None:
    """x > c => max(x, c) > c,  x <= c => max(x, c) <= c,  x < c => min(x, c) < c,
    x >= c => min(x, c) >= c,  also with c on the left;  where only that extreme and comparisons
    with c read x, so that a computed x need not be kept beside it

    An x above c is the maximum; else that is c, which is not above c. A NaN of either is the
    maximum and compares false, as before. Not in total order, where a NaN has a place.
    """
    direction = str(root["direction"])
    if direction not in EXTREMES or root.get("type") == "TOTALORDER":
        return None
    a, b = root.operands
    if (extreme := _only_extreme(a, b, EXTREMES[direction])) is not None:
        return make(root, "compare", extreme, b, shape=root.shape, **root.attributes)
    if (extreme := _only_extreme(b, a, EXTREMES[MIRRORED[direction]])) is not None:
        return make(root, "compare", a, extreme, shape=root.shape, **root.attributes)
    return None


def _only_extreme(x: Instruction, c: Instruction, opcode: str) -> Instruction | None:
    """The one extreme of x and c in use, where what else reads x compares it with c."""
    if x.opcode in ("parameter", "constant", "get-tuple-element") or x.is_root or x is c:
        return None
    if len(x.users) > MOST_READERS:
        return None  # each comparison asks all of them
    others = [u for u in x.users if u.opcode != "compare"]
    if len(others) != 1 or others[0].opcode != opcode or not all(_pairs(u, x, c) for u in x.users):
        return None
    (extreme,) = others
    in_use = bool(extreme.users) or extreme.is_root
    return extreme if in_use and same_array(extreme.shape, x.shape) else None


def _pairs(reader: Instruction, x: Instruction, c: Instruction) -> bool:
    """Whether a binary operation reads x and c, or what is c everywhere."""
    a, b = reader.operands
    other = b if a is x else a
    if other is c:
        return True
    value, expected = splat_literal(other), splat_literal(c)
    if value is None or expected is None:
        return False
    return value.dtype == expected.dtype and value.tobytes() == expected.tobytes()


@rewrite("select")
def select_same(root: Instruction) -> Instruction | None:
    """select(p, x, x) => x"""
    _, x, y = root.operands
    return x if x is y else None


@rewrite("select")
def select_constant(root: Instruction) -> Instruction | None:
    """select(true, x, y) => x,  select(false, x, y) => y"""
    p, x, y = root.operands
    value = splat_literal(p)
    return None if value is None else (x if value else y)


@rewrite("select", operand="not")
def select_not(root: Instruction) -> Instruction | None:
    """select(not p, x, y) => select(p, y, x)"""
    p, x, y = root.operands
    if p.opcode != "not":
        return None
    return make(root, "select", p.operands[0], y, x, shape=root.shape)


@rewrite("select", operand="compare")
def select_of_counted_place(root: Instruction) -> Instruction | None:
    """select(p < 0, p + n, p) => p  for p >= 0,  => p + n  for p < 0,  where p is counted

    As JAX wraps indices that count from the end, those of its own iotas too.
    """
    test, wrapped, p = root.operands
    if test.opcode != "compare" or test["direction"] != "LT" or test.operands[0] is not p:
        return None
    if not p.shape.dtype.is_signed or not p.shape.dtype.is_integral:
        return None
    if not is_splat(test.operands[1], 0):
        return None
    from hlo.analysis.counted_places import range_of  # for programs that index

    found = range_of(p)
    if found is None:
        return None
    return p if found[0] >= 0 else wrapped if found[1] < 0 else None


@rewrite("select")
def select_truth(root: Instruction) -> Instruction | None:
    """select(p, true, false) => p,  select(p, false, true) => not p  for pred of one shape"""
    p, x, y = root.operands
    if not root.shape.dtype.is_pred or not same_array(p.shape, root.shape):
        return None
    if is_splat(x, 1) and is_splat(y, 0):
        return p
    if is_splat(x, 0) and is_splat(y, 1):
        return make(root, "not", p, shape=root.shape)
    return None


@rewrite("maximum", "minimum")
def bound_by_extreme(root: Instruction) -> Instruction | None:
    """max(x, lowest) => x,  min(x, highest) => x  for integers and, with infinities, floats"""
    x, c = root.operands
    value = splat_literal(c)
    if root.shape.dtype.is_float and same_array(x.shape, root.shape):
        return x if is_splat(c, float("-inf" if root.opcode == "maximum" else "inf")) else None
    if value is None or not root.shape.dtype.is_integral:
        return None
    low, high = root.shape.dtype.int_range
    return x if int(value) == (low if root.opcode == "maximum" else high) else None


@rewrite("maximum", operand="maximum")
def maximum_twice(root: Instruction) -> Instruction | None:
    """max(max(x, y), y) => max(x, y)"""
    return _absorbed(root)


@rewrite("minimum", operand="minimum")
def minimum_twice(root: Instruction) -> Instruction | None:
    """min(min(x, y), y) => min(x, y)"""
    return _absorbed(root)


def _absorbed(root: Instruction) -> Instruction | None:
    a, b = root.operands
    if a.opcode == root.opcode and b in a.operands:
        return a
    return b if b.opcode == root.opcode and a in b.operands else None


@rewrite("clamp", operand="clamp")
def clamp_twice(root: Instruction) -> Instruction | None:
    """clamp(a, clamp(a, x, b), b) => clamp(a, x, b)"""
    low, inner, high = root.operands
    if inner.opcode != "clamp" or inner.operands[0] is not low or inner.operands[2] is not high:
        return None
    return inner
