"""Comparators of sort: common ones become integer keys, any other one drives a merge sort.

A key is an integer array that orders as the comparator does. Recognised: `LT` or `GT` of one pair
of parameters, each passed through the same elementwise computation (JAX maps -0 to 0 and NaN to one
NaN before it compares in total order), and such comparisons joined lexicographically:
    or(lt(a0, b0), and(eq(a0, b0), <the rest>))    select(eq(a0, b0), <the rest>, lt(a0, b0))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo.ir.computation import Computation
from hlo.ir.graph import computed_from
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.applying import applied
from hlo.ops.numerics import reals
from hlo.ops.numerics.representation import dtype_of, widen
from hlo.ops.table import OPS, Trait, attribute, evaluation_keywords

if TYPE_CHECKING:
    from hlo.ops.callee import Callee

Array = np.ndarray
Key = tuple[Instruction, str, bool]  # the left side's value, comparison type, descending


def sort_keys(computation: Computation, xs: Sequence[Array]) -> list[Array] | None:
    """Integer keys, the most significant first, that order as the comparator; None if unknown."""
    found = _lexicographic(computation.root)
    if found is None:
        return None
    keys = []
    for value, comparison, descending in found:
        key = _ordered_integers(_evaluated(value, xs), comparison)
        keys.append(~key if descending else key)
    return keys


def _lexicographic(root: Instruction) -> list[Key] | None:
    """The keys of a comparison, or of comparisons joined by "or equal and then"."""
    keys: list[Key] = []
    while True:
        last = _ordering(root)
        if last is not None:
            return [*keys, last]
        joined = _joined(root)
        if joined is None:
            return None
        first, equality, root = joined
        key = _ordering(first)
        if key is None or not _is_equality_of(equality, key):
            return None
        keys.append(key)


def _joined(root: Instruction) -> tuple[Instruction, Instruction, Instruction] | None:
    """(less, equal, rest) of or(less, and(equal, rest)) or select(equal, rest, less)."""
    if root.opcode == "select":
        equality, rest, first = root.operands
        return first, equality, rest
    if root.opcode != "or":
        return None
    for first, second in (root.operands, root.operands[::-1]):
        if second.opcode == "and":
            for equality, rest in (second.operands, second.operands[::-1]):
                if _direction(equality) == "EQ":
                    return first, equality, rest
    return None


def _direction(instruction: Instruction) -> object:
    return instruction.attributes["direction"] if instruction.opcode == "compare" else None


def _ordering(instruction: Instruction) -> Key | None:
    """The key of compare(f(a_k), f(b_k)), LT or GT, in either order of its operands."""
    direction = _direction(instruction)
    if direction not in ("LT", "GT") or instruction.operands[0].shape.dtype.is_complex:
        return None
    left, right = instruction.operands
    descending = direction == "GT"
    if _corresponds(right, left):
        left, right, descending = right, left, not descending
    elif not _corresponds(left, right):
        return None
    return left, _comparison(instruction), descending


def _comparison(instruction: Instruction) -> str:
    given = attribute(instruction, "type")
    if given is not None:
        return str(given)
    return "FLOAT" if instruction.operands[0].shape.dtype.is_float else "INTEGER"


def _is_equality_of(equality: Instruction, key: Key) -> bool:
    if _direction(equality) != "EQ" or _comparison(equality) != key[1]:
        return False
    left, right = equality.operands
    same = _same(left, key[0], 0) and _corresponds(key[0], right)
    return same or (_same(right, key[0], 0) and _corresponds(key[0], left))


def _corresponds(left: Instruction, right: Instruction) -> bool:
    """Whether `right` is `left` with every parameter 2k replaced by 2k + 1."""
    return _same(left, right, 1)


def _same(left: Instruction, right: Instruction, step: int) -> bool:
    stack = [(left, right)]
    while stack:
        a, b = stack.pop()
        if a.opcode != b.opcode or len(a.operands) != len(b.operands) or a.shape != b.shape:
            return False
        if a.opcode == "parameter":
            number = a.attributes["parameter_number"]
            if number % 2 or number + step != b.attributes["parameter_number"]:  # type: ignore[operator]  # ints
                return False
        elif not _same_attributes(a, b):
            return False
        stack += zip(a.operands, b.operands, strict=True)
    return True


def _same_attributes(a: Instruction, b: Instruction) -> bool:
    if a.opcode == "constant":
        return a is b or a.attributes["literal"].same_bits(b.attributes["literal"])  # type: ignore[attr-defined]  # a Literal
    if a.called_computations():
        return False
    row = OPS[a.opcode]
    if not row.traits & Trait.ELEMENTWISE and a.opcode not in ("bitcast", "copy"):
        return False
    return all(a.get(name) == b.get(name) for name in row.attrs)


def _evaluated(value: Instruction, xs: Sequence[Array]) -> Array:
    """An elementwise value of the even parameters, for all elements at once."""
    done: dict[Instruction, Array] = {}
    for x in computed_from(value):
        done[x] = _one(x, [done[o] for o in x.operands], xs)
    return np.broadcast_to(done[value], xs[0].shape)


def _one(instruction: Instruction, values: list[Array], xs: Sequence[Array]) -> Array:
    if instruction.opcode == "parameter":
        return xs[instruction.attributes["parameter_number"] // 2]  # type: ignore[operator]  # an int
    if instruction.opcode == "constant":
        return np.broadcast_to(instruction.attributes["literal"].array, xs[0].shape)  # type: ignore[attr-defined]  # a Literal
    keywords = evaluation_keywords(instruction)
    for name in ("shape", "operand_shapes"):
        if name in keywords:
            keywords[name] = _spread(keywords[name], xs[0].shape)
    return OPS[instruction.opcode].evaluate(*values, **keywords)  # type: ignore[return-value]  # elementwise: an array


def _spread(shape: object, dims: tuple[int, ...]) -> object:
    """A scalar's shape, or those of several, with the dimensions of the arrays."""
    if isinstance(shape, tuple):
        return tuple(_spread(s, dims) for s in shape)
    assert isinstance(shape, Shape), "what evaluate takes"
    return shape.with_dims(dims)


def _ordered_integers(values: Array, comparison: str) -> Array:
    dtype = dtype_of(values)
    if not dtype.is_float:
        return widen(values).astype(np.int8) if dtype.is_pred else widen(values)
    if comparison == "FLOAT":  # zeros are equal; NaN has no place and gets one by its sign
        values = np.where(values == 0, np.zeros((), values.dtype), values)
    return reals.total_order(values)


def merge_order(f: Callee, xs: Sequence[Array]) -> Array:
    """The order in which a stable merge sort by f puts the rows of xs[rows, n]: indices [rows, n].

    Runs of doubling width are merged by rank: an element's place is its own index plus the number
    of elements of the other run that come before it, found by bisection, f on all of them at once.
    """
    rows, n = xs[0].shape
    order = np.broadcast_to(np.arange(n), (rows, n)).copy()
    width = 1
    while width < n:
        positions = _merged_places(f, xs, order, width)
        order = np.take_along_axis(order, np.argsort(positions, axis=1, kind="stable"), axis=1)
        width *= 2
    return order


def _merged_places(f: Callee, xs: Sequence[Array], order: Array, width: int) -> Array:
    n = order.shape[1]
    at = np.arange(n)
    start = at // (2 * width) * (2 * width)
    middle, end = np.minimum(start + width, n), np.minimum(start + 2 * width, n)
    is_left = at < middle
    low = np.broadcast_to(np.where(is_left, middle, start), order.shape).copy()
    high = np.broadcast_to(np.where(is_left, end, middle), order.shape).copy()
    first = low.copy()
    values = [np.take_along_axis(x, order, axis=1) for x in xs]
    while np.any(low < high):
        probe = np.minimum((low + high) // 2, n - 1)
        others = [np.take_along_axis(v, probe, axis=1) for v in values]
        mine_first = _before(f, values, others)
        theirs_first = _before(f, others, values)
        # equal elements keep their order: those of the left run come first
        passes = np.where(is_left, theirs_first, ~mine_first) & (low < high)
        low, high = np.where(passes, probe + 1, low), np.where(passes | (low >= high), high, probe)
    return np.asarray(np.where(is_left, at, start + at - middle) + (low - first))


def _before(f: Callee, left: Sequence[Array], right: Sequence[Array]) -> Array:
    pairs = [side for k in range(len(left)) for side in (left[k], right[k])]
    return applied(f, pairs)[0]
