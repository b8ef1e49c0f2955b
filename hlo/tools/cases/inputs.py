"""Made-up inputs that make sense: seeded, indices in range, and as the program asks for them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hlo.errors import HloError, checked_count
from hlo.ir.dtype import ARRAY_TYPES, DType
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.process.memory import check_memory, numpy_problem
from hlo.tools.cases.demands import NOTHING, Demand, demands

DRAWN_BYTES = 24  # an element while it is drawn: 64-bit numbers, a second array, the result
ODD_KINDS = ("wild", "special")  # whose values are not what a program asks for
SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -2.5)


def made_up_inputs(module: Module, kind: str = "normal", seed: int = 0) -> list[object]:
    """One value per entry parameter, nested tuples for tuple parameters, None for tokens.

    kind: normal N(0,1); model: as a trained model's, which keep what is computed in range (below);
    uniform [0,1); small [-0.1, 0.2) as XLA's tools do; wild: normal with 5 % specials and
    out-of-range indices on purpose; ints -4..4; special: NaN, infinities, zeros; onehot; ramp
    0,1,2,..; zeros; ones. Integers that are used as indices stay in range (not wild), and are in
    order where an attribute says so; a variance is not negative (not wild, not special); other
    integers are 0..9; pred a fair coin.

    model: what a contraction multiplies with has the deviation 1 / sqrt(terms of its sums); what
    is added to a whole array is small, what multiplies one is near one; where logarithms, roots or
    divisions lead back to an argument it is inside of their domain: a probability of log(p) and
    log(1 - p) lies in (0, 1); what a loop bisects is in order; what is decomposed by Cholesky's
    method is symmetric and positive definite.
    """
    rng = generator(seed)
    asked = {} if kind == "wild" else demands(module)
    values: list[object] = []
    for parameter in module.entry.parameters:
        values.append(_value(parameter.shape, asked.get(parameter, {}), (), kind, rng))
    return values


def check_made(shape: Shape, what: str) -> None:
    """Raises HloError where an array of made-up or given values cannot be made."""
    problem = numpy_problem(shape.dims, DRAWN_BYTES)
    if problem:
        raise HloError("limit", f"{what}: {shape} has {problem}")
    check_memory(shape.size * DRAWN_BYTES, f"{what}: {shape} takes, while it is drawn")


def generator(seed: int) -> np.random.Generator:
    """Random numbers that follow from a seed, an integer from 0."""
    return np.random.default_rng(checked_count("seed", seed, 0))


def _value(
    shape: Shape,
    asked: dict[tuple[int, ...], Demand],
    path: tuple[int, ...],
    kind: str,
    rng: np.random.Generator,
) -> object:
    if shape.is_tuple:
        return tuple(_value(e, asked, (*path, i), kind, rng) for i, e in enumerate(shape.elements))
    if not shape.is_array:
        return None
    return _asked_array(shape, kind, rng, asked.get(path, NOTHING))


def _asked_array(shape: Shape, kind: str, rng: np.random.Generator, demand: Demand) -> np.ndarray:
    """An array of the shape as the program asks for it."""
    dtype = shape.dtype
    if kind == "model" and dtype.is_float:
        check_made(shape, "inputs")
        drawn = _model(rng, shape.dims, demand)
        is_sorted = demand.is_sorted and drawn.ndim > 0
        made = np.asarray((np.sort(drawn) if is_sorted else drawn).astype(dtype.numpy))
    else:
        made = made_up_array(shape, kind, rng, demand.limit)
    if demand.is_variance and dtype.is_float and kind not in ODD_KINDS:
        made = np.abs(made)
    if demand.is_sorted and dtype.is_integral:
        made = _in_order(made)
    if demand.is_definite and kind == "model" and made.ndim > 1:
        made = _definite(made)
    return made


def _definite(matrices: np.ndarray) -> np.ndarray:
    """a a^H / n + 1: Hermitian, with eigenvalues from 1; as they are where they are not square."""
    size = matrices.shape[-1]
    if not size or matrices.shape[-2] != size:
        return matrices
    wide = matrices.astype(np.complex128 if matrices.dtype.kind == "c" else np.float64)
    made = wide @ np.swapaxes(wide.conj(), -1, -2) / size + np.eye(size)
    return np.asarray(made.astype(matrices.dtype))


def _in_order(indices: np.ndarray) -> np.ndarray:
    """Indices in ascending order; vectors of them, in the last dimension, as wholes."""
    if not indices.ndim or not indices.size:
        return indices
    if indices.ndim < 2:
        return np.sort(indices)
    rows = indices.reshape(-1, indices.shape[-1])
    return rows[np.lexsort(rows.T[::-1])].reshape(indices.shape)


def _model(rng: np.random.Generator, dims: tuple[int, ...], demand: Demand) -> np.ndarray:
    """Numbers as they stand in models, f64."""
    low, high = demand.low, demand.high
    if demand.is_variance and not demand.is_bounded:
        low = 0.0
    if low < high and math.isfinite(low):
        span = min(high - low, 2.0)
        return np.asarray(low + span * rng.uniform(*INSIDE, dims))
    if low < high and math.isfinite(high):
        return np.asarray(high - min(abs(high) or 1.0, 2.0) * rng.uniform(*INSIDE, dims))
    drawn = rng.standard_normal(dims)
    if demand.terms:
        return np.asarray(drawn / math.sqrt(demand.terms))
    if demand.is_factor:
        return np.asarray(1 + SLIGHT * drawn)
    return np.asarray(SLIGHT * drawn if demand.is_term else drawn)


def made_up_array(
    shape: Shape, kind: str, rng: np.random.Generator, limit: int | None = None
) -> np.ndarray:
    """An array of the shape; `limit`: greatest value of an integer that indexes."""
    check_made(shape, "inputs")
    dtype = shape.dtype
    if dtype.is_pred:
        coin = {"zeros": 0, "ones": 1}.get(kind)
        flat = rng.integers(0, 2, shape.dims) if coin is None else np.full(shape.dims, coin)
        return flat.astype(np.bool_)
    if dtype.is_integral:
        return _integers(shape, kind, rng, limit)
    parts = 2 if dtype.is_complex else 1
    with np.errstate(all="ignore"):
        drawn = [FLOATS[kind](rng, shape.dims) for _ in range(parts)]
        if dtype.is_complex:
            return (drawn[0] + 1j * drawn[1]).astype(dtype.numpy)
        return drawn[0].astype(dtype.numpy)


def _integers(shape: Shape, kind: str, rng: np.random.Generator, limit: int | None) -> np.ndarray:
    low, high = shape.dtype.int_range
    if limit is not None:
        return rng.integers(0, max(0, min(limit, high)) + 1, shape.dims).astype(shape.dtype.numpy)
    if kind in ("zeros", "ones"):
        drawn = np.full(shape.dims, 0 if kind == "zeros" else 1)
    elif kind in ("ramp", "onehot"):
        drawn = FLOATS[kind](rng, shape.dims).astype(np.uint64) & np.uint64(high)  # its low bits
    elif kind in ("wild", "special"):
        drawn = rng.integers(low, high, shape.dims, endpoint=True, dtype=_drawable(shape.dtype))
    elif kind == "ints":
        drawn = rng.integers(max(low, -4), min(high, 4) + 1, shape.dims)
    else:
        drawn = rng.integers(0, min(high, 9) + 1, shape.dims)
    return drawn.astype(shape.dtype.numpy)


def _drawable(dtype: DType) -> type:
    return np.uint64 if dtype.is_unsigned else np.int64


SLIGHT = 0.1  # deviation of what is added, and of what multiplies, from what changes nothing
INSIDE = (0.25, 0.75)  # the part of an interval that numbers are drawn from, away from its ends
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _wild(rng: np.random.Generator, dims: tuple[int, ...]) -> np.ndarray:
    drawn = rng.standard_normal(dims)
    specials = rng.choice(np.array([*SPECIALS, 1e-40, 3e38, 1e30]), dims)
    return np.where(rng.random(dims) < 0.05, specials, drawn)


def _onehot(rng: np.random.Generator, dims: tuple[int, ...]) -> np.ndarray:
    out = np.zeros(dims)
    if out.size:
        last = dims[-1] if dims else 1
        rows = out.reshape(-1, last)
        rows[np.arange(len(rows)), rng.integers(0, last, len(rows))] = 1
    return out


def _ramp(rng: np.random.Generator, dims: tuple[int, ...]) -> np.ndarray:
    del rng
    return np.arange(int(np.prod(dims)), dtype=np.float64).reshape(dims)


FLOATS: dict[str, Draw] = {
    "normal": lambda rng, dims: rng.standard_normal(dims),
    "model": lambda rng, dims: rng.standard_normal(dims),
    "uniform": lambda rng, dims: rng.random(dims),
    "small": lambda rng, dims: rng.uniform(-0.1, 0.2, dims),
    "wild": _wild,
    "ints": lambda rng, dims: rng.integers(-4, 5, dims).astype(np.float64),
    "special": lambda rng, dims: rng.choice(np.array(SPECIALS), dims),
    "onehot": _onehot,
    "ramp": _ramp,
    "zeros": lambda _, dims: np.zeros(dims),
    "ones": lambda _, dims: np.ones(dims),
}


def named_dtype(name: str) -> np.dtype:
    """A NumPy dtype by name, the small types of ml_dtypes included."""
    found = next((row.numpy for row in ARRAY_TYPES if row.items == name), None)
    return np.dtype(name) if found is None else found
