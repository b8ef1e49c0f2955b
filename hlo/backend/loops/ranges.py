"""Ranges: reductions of which a mask leaves a stretch, whose bounds the run knows.

    sum of where(low <= i & i < high, x, 0): rounds that meet [low, high) are enough

Terms outside are the reducer's identity, or a number that the run compares with it. All rounds that
are left out would have added identities, so that results have the bits of the whole sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo.analysis.masked_ranges import MaskedRange, masked_range
from hlo.analysis.reducers import reducer_of
from hlo.backend.loops.chains import uniform
from hlo.backend.loops.expression import Expression
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Variable
from hlo.indexing.reductions import reduction_dims
from hlo.ir.instruction import Instruction
from hlo.ops.identities import identity
from hlo.ops.table import Number


def reduced_ranges(
    expression: Expression, reduce: Instruction, indices: Sequence[Index], length: int
) -> list[MaskedRange]:
    """The masked range of each index that a reduce is asked for at; none where one has no bounds.

    length: of the reduced dimensions together.
    """
    if not _may_leave_out(expression, reduce):
        return []
    domain, x = reduction_dims(reduce), reduce.operands[0]
    along = Variable("along", 0, length - 1)
    inner = affine.reshaped((affine.of(along),), [length], domain.extents)
    found: list[MaskedRange] = []
    for index in indices:
        one = masked_range(x, domain.index(index, inner), along, expression.source)
        if one is None or not _is_left_out(expression, reduce, one) or not _is_uniform(one):
            return []
        found.append(one)
    return found


def _may_leave_out(expression: Expression, reduce: Instruction) -> bool:
    """Whether a reduce of one array has an identity, which its result tells from nothing.

    Where all terms are -0, others that are 0 tell: the sum from -0 is -0 without them.
    """
    dtype = reduce.operands[0].shape.dtype
    if len(reduce.operands) != 2 or dtype.is_complex or _identity(reduce) is None:
        return False
    start = uniform(expression, expression.source(reduce.operands[1], ()))
    if start is None:
        return False
    number = start.array.reshape(-1)[0]
    is_sum = "add" in reducer_of(reduce).opcodes
    return not (is_sum and dtype.is_float and number == 0 and np.signbit(number))


def _identity(reduce: Instruction) -> Number | None:
    opcodes = reducer_of(reduce).opcodes
    return identity(opcodes[0], reduce.operands[0].shape.dtype) if len(opcodes) == 1 else None


def _is_left_out(expression: Expression, reduce: Instruction, one: MaskedRange) -> bool:
    """Whether what stands outside is the identity, or a number that the run compares with it."""
    known = uniform(expression, expression.source(one.rest[0], ()))
    if known is None:
        return True
    return bool(known.array.reshape(-1)[0] == _identity(reduce))


def _is_uniform(one: MaskedRange) -> bool:
    """Whether bounds are numbers, not lanes of them."""
    exprs: list[Expr] = [*one.rest[1]]
    for bound in one.bounds:
        exprs += [*bound.index, bound.offset]
    return all(e.lanes == 1 for e in exprs)
