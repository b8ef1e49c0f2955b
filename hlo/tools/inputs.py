"""Made-up inputs that make sense: seeded, indices in range, init values that are identities."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from hlo.errors import HloError
from hlo.ir.dtype import DType
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.process_memory import check_memory, numpy_problem
from hlo.tools.index_ranges import index_limits

DRAWN_BYTES = 24  # an element while it is drawn: 64-bit numbers, a second array, the result
KINDS = ("normal", "uniform", "small", "wild", "ints", "special", "onehot", "ramp", "zeros", "ones")
SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -2.5)


def made_up_inputs(module: Module, kind: str = "normal", seed: int = 0) -> list[object]:
    """One value per entry parameter, nested tuples for tuple parameters, None for tokens.

    kind: normal N(0,1); uniform [0,1); small [-0.1, 0.2) as XLA's tools do; wild: normal with 5 %
    specials and out-of-range indices on purpose; ints -4..4; special: NaN, infinities, zeros;
    onehot; ramp 0,1,2,..; zeros; ones. Integers that are used as indices stay in range (not wild);
    other integers are 0..9; pred a fair coin.
    """
    rng = generator(seed)
    limits = {} if kind == "wild" else index_limits(module)
    values: list[object] = []
    for parameter in module.entry.parameters:
        values.append(_value(parameter.shape, limits.get(parameter, {}), (), kind, rng))
    return values


def check_made(shape: Shape, what: str) -> None:
    """Raises HloError where an array of made-up or given values cannot be made."""
    problem = numpy_problem(shape.dims, DRAWN_BYTES)
    if problem:
        raise HloError("limit", f"{what}: {shape} has {problem}")
    check_memory(shape.size * DRAWN_BYTES, f"{what}: {shape} takes, while it is drawn")


def generator(seed: int) -> np.random.Generator:
    """Random numbers that follow from a seed, an integer from 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise HloError("arguments", f"seed is {seed!r}, expected an integer from 0")
    return np.random.default_rng(int(seed))


def _value(
    shape: Shape,
    limits: dict[tuple[int, ...], int],
    path: tuple[int, ...],
    kind: str,
    rng: np.random.Generator,
) -> object:
    if shape.is_tuple:
        return tuple(_value(e, limits, (*path, i), kind, rng) for i, e in enumerate(shape.elements))
    if not shape.is_array:
        return None
    return made_up_array(shape, kind, rng, limits.get(path))


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
        drawn = FLOATS[kind](rng, shape.dims).astype(np.int64) % (high + 1)
    elif kind in ("wild", "special"):
        drawn = rng.integers(low, high, shape.dims, endpoint=True, dtype=_drawable(shape.dtype))
    elif kind == "ints":
        drawn = rng.integers(max(low, -4), min(high, 4) + 1, shape.dims)
    else:
        drawn = rng.integers(0, min(high, 9) + 1, shape.dims)
    return drawn.astype(shape.dtype.numpy)


def _drawable(dtype: DType) -> type:
    return np.uint64 if dtype.is_unsigned else np.int64


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
    return np.dtype(getattr(ml_dtypes, name, name))
