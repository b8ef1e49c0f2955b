"""Scalar attributes: booleans, integers, floats, strings."""

from __future__ import annotations

import math

import numpy as np

from hlo.attributes.escape import quoted, unquoted
from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, bounded_double, has, int64, tokens
from hlo.errors import Violation

_LARGEST_FLOAT = float(np.finfo(np.float32).max)


def _bool(tree: Tree) -> bool:
    return has(tree, "TRUE")


def bool_text(value: bool) -> str:  # noqa: FBT001  # the value of an attribute
    """`true` or `false`."""
    return "true" if value else "false"


def _bools(tree: Tree) -> tuple[bool, ...]:
    return tuple(word == "true" for word in tokens(tree, "TRUE", "FALSE"))


def bools_text(flags: tuple[bool, ...]) -> str:
    """`{true,false}`."""
    return "{" + ",".join(bool_text(f) for f in flags) + "}"


def _int64(tree: Tree) -> int:
    (text,) = tokens(tree, "INT")
    return int64(text)


def _int32(tree: Tree) -> int:
    return checked_int32(_int64(tree))


def _wrapped_int32(tree: Tree) -> int:
    """XLA reads 64 bits and keeps the lower half."""
    return (_int64(tree) + (1 << 31)) % (1 << 32) - (1 << 31)


def checked_int32(number: int) -> int:
    """The number; a Violation when it needs more than 32 bits."""
    if not -(1 << 31) <= number < 1 << 31:
        raise Violation("attribute-value", "", str(number), "a number that fits in 32 bits")
    return number


def _float(tree: Tree) -> float:
    (text,) = tokens(tree, "INT", "DECIMAL", "INF", "NEG_INF")
    number = bounded_double(text)
    if abs(number) > _LARGEST_FLOAT:
        raise Violation("attribute-value", "", text, "a number in the range of f32")
    return float(np.float32(number))


def general_text(number: float, *, exact: bool = False) -> str:
    """Six significant digits, as C's `%g`; a NaN without its sign.

    exact: as many digits as it takes to read the same number again.
    """
    text = f"{number:g}"
    if not exact or number != number:  # noqa: PLR0124  # a NaN
        return text
    if math.isinf(number):
        return "1e999" if number > 0 else "-1e999"
    if text == "-0":
        return "-0.0"
    return text if float(text) == number else repr(number)


def float_text(number: float, *, reads_back: bool = True) -> str:
    """An f32 with six digits, or with as many as it takes to read it again."""
    text = f"{number:g}"
    if not reads_back or number != number:  # noqa: PLR0124  # a NaN
        return text
    if text == "-0":
        return "-0.0"
    for short in (text, f"{number:.9g}"):
        if float(np.float32(short)) == number and abs(float(short)) <= _LARGEST_FLOAT:
            return short
    return repr(number)


def _string(tree: Tree) -> str:
    (text,) = tokens(tree, "STRING")
    return unquoted(text)


BOOL = AttributeKind("BOOL", "kind_bool", _bool, bool_text)
BOOLS = AttributeKind("BOOLS", "kind_bools", _bools, bools_text)
INT64 = AttributeKind("INT64", "kind_int64", _int64, str)
INT32 = AttributeKind("INT32", "kind_int32", _int32, str)
WRAPPED_INT32 = AttributeKind("WRAPPED_INT32", "kind_int64", _wrapped_int32, str)
FLOAT = AttributeKind("FLOAT", "kind_float", _float, float_text)
STRING = AttributeKind("STRING", "kind_string", _string, quoted)
