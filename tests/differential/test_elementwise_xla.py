"""Every elementwise op and conversion on edge values and random ones, beside XLA:CPU.

One program holds all of them, for one child process. Integers, predicates and movement must have
equal bits; floats may differ by our budget plus XLA's own error (docs/semantics.md 17).
Subnormals are left out: XLA:CPU flushes them.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hlo.errors import HloError, Violation
from hlo.interpreter.evaluate import evaluate
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.shape import Shape
from hlo.ops.numerics.representation import smallest_normal
from hlo.ops.table import OPS, Trait
from hlo.parser.parse import parse
from hlo.tools.comparison.ulp import ulp_distance
from hlo.tools.jax import jax_door
from tests.support.xla_child import run_in_child

TYPES = ("pred", "s8", "u8", "s32", "u32", "s64", "u64", "bf16", "f16", "f32", "f64", "c64")
# XLA:CPU does not implement these, or not rightly (docs/semantics.md 1, 3, 4, 18).
NOT_IN_XLA = {
    *("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"),
    *("copy", "mulhi", "stochastic-convert"),
}
# XLA's largest error in ulps (f32 or f64, whichever is larger); 1 elsewhere.
XLA_ULP = {
    "exponential": 6, "exponential-minus-one": 6, "log-plus-one": 130, "tan": 2, "tanh": 7,
    "logistic": 256, "cbrt": 4, "erf": 7, "rsqrt": 2, "log": 2, "atan2": 2,
}  # fmt: skip
COMPLEX_RTOL = 1e-4  # relative to the largest part: XLA's maxima of section 17, c64
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    2.0,
    -2.5,
    0.5,
    3.5,
    1e4,
    -1e-4,
    88.0,
    -8.0,
]


def operands(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of one length: the edge values crossed, then random ones."""
    rng = np.random.default_rng(7)
    if dtype.is_pred:
        edge = np.array([False, True])
        extra = rng.integers(0, 2, 4).astype(bool), rng.integers(0, 2, 4).astype(bool)
    elif dtype.is_integral:
        low, high = dtype.int_range
        edge = np.array([low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 31, 63], dtype.numpy)
        edge = np.append(edge, np.array([-1, -2], np.int64).astype(dtype.numpy))
        wide = np.uint64 if dtype.is_unsigned else np.int64
        extra = tuple(
            rng.integers(low, high, 100, dtype=wide, endpoint=True).astype(dtype.numpy)
            for _ in range(2)
        )
    else:
        part = dtype.component.numpy
        edge = np.array(SPECIAL[: 4 if dtype.is_complex else None], np.float64).astype(part)
        extra = tuple((rng.standard_normal(300) * 3).astype(part) for _ in range(2))
    x, y = (np.append(a.ravel(), e) for a, e in zip(np.meshgrid(edge, edge), extra, strict=True))
    if dtype.is_complex:
        x, y = x + 1j * np.roll(x, 3), y + 1j * np.roll(y, 5)
        parts = np.stack((x.real, x.imag, y.real, y.imag))
        kept = np.isfinite(parts).all(0) & (parts != 0).all(0)  # zeros choose branches of cuts
        x, y = x[kept], y[kept]
    return x.astype(dtype.numpy), y.astype(dtype.numpy)


def instructions() -> list[tuple[str, DType, str, Shape]]:
    """(opcode, operand type, attributes, result shape) of everything to run."""
    rows: list[tuple[str, DType, str, Shape]] = []
    for name in TYPES:
        dtype = dt.dtype(name)
        shape = Shape.array(dtype, operands(dtype)[0].shape)
        for opcode, row in OPS.items():
            if not row.traits & Trait.ELEMENTWISE or row.arity not in (1, 2):
                continue
            if opcode in NOT_IN_XLA or row.takes_shape or opcode in ("compare", "reduce-precision"):
                continue
            try:
                result = row.infer(*[shape] * row.arity)
                row.check(*[shape] * row.arity, shape=result.with_dtype(result.dtype))
            except (Violation, AttributeError):
                continue
            rows.append((opcode, dtype, "", result))
        directions = ("EQ", "NE") if dtype.is_complex else ("EQ", "NE", "LT", "LE", "GT", "GE")
        for direction in directions:
            rows.append(("compare", dtype, f", direction={direction}", shape.with_dtype("pred")))
            if dtype.is_float:
                attributes = f", direction={direction}, type=TOTALORDER"
                rows.append(("compare", dtype, attributes, shape.with_dtype("pred")))
        for target in TYPES:
            if name != target and not (dtype.is_complex and target == "pred"):
                rows.append(("convert", dtype, "", shape.with_dtype(target)))
    return rows


@cache
def program() -> str:
    lines, roots, shapes = [], [], []
    for number, name in enumerate(TYPES):
        x, _ = operands(dt.dtype(name))
        lines.append(f"  {name}.x = {name}[{x.size}] parameter({2 * number})")
        lines.append(f"  {name}.y = {name}[{x.size}] parameter({2 * number + 1})")
    for i, (opcode, dtype, attributes, result) in enumerate(instructions()):
        arity = OPS[opcode].arity
        given = ", ".join(f"{dtype}.{v}" for v in "xy"[:arity])
        lines.append(f"  v{i} = {result.without_layout()} {opcode}({given}){attributes}")
        roots.append(f"v{i}")
        shapes.append(str(result.without_layout()))
    lines.append(f"  ROOT t = ({', '.join(shapes)}) tuple({', '.join(roots)})")
    return "HloModule elementwise\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


@cache
def results() -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Ours and XLA's."""
    arguments = [a for name in TYPES for a in operands(dt.dtype(name))]
    ours = evaluate(parse(program()), *arguments)
    assert isinstance(ours, tuple)
    return ours, tuple(run_in_child(program(), arguments))


def oracle_is_there() -> bool:
    try:
        jax_door.check_available()
    except HloError:
        return False
    return True


def is_small(array: np.ndarray) -> np.ndarray:
    """Subnormal elements."""
    dtype = dt.from_numpy(array.dtype)
    assert dtype is not None
    if not dtype.is_float:
        return np.zeros(array.shape, np.bool_)
    size = np.abs(array.astype(np.float64))
    return (size > 0) & (size < max(smallest_normal(dtype), 2.0**-126 if dtype.bits < 64 else 0))


def outside(opcode: str, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Elements beyond both budgets together."""
    dtype = dt.from_numpy(ours.dtype)
    assert dtype is not None
    if dtype.is_complex:
        scale = np.maximum(np.abs(theirs), 1.0)
        with np.errstate(all="ignore"):
            near = np.abs(ours - theirs) <= COMPLEX_RTOL * scale
        return np.isfinite(ours) & np.isfinite(theirs) & ~near
    if not dtype.is_float:
        return np.asarray(ours != theirs)
    exact = opcode == "convert" or OPS[opcode].ulp <= 0.5
    budget = 0 if exact else OPS[opcode].ulp + XLA_ULP.get(opcode, 1)
    if dtype.bits == 16 and not exact:
        budget = max(1, budget if opcode in ("logistic", "exponential-minus-one") else 1)
    return (ulp_distance(ours, theirs) > budget) & ~is_small(ours) & ~is_small(theirs)


@pytest.mark.oracle
@pytest.mark.skipif(not oracle_is_there(), reason="the oracle extra is not installed")
@pytest.mark.parametrize("opcode", sorted({row[0] for row in instructions()}))
def test_elementwise_agrees_with_xla(opcode: str) -> None:
    ours, theirs = results()
    problems = []
    for i, (name, dtype, attributes, result) in enumerate(instructions()):
        if name != opcode:
            continue
        wrong = outside(opcode, ours[i], theirs[i])
        if wrong.any():
            x, y = operands(dtype)
            at = int(np.flatnonzero(wrong)[0])
            problems.append(
                f"{dtype}{attributes} -> {result.dtype}: {np.count_nonzero(wrong)} differ: "
                f"f({x[at]}, {y[at]}) = {ours[i][at]}, XLA {theirs[i][at]}"
            )
    assert problems == []
