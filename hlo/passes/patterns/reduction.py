"""Reductions of what is empty, trivial, or only moved."""

from __future__ import annotations

from functools import reduce

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints
from hlo.ops.identities import identity
from hlo.ops.making import make
from hlo.ops.table import Trait, opcodes
from hlo.passes.patterns.matching import (
    has_one_user,
    ints,
    is_discrete,
    is_plain,
    is_splat,
    splat,
    splat_literal,
)
from hlo.passes.rewriting import rewrite


def reducer_opcode(root: Instruction) -> str | None:
    """The opcode of a reducer that is one binary op on its two parameters in order."""
    reducer = root["to_apply"]
    assert isinstance(reducer, Computation), "to_apply is a computation"
    body = reducer.root
    if len(reducer) != 3 or len(body.operands) != 2:
        return None
    return body.opcode if tuple(body.operands) == reducer.parameters else None


@rewrite("reduce")
def reduce_of_nothing(root: Instruction) -> Instruction | None:
    """reduce(x, z) => broadcast(z)  where x has no elements"""
    if len(root.operands) != 2 or root.operands[0].shape.size or not is_plain(root.shape):
        return None
    return make(root, "broadcast", root.operands[1], shape=root.shape, dimensions=())


_IDEMPOTENT = opcodes(Trait.IDEMPOTENT)
_ASSOCIATIVE = opcodes(Trait.ASSOCIATIVE)
_MOST_ROWS = 32  # Of which a reduction is written out.


@rewrite("reduce", operand="broadcast")
def reduce_of_splat(root: Instruction) -> Instruction | None:
    """reduce(broadcast(s), z) => broadcast(f(z, s))  for f in maximum, minimum, and, or"""
    if len(root.operands) != 2 or not root.operands[0].shape.size or not is_plain(root.shape):
        return None
    x, z = root.operands
    opcode = reducer_opcode(root)
    if x.opcode != "broadcast" or x.operands[0].shape.dims or opcode is None:
        return None
    if opcode not in _IDEMPOTENT or x.shape.dtype is not z.shape.dtype or x.shape.is_dynamic:
        return None
    value = make(root, opcode, z, x.operands[0], shape=z.shape)
    return make(root, "broadcast", value, shape=root.shape, dimensions=())


@rewrite("reduce")
def reduce_unit_dims(root: Instruction) -> Instruction | None:
    """reduce(x, z) => reshape(x)  over dimensions of size 1 only, z the identity of the reducer"""
    if len(root.operands) != 2:
        return None
    x, z = root.operands
    if any(x.shape.dims[d] != 1 for d in ints(root, "dimensions")):
        return None
    if not is_plain(x.shape) or not is_plain(root.shape) or not _is_identity(root, z):
        return None
    return make(root, "reshape", x, shape=root.shape)


def _is_identity(root: Instruction, z: Instruction) -> bool:
    """Whether f(z, x) has the bits of x for every x; +0 is no identity of float sums, as +0 + -0 is
    +0.
    """
    opcode, dtype = reducer_opcode(root) or "", root.shape.dtype
    found = identity(opcode, dtype)
    if found is None or dtype.is_complex or (opcode == "add" and not is_discrete(dtype)):
        return False
    return is_splat(z, found)


@rewrite("reduce", operand="compare")
def reduce_of_least(root: Instruction) -> Instruction | None:
    """reduce(x == z, true, d) by and => reduce(x, z, d) == z  where the latter is there anyway, and
    its op is idempotent with z as identity, as maximum and -inf: it gives z for nothing but z.
    PyTorch asks so whether a row of scores is masked as a whole. A NaN is no z, and stays a NaN.
    """
    if len(root.operands) != 2 or not is_plain(root.shape):
        return None
    compare, start = root.operands
    if compare.get("direction") != "EQ" or compare.get("type") == "TOTALORDER":
        return None
    if reducer_opcode(root) != "and" or not is_splat(start, True):
        return None
    x, z = compare.operands
    for extreme in x.users:
        if extreme.opcode != "reduce" or extreme.operands[0] is not x or extreme.is_root:
            continue
        is_same = extreme.get("dimensions") == root["dimensions"] and is_plain(extreme.shape)
        if not is_same or reducer_opcode(extreme) not in _IDEMPOTENT:
            continue
        if _is_identity(extreme, extreme.operands[1]) and _is_identity(extreme, z):
            spread = splat(root, splat_literal(z), extreme.shape)
            return make(root, "compare", extreme, spread, shape=root.shape, direction="EQ")
    return None


@rewrite("reduce", operand="concatenate")
def reduce_of_rows(root: Instruction) -> Instruction | None:
    """reduce(concatenate(a, b, ..), z, d) => f(f(z, a), b) ..  where each is one row along d

    What `jnp.stack([..]).max(0)` is. Not of sums and products of floats, which may be rounded less
    often where they are made as a whole.
    """
    if len(root.operands) != 2 or not is_plain(root.shape):
        return None
    stack, z = root.operands
    opcode, dims, dtype = reducer_opcode(root), ints(root, "dimensions"), root.shape.dtype
    exact = _ASSOCIATIVE if is_discrete(dtype) else _IDEMPOTENT
    if opcode is None or opcode not in exact or not has_one_user(stack):
        return None
    if dims != ints(stack, "dimensions") or not 1 < len(stack.operands) <= _MOST_ROWS:
        return None
    if any(row.shape.dims[dims[0]] != 1 or not is_plain(row.shape) for row in stack.operands):
        return None
    rows = [make(root, "reshape", row, shape=root.shape) for row in stack.operands]
    if not _is_identity(root, z):
        rows.insert(0, make(root, "broadcast", z, shape=root.shape, dimensions=()))
    return reduce(lambda total, row: make(root, opcode, total, row), rows)


@rewrite("reduce", operand="transpose")
def reduce_of_transpose(root: Instruction) -> Instruction | None:
    """reduce(transpose(x, p), z, d) => reduce(x, z, p[d])  where the kept dimensions keep their
    order
    """
    if len(root.operands) != 2 or root.operands[0].opcode != "transpose":
        return None
    moved, z = root.operands
    (x,) = moved.operands
    order, dimensions = ints(moved, "dimensions"), ints(root, "dimensions")
    kept = [order[d] for d in range(len(order)) if d not in dimensions]
    if kept != sorted(kept) or reducer_opcode(root) is None:
        return None
    return make(
        root,
        "reduce",
        x,
        z,
        shape=root.shape,
        dimensions=tuple(sorted(order[d] for d in dimensions)),
        to_apply=root["to_apply"],
    )


@rewrite("reduce", operand="reshape")
def reduce_of_reshape(root: Instruction) -> Instruction | None:
    """reduce(reshape(x), z, d) => reduce(x, z, d')  where the reshape only splits or joins
    reduced dims
    """
    if len(root.operands) != 2 or root.operands[0].opcode != "reshape":
        return None
    reshaped, z = root.operands
    (x,) = reshaped.operands
    if reducer_opcode(root) is None or not has_one_user(reshaped) or not is_plain(x.shape):
        return None
    dimensions = _merged_dimensions(x.shape.dims, reshaped.shape.dims, ints(root, "dimensions"))
    if dimensions is None:
        return None
    to_apply = root["to_apply"]
    return make(root, "reduce", x, z, shape=root.shape, dimensions=dimensions, to_apply=to_apply)


def _merged_dimensions(source: Ints, target: Ints, reduced: Ints) -> Ints | None:
    """Dimensions of source that hold exactly target's reduced ones; the kept ones have to be equal.
    None where there are none such.
    """
    found: list[int] = []
    i = j = 0
    while i < len(source) or j < len(target):
        if j < len(target) and j not in reduced:
            if i >= len(source) or source[i] != target[j]:
                return None
            i, j = i + 1, j + 1
            continue
        group = 1
        while j < len(target) and j in reduced:
            group *= target[j]
            j += 1
        held = 1
        while i < len(source) and held < group:
            held *= source[i]
            found.append(i)
            i += 1
        if held != group or group <= 1:
            return None
    return tuple(found)


@rewrite("reduce", operand="negate")
def reduce_of_negated(root: Instruction) -> Instruction | None:
    """reduce(-x, 0, add) => -reduce(x, 0, add)  for integers"""
    if len(root.operands) != 2 or reducer_opcode(root) != "add":
        return None
    negated, z = root.operands
    if negated.opcode != "negate" or not root.shape.dtype.is_integral or not is_splat(z, 0):
        return None
    total = make(
        root,
        "reduce",
        negated.operands[0],
        z,
        shape=root.shape,
        dimensions=root["dimensions"],
        to_apply=root["to_apply"],
    )
    return make(root, "negate", total, shape=root.shape)
