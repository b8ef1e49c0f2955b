"""Reducers: the rules R1-R7 that their signatures follow, and reductions by calling them.

A reduction runs f(accumulator, element) over the elements in order, all kept positions at once. If
f does nothing but compare and choose (an argmax, say), its associativity is decided by trying all
orders that its arguments can have; it is then reduced by halves, still in order.
Source: docs/semantics.md 9.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo.errors import Violation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import ProgramShape, Shape
from hlo.ops.constraints import operand
from hlo.ops.shape_rules import same_type, text
from hlo.ops.table import Trait, has_trait

if TYPE_CHECKING:
    from hlo.ops.callee import Callee

Array = np.ndarray


def reducer_results(
    f: ProgramShape, inputs: Sequence[Shape], inits: Sequence[Shape], at: str = "to_apply"
) -> tuple[Shape, ...]:
    """The scalar shapes that f returns, after the checks R1 to R5 and R7."""
    n = len(inputs)
    for k, init in enumerate(inits):
        if not init.is_scalar:
            raise Violation("shape-mismatch", operand(n + k), text(init), "a scalar", "R7")
    if len(f.parameters) != 2 * n:
        raise Violation(
            "call-signature", at, f"a computation of {len(f.parameters)} parameters", f"{2 * n}",
            "R1",
        )  # fmt: skip
    results = f.result.elements if f.result.is_tuple else (f.result,)
    if len(results) != n or not all(r.is_scalar for r in results):
        raise Violation(
            "call-signature", at, f"a computation that returns {text(f.result)}",
            f"{n} scalars" if n > 1 else "a scalar", "R2",
        )  # fmt: skip
    for k, result in enumerate(results):
        _check_result(f, k, result, inputs[k], inits[k], at)
    return results


def _check_result(f: ProgramShape, k: int, result: Shape, x: Shape, init: Shape, at: str) -> None:
    n = len(f.parameters) // 2
    left, right = f.parameters[k], f.parameters[n + k]
    if not left.is_scalar or left.dtype is not result.dtype:
        found = f"{text(f.result)} from parameter {k} of {text(left)}"
        raise Violation("call-signature", at, found, "equal shapes", "R3")
    if not same_type(result.dtype, init.dtype):
        found = f"a computation that returns {text(f.result)}"
        raise Violation("call-signature", at, found, f"{text(init)}, as the initial value", "R4")
    if not right.is_scalar or not same_type(result.dtype, right.dtype):
        found = f"{text(f.result)} from parameter {n + k} of {text(right)}"
        raise Violation("call-signature", at, found, "equal shapes", "R4")
    if not same_type(right.dtype, x.dtype):
        found = f"a computation whose parameter {n + k} is {text(right)}"
        raise Violation("call-signature", at, found, f"{x.dtype}[], as the input", "R5")


def reduced_by(f: Callee, rows: Sequence[Array], inits: Sequence[Array]) -> tuple[Array, ...]:
    """The reduction of f over the first axis of rows [count, kept...], from inits, in order."""
    from hlo.ops.applying import applied

    kept = rows[0].shape[1:]
    accumulators = tuple(np.broadcast_to(z, kept) for z in inits)
    if len(rows[0]) > 8 and f.is_elementwise and _is_associative(f, rows):
        halved = _halved(f, rows)
        return applied(f, (*accumulators, *halved))
    for t in range(len(rows[0])):
        accumulators = applied(f, (*accumulators, *(x[t, ...] for x in rows)))
    return accumulators


def _halved(f: Callee, rows: Sequence[Array]) -> tuple[Array, ...]:
    from hlo.ops.applying import applied

    level = tuple(rows)
    while len(level[0]) > 1:
        even = len(level[0]) // 2 * 2
        merged = applied(f, (*(x[0:even:2] for x in level), *(x[1:even:2] for x in level)))
        level = tuple(np.concatenate([m, x[even:]]) for m, x in zip(merged, level, strict=True))
    return tuple(x[0, ...] for x in level)


def _is_associative(f: Callee, rows: Sequence[Array]) -> bool:
    """Whether f only compares and chooses, and does so associatively on values such as these."""
    from hlo.ops.applying import applied

    if not all(_is_choice(i) for i in f.computation.instructions) or len(rows) > 2:
        return False
    if any(x.dtype.kind == "c" for x in rows):
        return False
    with_nan = any(_has_nan(x) for x in rows)
    parameters = f.program_shape.parameters[: len(rows)]
    samples = [_samples(p.dtype, with_nan=with_nan) for p in parameters]
    triples = list(itertools.product(itertools.product(*samples), repeat=3))
    a, b, c = (
        tuple(np.stack([t[side][k] for t in triples]) for k in range(len(rows)))
        for side in range(3)
    )
    left = applied(f, (*applied(f, (*a, *b)), *c))
    right = applied(f, (*a, *applied(f, (*b, *c))))
    return all(_same(x, y) for x, y in zip(left, right, strict=True))


def _is_choice(instruction: Instruction) -> bool:
    return instruction.opcode in ("parameter", "tuple") or has_trait(instruction, Trait.CHOOSES)


def _has_nan(x: Array) -> bool:
    return x.dtype.kind not in "biu" and bool(np.isnan(x).any())


def _samples(dtype: DType, *, with_nan: bool) -> Array:
    """Values whose triples show every order that three values can have."""
    from hlo.ops.numerics.representation import wrapped

    if dtype.is_pred:
        return np.array([False, True])
    if not dtype.is_float:
        least = -1 if dtype.is_signed else 0
        return wrapped(np.arange(least, least + (2 if dtype.bits == 1 else 3)), dtype)
    plain = [-1.0, -0.0, 0.0, 1.0] + ([np.nan, -np.nan] if with_nan else [])
    return np.array(plain, np.float32).astype(dtype.numpy)


def _same(x: Array, y: Array) -> bool:
    if x.dtype.kind in "biu":
        return bool(np.array_equal(x, y))
    same_zero = np.signbit(x) == np.signbit(y)
    return bool(np.all((np.isnan(x) & np.isnan(y)) | ((x == y) & same_zero)))
