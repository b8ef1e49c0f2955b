"""Errors of the float functions against better values: every f32, and climbing searches in f64.

    python -m tests.support.accuracy f32 host [FUNCTION ...]  all 2^32 numbers, minutes a function
    python -m tests.support.accuracy f64 host [FUNCTION ...]  random, at hard places, climbing
    python -m tests.support.accuracy pairs host [FUNCTION ...]  the same of two operands, both types

The second word is the form of the code: host, avx2 (short tables in registers, integer forms of
exponents), or sse (no tables, no fused products).
f32 is measured against f64 (NumPy's and SciPy's, whose own error is 2^-28 of an ulp), f64 against
the C library's long double (2^-10 of an ulp on x86), the error function's series in it. An error is
|got - true| in units of the true value's last place; a wrong sign, infinity or NaN is infinite.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from hlo.backend.emitters.table import EMITTERS
from hlo.backend.isa.target import Target
from hlo.backend.linking.toolchain import host_target
from hlo.backend.math.term import Term
from hlo.machine import NAMED
from hlo.ops.numerics import reals
from tests.support.lanes_jit import lanes_function

Function = Callable[..., np.ndarray]
CHUNK = 1 << 18
LANES = {"float": 16, "double": 8}
WIDE = {"float": np.float64, "double": np.longdouble}
LIMITS = {"float": 1.0, "double": 2.0}  # of every function, in ulp


def sse_target() -> Target:
    """This machine as one without AVX2, as far as emitters know."""
    return Target(NAMED["x86-64-v2"])


def avx2_target() -> Target:
    """This machine as one without AVX-512, as far as emitters know."""
    return Target(NAMED["x86-64-v3"])


FORMS = {"host": host_target, "avx2": avx2_target, "sse": sse_target}


def logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reciprocal_root(x: np.ndarray) -> np.ndarray:
    return 1 / np.sqrt(x)


def erf(x: np.ndarray) -> np.ndarray:
    if x.dtype == np.float64:
        from scipy.special import erf as of_doubles  # a test extra

        return of_doubles(x)
    return reals.erf(x)


UNARY: dict[str, Function] = {
    "exponential": np.exp, "exponential-minus-one": np.expm1, "log": np.log,
    "log-plus-one": np.log1p, "logistic": logistic, "tanh": np.tanh, "sine": np.sin,
    "cosine": np.cos, "tan": np.tan, "sqrt": np.sqrt, "rsqrt": reciprocal_root, "cbrt": np.cbrt,
    "erf": erf, "asin": np.arcsin, "acos": np.arccos, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip


BINARY: dict[str, Function] = {"power": np.power, "atan2": np.arctan2, "remainder": np.fmod}


class Worst(NamedTuple):
    """The largest error in ulp and the operand that has it."""

    error: float
    x: float

    def __str__(self) -> str:
        return f"{self.error:.4f} at {self.x!r}"


@lru_cache(maxsize=256)
def compiled(opcode: str, scalar: str, form: str, lanes: int = 0) -> Function:
    """The emitted function of arrays."""

    def body(w, t, values):
        return [EMITTERS[opcode].real(*(Term(w, t, v) for v in values)).value]

    lanes = lanes or LANES[scalar]
    arity = 1 + (opcode in BINARY)
    run = lanes_function(body, [scalar] * arity, [scalar], lanes=lanes, target=FORMS[form]())
    return lambda *x: run(*x)[0]


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors against wider true values."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        unit = np.spacing(np.abs(rounded)).astype(want.dtype)
        error = np.abs(got.astype(want.dtype) - want) / unit
    numbers = np.isfinite(rounded) & np.isfinite(got)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    flipped = (np.signbit(got) != np.signbit(want)) & ~np.isnan(want)
    error = np.where(numbers, error, np.where(same, 0, np.inf))
    return np.where(flipped, np.inf, error).astype(np.float64)


def errors_of(opcode: str, scalar: str, form: str, x: np.ndarray) -> np.ndarray:
    """The error at each operand."""
    got = compiled(opcode, scalar, form)(x)
    with np.errstate(all="ignore"):
        return ulps(got, UNARY[opcode](x.astype(WIDE[scalar])))


def worst_of(opcode: str, scalar: str, form: str, x: np.ndarray) -> Worst:
    """The largest error among these operands."""
    error = errors_of(opcode, scalar, form, x)
    place = int(np.argmax(error))
    return Worst(float(error[place]), float(x[place]))


def every_f32(stride: int) -> Iterator[np.ndarray]:
    """The codes of f32 in chunks: all, or every n-th."""
    for first in range(0, 1 << 32, CHUNK * stride):
        codes = np.arange(first, min(first + CHUNK * stride, 1 << 32), stride, dtype=np.uint64)
        yield codes.astype(np.uint32).view(np.float32)


def sweep_f32(opcode: str, form: str, stride: int = 1) -> Worst:
    """The worst of all f32 operands, by two threads."""
    compiled(opcode, "float", form)
    worst, waiting = Worst(-1.0, 0.0), []
    with ThreadPoolExecutor(2) as pool:
        for x in every_f32(stride):
            waiting.append(pool.submit(worst_of, opcode, "float", form, x))
            if len(waiting) == 8:  # few at a time, so that memory stays small
                worst, waiting = max(worst, *(w.result() for w in waiting)), []
        return max([worst, *(w.result() for w in waiting)])


# Where formulas change over or cancel: operands are drawn from these intervals, ...
HARD: dict[str, tuple[tuple[float, float], ...]] = {
    "exponential": ((-1, 1), (-745.2, -708), (-745.2, 709.8)),
    "exponential-minus-one": ((-1, 1), (-40, 2), (-40, 709.8)),
    "log": ((0.5, 2), (0.7, 1.6), (0.99, 1.01), (0, 1e3)),
    "log-plus-one": ((-1, 1), (-0.3, 0.6), (-1, 1e3)),
    "logistic": ((-1, 1), (-8, 8), (-745, 40)),
    "tanh": ((-1, 1), (0, 0.5), (-23, 23)),
    "sine": ((-7, 7), (-1e3, 1e3), (-2e6, 2e6)),
    "cosine": ((-7, 7), (-1e3, 1e3), (-2e6, 2e6)),
    "tan": ((-7, 7), (-1e3, 1e3), (-2e6, 2e6)),
    "erf": ((-1.2, 1.2), (-6.5, 6.5)),
    "asin": ((-1, 1), (0.45, 0.55)),
    "acos": ((-1, 1), (0.45, 0.55), (0.99, 1), (-1, -0.99)),
    "sinh": ((-1, 1), (-30, 30), (-711, 711)),
    "cosh": ((-1, 1), (-30, 30), (-711, 711)),
    "asinh": ((-1, 1), (-30, 30)),
    "acosh": ((1, 1.01), (1, 1.5), (1, 40)),
    "atanh": ((-1, 1), (0.4, 0.6), (0.99, 1)),
}
# ... and close to these points.
POINTS = (
    0.0, 0.5, 1.0, -1.0, -0.5, 2.0, 2.0**20, 2.0**28, 2.0**-28, 2.0**31, 22.0, 0.34657359, -37.5,
    709.78, -708.4, 1.5707963267948966, 3.141592653589793, 0.9, 1.05, 0.41421356,
)  # fmt: skip


def drawn_f64(opcode: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random operands: of all codes, of the hard intervals, and close to the points."""
    parts = [rng.integers(0, 1 << 64, count, dtype=np.uint64).view(np.float64)]
    parts += [rng.uniform(*ends, count) for ends in HARD.get(opcode, ((-4, 4), (0.5, 2)))]
    near = rng.choice(np.array(POINTS), count)
    apart = rng.choice([-1, 1], count) * 2.0 ** rng.uniform(-52, -1, count)
    return np.concatenate([*parts, near + (near + 1) * apart])


def search_f64(opcode: str, form: str, count: int, rounds: int, seed: int = 0) -> Worst:
    """Random operands, then round by round new ones around the worst, closer and closer."""
    rng = np.random.default_rng(seed)
    x = drawn_f64(opcode, count, rng)
    error = errors_of(opcode, "double", form, x)
    for k in range(rounds):
        best = np.argsort(error)[-64:]
        x, error = x[best], error[best]
        around = np.repeat(x, max(1, count // 64))
        relative = rng.standard_normal(around.size) * 2.0 ** rng.uniform(-52, -4 - k, around.size)
        with np.errstate(all="ignore"):
            around = around + around * relative
        x = np.concatenate([x, around])
        error = np.concatenate([error, errors_of(opcode, "double", form, around)])
    place = int(np.argmax(error))
    return Worst(float(error[place]), float(x[place]))


class WorstPair(NamedTuple):
    """The largest error in ulp and the operands that have it."""

    error: float
    x: float
    y: float

    def __str__(self) -> str:
        return f"{self.error:.4f} at {self.x!r}, {self.y!r}"


def pair_errors(opcode: str, scalar: str, form: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The error at each pair of operands."""
    got = compiled(opcode, scalar, form)(x, y)
    wide = WIDE[scalar]
    with np.errstate(all="ignore"):
        return ulps(got, BINARY[opcode](x.astype(wide), y.astype(wide)))


def drawn_pairs(
    opcode: str, scalar: str, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Of all codes; numbers of one size and of all sizes; powers that neither vanish nor overflow;
    small whole numbers, and points.
    """
    number = {"float": np.float32, "double": np.float64}[scalar]
    largest = float(np.log2(np.finfo(number).max))
    codes = rng.integers(0, 1 << 64, (2, count), dtype=np.uint64).view(number)[:, :count]
    sizes = 2.0 ** rng.uniform(-largest, largest, (2, count)) * rng.choice([-1, 1], (2, count))
    near = rng.uniform(-4, 4, (2, count))
    slopes = np.stack([near[0] * (1 + rng.standard_normal(count) / 8), near[0]])
    base = np.where(rng.random(count) < 0.5, rng.uniform(0.4, 2.5, count), np.abs(sizes[0]))
    powers = rng.uniform(-1.1, 1.1, count) * largest / np.maximum(np.abs(np.log2(base)), 1e-7)
    raised = np.stack([base, powers])
    whole = np.rint(rng.uniform(-99, 99, (2, count)))
    points = rng.choice(np.array([*POINTS, np.inf, -np.inf, np.nan, -0.0, 3.0]), (2, count))
    with np.errstate(all="ignore"):
        parts = [a.astype(number) for a in (codes, sizes, near, slopes, raised, whole, points)]
    x, y = np.concatenate(parts, axis=1)
    return x, y


def search_pairs(
    opcode: str, scalar: str, form: str, count: int, rounds: int, seed: int = 0
) -> WorstPair:
    """Random pairs, then round by round new ones around the worst, closer and closer."""
    rng = np.random.default_rng(seed)
    x, y = drawn_pairs(opcode, scalar, count, rng)
    error = pair_errors(opcode, scalar, form, x, y)
    digits = np.finfo(x.dtype).nmant
    for k in range(rounds):
        best = np.argsort(error)[-64:]
        x, y, error = x[best], y[best], error[best]
        around = [np.repeat(a, max(1, count // 64)) for a in (x, y)]
        for n, a in enumerate(around):
            scale = 2.0 ** rng.uniform(-digits, -min(4 + k, digits - 1), a.size)
            moves = rng.standard_normal(a.size) * scale * (rng.random(a.size) < 0.75)
            with np.errstate(all="ignore"):
                around[n] = (a + a * moves).astype(a.dtype)
        x, y = np.concatenate([x, around[0]]), np.concatenate([y, around[1]])
        error = np.concatenate([error, pair_errors(opcode, scalar, form, *around)])
    place = int(np.argmax(error))
    return WorstPair(float(error[place]), float(x[place]), float(y[place]))


def main(kind: str, form: str, *opcodes: str) -> None:
    if kind == "pairs":
        for opcode, scalar in product(opcodes or BINARY, LIMITS):
            found = max(search_pairs(opcode, scalar, form, 1 << 17, 12, seed) for seed in range(8))
            print(f"{scalar:7}{opcode:24}{form:6}{found}", flush=True)  # noqa: T201  # as below
        return
    for opcode in opcodes or UNARY:
        if kind == "f32":
            worst = sweep_f32(opcode, form)
        else:
            worst = max(search_f64(opcode, form, 1 << 18, 12, seed) for seed in range(8))
        print(f"{kind} {opcode:24}{form:6}{worst}", flush=True)  # noqa: T201  # the command's result


if __name__ == "__main__":
    main(*sys.argv[1:])
