"""Whether a reducer picks one of two (value, index) pairs by a total order: arg-max and arg-min.

Then elements may be folded in any order. Decided by running the computation's own comparisons on a
small table of values and indices (NaN, infinities, signed zeros included), through the op table's
NumPy readings: it must be symmetric and associative there. Only selections are asked: every op is a
compare, select, logical or constant op, so the table covers all that they can tell apart.
"""

from __future__ import annotations

import itertools

import numpy as np

from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ops.table import OPS, call_attributes

_LOGIC = frozenset(
    {"compare", "select", "and", "or", "not", "tuple", "parameter", "maximum", "minimum"}
)


def is_symmetric_selection(computation: Computation) -> bool:
    """Symmetric and associative on a table that holds every order of values and indices."""
    if any(i.opcode not in _LOGIC or i.shape.dims for i in computation.instructions):
        return False
    parameters = computation.parameters
    count = len(parameters) // 2
    if count != 2 or computation.root.opcode != "tuple" or len(computation.root.operands) != 2:
        return False
    kinds = [p.shape.dtype for p in parameters[:count]]
    columns = [_samples(k) for k in kinds]
    if any(c is None for c in columns):
        return False
    rows = list(itertools.product(*columns))  # type: ignore[arg-type]  # none is None
    pairs = list(itertools.product(range(len(rows)), repeat=2))
    left, right = (
        _take(rows, [a for a, _ in pairs], kinds),
        _take(rows, [b for _, b in pairs], kinds),
    )
    if not _same(_run(computation, left, right), _run(computation, right, left)):
        return False
    triples = list(itertools.product(range(len(rows)), repeat=3))
    a, b, c = (_take(rows, [t[k] for t in triples], kinds) for k in range(3))
    first = _run(computation, _run(computation, a, b), c)
    second = _run(computation, a, _run(computation, b, c))
    return _same(first, second)


def _samples(kind: DType) -> list[object] | None:
    if kind.is_float:
        return [-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan]
    if kind.is_integral:
        least, greatest = kind.int_range
        return [least, 0, 1, greatest]
    return [False, True] if kind.is_pred else None


def _take(rows: list, which: list[int], kinds: list[DType]) -> list[np.ndarray]:  # type: ignore[type-arg]  # rows of scalars
    with np.errstate(invalid="ignore"):  # a type without a NaN takes what the cast makes of it
        return [
            np.array([rows[w][k] for w in which]).astype(kind.numpy) for k, kind in enumerate(kinds)
        ]


def _run(computation: Computation, a: list[np.ndarray], b: list[np.ndarray]) -> list[np.ndarray]:
    values: dict[object, object] = dict(zip(computation.parameters, [*a, *b], strict=True))
    for instruction in computation.instructions:
        if instruction.opcode not in ("parameter", "tuple"):
            operands = [values[o] for o in instruction.operands]
            evaluate = OPS[instruction.opcode].evaluate
            values[instruction] = evaluate(*operands, **call_attributes(instruction))
    return [values[o] for o in computation.root.operands]  # type: ignore[misc]  # arrays


def _same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    """Equal bits, any NaN equal to any NaN."""
    return all(_equal(x, y) for x, y in zip(a, b, strict=True))


def _equal(x: np.ndarray, y: np.ndarray) -> bool:
    if x.dtype.kind in "biu":
        return bool((x == y).all())
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    nan = np.isnan(wide_x) & np.isnan(wide_y)
    return bool((nan | ((wide_x == wide_y) & (np.signbit(wide_x) == np.signbit(wide_y)))).all())
