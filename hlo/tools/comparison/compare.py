"""Comparison of two results: what differs, how much, where; in ulps of the result's own type.

    compare(actual, expected, Budget(ulp=4)) -> Report: .passed, .text, one ArrayReport per leaf

An element passes when it is within the ulps, or within atol + rtol |expected|. NaN equals NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from hlo.errors import HloError
from hlo.ir.dtype import from_numpy

WORST = 5  # elements listed
BUCKETS = ((0, "0"), (1, "1"), (2, "2"), (4, "3-4"), (16, "5-16"), (math.inf, ">16"))


class Budget(Struct, frozen=True):
    """How far floats may be apart; integers and predicates must be equal."""

    ulp: float = 0.0
    rtol: float = 0.0
    atol: float = 0.0

    def __str__(self) -> str:
        parts = [f"{self.ulp:g} ulp"]
        parts += [f"{n}={v:g}" for n, v in (("rtol", self.rtol), ("atol", self.atol)) if v]
        return " or ".join(parts)


EXACT = Budget()


class Tolerance(Struct, frozen=True):
    """What passes as equal, as a user says it; nothing given: see hlo/tools/comparison/check.py."""

    rtol: float | None = None
    atol: float | None = None
    ulp: float | None = None

    @property
    def budget(self) -> Budget | None:
        """The same as a budget of each leaf, where anything is given."""
        if (self.rtol, self.atol, self.ulp) == (None, None, None):
            return None
        return Budget(ulp=self.ulp or 0.0, rtol=self.rtol or 0.0, atol=self.atol or 0.0)

    def __str__(self) -> str:
        given = {"rtol": self.rtol, "atol": self.atol, "ulp": self.ulp}
        return ",".join(f"{k}={v:g}" for k, v in given.items() if v is not None)


DEFAULT = Tolerance()


class Element(Struct, frozen=True):
    """One element that differs."""

    index: tuple[int, ...]
    actual: object
    expected: object
    ulp: float
    absolute: float
    relative: float


class ArrayReport(Struct, frozen=True):
    """One array of the result."""

    path: tuple[int, ...]
    type: str
    size: int
    over: int
    worst: tuple[Element, ...]
    largest_ulp: float
    farthest: float  # the largest absolute error, and the largest finite value expected
    magnitude: float
    largest_absolute: float  # among the elements over budget, as the next
    largest_relative: float
    histogram: tuple[tuple[str, float], ...]  # share of elements by ulp
    bias: float  # mean signed error in ulps of the elements that are finite on both sides
    nans: tuple[int, int]  # actual, expected
    infinities: tuple[int, int]
    zero_signs: int
    structure: str

    @property
    def passed(self) -> bool:
        return self.over == 0


class Report(Struct, frozen=True):
    """All arrays of a result, and the text that a person reads."""

    arrays: tuple[ArrayReport, ...]
    budget: Budget

    @property
    def passed(self) -> bool:
        return all(a.passed for a in self.arrays)

    @property
    def largest_ulp(self) -> float:
        return max((a.largest_ulp for a in self.arrays), default=0.0)

    @property
    def text(self) -> str:
        rows = [row for array in self.arrays for row in _rows(array, self.budget)]
        return "\n".join(rows or ["PASS (no arrays)"])


def compare(actual: object, expected: object, budget: Budget = EXACT) -> Report:
    """Compares values of one structure; HloError `comparison` when structures or types differ."""
    pairs = list(_leaves(actual, expected, ()))
    with np.errstate(all="ignore"):
        return Report(tuple(_array_report(*pair, budget) for pair in pairs), budget)


def _leaves(
    actual: object, expected: object, path: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], np.ndarray, np.ndarray]]:
    where = f"output {_braces(path)}"
    if isinstance(expected, tuple | list):
        if not isinstance(actual, tuple | list) or len(actual) != len(expected):
            found = type(actual).__name__
            raise HloError("comparison", f"{where} is a {found}, expected a {len(expected)}-tuple")
        for i, pair in enumerate(zip(actual, expected, strict=True)):
            yield from _leaves(*pair, (*path, i))
    elif expected is not None:
        left, right = np.asarray(actual), np.asarray(expected)
        if left.dtype != right.dtype or left.shape != right.shape:
            raise HloError("comparison", f"{where} is {_type(left)}, expected {_type(right)}")
        yield path, left, right


def _array_report(
    path: tuple[int, ...], actual: np.ndarray, expected: np.ndarray, budget: Budget
) -> ArrayReport:
    distance = _distance(actual, expected)
    absolute, relative = _errors(actual, expected)
    size = _size(expected)
    over = (distance > budget.ulp) & ~(absolute <= budget.atol + budget.rtol * size)
    count = int(np.count_nonzero(over))
    ranked = np.argsort(np.where(over, distance, -1.0), axis=None)[::-1][: min(WORST, count)]
    worst = tuple(
        Element(
            tuple(int(i) for i in np.unravel_index(flat, actual.shape)),
            actual.flat[flat],
            expected.flat[flat],
            float(distance.flat[flat]),
            float(absolute.flat[flat]),
            float(relative.flat[flat]),
        )
        for flat in ranked
    )
    return ArrayReport(
        path,
        _type(actual),
        actual.size,
        count,
        worst,
        float(np.max(distance, initial=0.0)),
        float(np.max(absolute, where=np.isfinite(absolute), initial=0.0)),
        float(np.max(size, where=np.isfinite(size), initial=0.0)),
        float(np.max(absolute, where=over, initial=0.0)),
        float(np.max(relative, where=over, initial=0.0)),
        _histogram(distance),
        _bias(actual, expected, distance),
        (_count(np.isnan, actual), _count(np.isnan, expected)),
        (_count(np.isinf, actual), _count(np.isinf, expected)),
        _zero_signs(actual, expected),
        _structure(over),
    )


def _is_inexact(array: np.ndarray) -> bool:
    dtype = from_numpy(array.dtype)
    return dtype is not None and (dtype.is_float or dtype.is_complex)


def _distance(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Ulps; for integers and predicates 0 or infinity."""
    from hlo.tools.comparison.ulp import ulp_distance  # where something is compared

    if _is_inexact(actual):
        return np.asarray(ulp_distance(actual, expected))
    return np.where(actual == expected, 0.0, np.inf)


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)


def _size(expected: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(_wide(expected)))


def _errors(actual: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Absolute and relative errors as f64."""
    absolute = np.abs(_wide(actual) - _wide(expected))
    absolute = np.where(actual == expected, 0.0, absolute)
    return absolute, np.where(absolute == 0, 0.0, absolute / _size(expected))


def _histogram(distance: np.ndarray) -> tuple[tuple[str, float], ...]:
    if not distance.size:
        return ()
    shares, below = [], 0.0
    for limit, name in BUCKETS:
        share = float(np.count_nonzero(distance <= limit)) / distance.size
        shares.append((name, share - below))
        below = share
    return tuple(shares)


def _bias(actual: np.ndarray, expected: np.ndarray, distance: np.ndarray) -> float:
    if not _is_inexact(actual) or np.iscomplexobj(actual):
        return 0.0
    sign = np.sign(_wide(actual) - _wide(expected))
    usable = np.isfinite(distance) & np.isfinite(sign)
    return float(np.mean((sign * distance)[usable])) if usable.any() else 0.0


def _count(predicate: np.ufunc, array: np.ndarray) -> int:
    return int(np.count_nonzero(predicate(_wide(array)))) if _is_inexact(array) else 0


def _zero_signs(actual: np.ndarray, expected: np.ndarray) -> int:
    if not _is_inexact(actual) or np.iscomplexobj(actual):
        return 0
    left, right = _wide(actual), _wide(expected)
    return int(
        np.count_nonzero((left == 0) & (right == 0) & (np.signbit(left) != np.signbit(right)))
    )


def _structure(over: np.ndarray) -> str:
    """Which dimension's positions hold the failures, where a few of them hold all."""
    total = np.count_nonzero(over)
    if total < 2 or over.ndim < 1:
        return ""
    best = ""
    fewest = 0.25
    for d, n in enumerate(over.shape):
        counts = np.count_nonzero(over, axis=tuple(i for i in range(over.ndim) if i != d))
        hit = np.flatnonzero(counts)
        if n > 1 and hit.size / n <= fewest:
            fewest = hit.size / n
            shown = ", ".join(f"{p}: {counts[p]} of {over.size // n}" for p in hit[:3])
            best = f"dimension {d}, {hit.size} of {n} positions ({shown})"
    return best


def _rows(array: ArrayReport, budget: Budget) -> Iterator[str]:
    name = f"output {_braces(array.path)}: {array.type}"
    if array.passed:
        apart = f"{array.largest_ulp:g} ulp apart"
        if array.largest_ulp > budget.ulp:  # near 0, where ulps say little
            apart = f"{array.farthest:.3g} apart, of values up to {array.magnitude:.3g}"
        yield f"PASS {name}  {array.size} elements, at most {apart}"
        return
    share = 100 * array.over / array.size
    yield f"FAIL {name}  {array.over} of {array.size} elements over budget ({share:.3g} %)"
    yield f"  budget          {budget}"
    yield "  worst  index            actual           expected         ulp        abs        rel"
    for rank, element in enumerate(array.worst, start=1):
        index = _braces(element.index)
        numbers = f"{element.ulp:<10.4g} {element.absolute:<10.3g} {element.relative:.3g}"
        yield f"  {rank:<6} {index:<16} {element.actual!s:<16} {element.expected!s:<16} {numbers}"
    shares = "   ".join(f"{name}: {100 * part:.1f} %" for name, part in array.histogram)
    yield f"  ulp histogram   {shares}"
    if abs(array.bias) > 0.1:
        yield f"  bias            mean signed error {array.bias:+.2f} ulp"
    if array.structure:
        yield f"  where           {array.structure}"
    yield (
        f"  NaN {array.nans[0]} (expected {array.nans[1]})   "
        f"inf {array.infinities[0]} (expected {array.infinities[1]})   "
        f"other sign of zero {array.zero_signs}"
    )
    yield from _would_pass(array)


def _would_pass(array: ArrayReport) -> Iterator[str]:
    """The single tolerance of each kind that would have let everything through."""
    found = []
    if math.isfinite(array.largest_ulp):
        found.append(f"{math.ceil(array.largest_ulp)} ulp")
    if math.isfinite(array.largest_relative):
        found.append(f"--rtol={_upwards(array.largest_relative)}")
    if math.isfinite(array.largest_absolute):
        found.append(f"--atol={_upwards(array.largest_absolute)}")
    if found:
        yield f"  would pass with {'  or  '.join(found)}"


def _upwards(tolerance: float) -> str:
    """The tolerance in two digits, not below it."""
    text = f"{tolerance:.2g}"
    return text if float(text) >= tolerance else f"{tolerance * 1.05:.2g}"


def _type(array: np.ndarray) -> str:
    dtype = from_numpy(array.dtype)
    return f"{dtype.name if dtype else array.dtype}[{','.join(map(str, array.shape))}]"


def _braces(numbers: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"
