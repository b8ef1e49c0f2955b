"""Verdicts: whether two results are equal, different, or not to be told apart.

    module, arguments --runs whose every rounding is another one--> noise --two results--> verdicts

How far a program's rounding alone can move an element is measured: the program runs again with
inputs moved by their last bit, and where that does not explain what is apart, the reference does
with each inexact value moved by its last bit at random (Monte Carlo arithmetic; Parker 1997).
Results within a few ulps, or within a few times that noise, are *equal*, those beyond are
*different*. Where the noise is so large beside the values that any result would pass, it is
*undecided*.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from hlo import driver
from hlo.analysis.work import work_of
from hlo.errors import HloError
from hlo.ir.dtype import DTYPES, DType, from_numpy
from hlo.ir.instruction import Instruction
from hlo.ops.table import NOTHING, OPS
from hlo.tools.cases import arrays
from hlo.tools.cases.case import Case
from hlo.tools.comparison.ulp import ulp_distance

EQUAL, DIFFERENT, UNDECIDED = "equal", "different", "undecided"
RUNS = 4  # with other roundings
NOISE_FACTOR = 16.0  # of the largest movement of so few runs: sums in another order move further
ULP_WIDE, ULP_NARROW = 16.0, 4.0  # that functions and sums are off in any case
USELESS = 0.05  # of the size of a leaf: within so much noise, results say nothing
NOTHING_FINITE = "no value is finite"
BY_CHANCE = 0.25  # of an array's elements: few bits are enough for so many of any numbers
Noise = list[np.ndarray]  # of each leaf, the largest movement of each element, in f64
Run = Callable[..., object]


class LeafVerdict(Struct, frozen=True):
    """One array of the result. error: the largest that counts, at `index`; bound: what passes
    there, of which noise is the program's own; size: root mean square of what is expected.
    """

    number: int
    type: str
    verdict: str
    error: float
    bound: float
    noise: float
    size: float
    index: tuple[int, ...]
    actual: object
    expected: object
    reason: str

    @property
    def last_bit(self) -> float:
        """What a number near one is rounded by, 0 of integers."""
        dtype = DTYPES.get(self.type.partition("[")[0])
        form = None if dtype is None else dtype.component.float_format
        return 0.0 if form is None else 2.0**-form.mantissa

    def __str__(self) -> str:
        head = f"{self.verdict:<10} output {self.number}: {self.type}"
        if self.verdict == EQUAL:
            apart = (
                f"at most {self.error:.3g} apart" if self.error else "the same values or a few ulps"
            )
            return f"{head}  {apart}, of values about {self.size:.3g}"
        if self.reason == NOTHING_FINITE:
            return f"{head}  {self.reason}"
        where = "{" + ",".join(map(str, self.index)) + "}"
        values = f"{self.actual} and {self.expected} at {where}"
        own = f"the program's own noise {self.noise:.3g}"
        bound = f"{self.error:.3g} apart, bound {self.bound:.3g} ({own})"
        return f"{head}  {values}: {bound}" + (f"; {self.reason}" if self.reason else "")


class Verdicts(Struct, frozen=True):
    """The verdicts of all leaves; together different if one is, else undecided if one is."""

    leaves: tuple[LeafVerdict, ...]

    @property
    def verdict(self) -> str:
        found = {leaf.verdict for leaf in self.leaves}
        return next((v for v in (DIFFERENT, UNDECIDED) if v in found), EQUAL)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.leaves), self.verdict])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def judged_by_noise(case: Case, actual: object, expected: object, rerun: Run | None) -> Verdicts:
    """The verdict of two results of a program, whose noise is measured as far as it takes.

    rerun: runs the program on other arguments; None: the reference alone measures it.
    """
    quick = None if rerun is None else nudged_noise(rerun, case.values, actual)
    if quick is not None:
        found = judged(actual, expected, quick)
        if found.verdict != DIFFERENT:
            return found
    noise = noise_of(case)
    if noise is None:
        return judged(actual, expected, quick)
    if quick is not None:
        noise = [np.maximum(a, b) for a, b in zip(noise, quick, strict=True)]
    return judged(actual, expected, noise)


def judged(actual: object, expected: object, noise: Noise | None) -> Verdicts:
    """The verdict of each leaf of two results. noise: of the program; None: it cannot be measured.

    HloError `comparison` where structures or types differ.
    """
    left, right = list(arrays.leaves(actual)), list(arrays.leaves(expected))
    if len(left) != len(right):
        raise HloError("comparison", f"{len(left)} outputs, expected {len(right)}")
    found = []
    for number, (a, e) in enumerate(zip(left, right, strict=True)):
        if a.shape != e.shape or a.dtype != e.dtype:
            was = f"output {number} is {a.dtype}{list(a.shape)}"
            raise HloError("comparison", f"{was}, expected {e.dtype}{list(e.shape)}")
        with np.errstate(all="ignore"):
            found.append(_leaf(number, a, e, None if noise is None else noise[number]))
    return Verdicts(tuple(found))


def _leaf(
    number: int, actual: np.ndarray, expected: np.ndarray, noise: np.ndarray | None
) -> LeafVerdict:
    dtype = from_numpy(expected.dtype)
    name = f"{dtype.name if dtype else expected.dtype}[{','.join(map(str, expected.shape))}]"
    moved = np.zeros(expected.shape) if noise is None else noise
    if dtype is not None and (dtype.is_float or dtype.is_complex):
        distance = np.asarray(ulp_distance(actual, expected))
        error = np.where(distance == 0, 0.0, np.abs(wide(actual) - wide(expected)))
        error = np.where(np.isnan(error), np.inf, error)  # a NaN or an infinity on one side only
        few = _ulps(dtype) * _last_bit(expected, dtype)
        near = distance <= _ulps(dtype)
    else:
        error = np.where(actual == expected, 0.0, np.inf)
        near, few = error == 0, np.zeros(expected.shape)
        moved = np.where(moved > 0, np.inf, 0.0)  # where rounding decides it, it is not decided
    bound = few + NOISE_FACTOR * moved
    over = ~near & ~(error <= bound)
    finite, size = np.isfinite(wide(expected)), _size(expected)
    noisy = ~(moved * NOISE_FACTOR <= USELESS * size) & ~near
    verdict, reason, counts = EQUAL, "", ~near
    if over.any():
        verdict, counts = DIFFERENT, over
    elif noisy.any():
        verdict, counts = UNDECIDED, noisy
        reason = "the program amplifies its last bit beyond use"
    elif expected.size and not finite.any():
        verdict, reason = UNDECIDED, NOTHING_FINITE
    at = np.unravel_index(int(np.argmax(np.where(counts, error, -1.0))), expected.shape) if (
        expected.size) else ()  # fmt: skip
    index = tuple(int(i) for i in at)
    values = (actual[index], expected[index]) if expected.size else (None, None)
    at_most, limit, own = (float(x[index]) if expected.size else 0.0 for x in (error, bound, moved))
    return LeafVerdict(
        number, name, verdict, at_most, limit, own, size, index, values[0], values[1], reason
    )


def _ulps(dtype: DType) -> float:
    form = dtype.component.float_format
    return ULP_WIDE if form is not None and form.mantissa >= 23 else ULP_NARROW


def _last_bit(array: np.ndarray, dtype: DType) -> np.ndarray:
    """About the value of each element's last bit."""
    form = dtype.component.float_format
    assert form is not None, "a float type has a format"
    return np.asarray(np.abs(wide(array)) * 2.0**-form.mantissa)


def wide(array: np.ndarray) -> np.ndarray:
    """Numbers in f64 or c128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def few_ulps(array: np.ndarray) -> float:
    """How many ulps functions and sums are off in any case; 0 of integers."""
    dtype = from_numpy(array.dtype)
    return _ulps(dtype) if dtype is not None and (dtype.is_float or dtype.is_complex) else 0.0


def nudged_noise(run: Run, values: tuple[object, ...], result: object) -> Noise:
    """How far each element of a result moves when every float argument moves by its last bit."""
    first = list(arrays.leaves(result))
    found = [np.zeros(a.shape) for a in first]
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        moved = run(*(_nudged(value, rng) for value in values))
        for leaf, here, there in zip(found, first, arrays.leaves(moved), strict=True):
            np.maximum(leaf, _movement(here, there), out=leaf)
    return found


def _nudged(value: object, rng: np.random.Generator) -> object:
    if isinstance(value, tuple):
        return tuple(_nudged(v, rng) for v in value)
    if value is None:
        return None
    array = np.asarray(value)
    dtype = from_numpy(array.dtype)
    if dtype is None or dtype.component.float_format is None:
        return array
    unit = 2.0**-dtype.component.float_format.mantissa
    with np.errstate(all="ignore"):
        factor = 1 + unit * rng.choice(np.array([-1.0, 0.0, 1.0]), array.shape)
        return (wide(array) * factor).astype(array.dtype)


def _movement(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """How far each element is from where it was, infinitely where one of both is a NaN."""
    with np.errstate(all="ignore"):
        apart = np.abs(wide(here) - wide(there))
    apart = np.where(here == there, 0.0, apart)
    both = np.isnan(wide(here)) & np.isnan(wide(there))
    return np.where(both, 0.0, np.nan_to_num(apart, nan=np.inf))


def noise_of(case: Case, *, runs: int = RUNS, timeout: float | None = None) -> Noise | None:
    """How far each element of the result moves when the roundings do; None where the reference
    cannot run the module.
    """
    try:
        first = list(arrays.leaves(driver.evaluate(case.module, *case.values, timeout=timeout)))
    except HloError:
        return None
    found = [np.zeros(a.shape) for a in first]
    for seed in range(runs):
        moved = driver.evaluate(case.module, *case.values, timeout=timeout, watch=_Roundings(seed))
        for leaf, here, there in zip(found, first, arrays.leaves(moved), strict=True):
            np.maximum(leaf, _movement(here, there), out=leaf)
    return found


class _Roundings:
    """Moves what an instruction rounded by its last bit, up or down."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, instruction: Instruction, value: object) -> object:
        if isinstance(value, tuple) and is_sum(instruction):
            return tuple(self._moved(instruction, v) for v in value)
        return self._moved(instruction, value) if is_inexact(instruction) else value

    def _moved(self, instruction: Instruction, value: object) -> object:
        if not isinstance(value, np.ndarray):
            return value
        dtype = from_numpy(value.dtype)
        form = None if dtype is None else dtype.component.float_format
        if form is None or form.mantissa < 2:
            return value
        unit = 2.0**-form.mantissa
        with np.errstate(all="ignore"):
            step = self._signs(value.shape)
            moved = wide(value) * (1 + unit * step)
            if is_sum(instruction):
                off = unit * _size(value) * _growth(instruction)
                moved = moved + off * self._signs(value.shape)
            moved = moved.astype(value.dtype)
            short = _is_short(value, form.mantissa)
        return np.where(short, value, moved)

    def _signs(self, dims: tuple[int, ...]) -> np.ndarray:
        return 2 * self._rng.integers(0, 2, dims) - 1


def _size(array: np.ndarray) -> float:
    """The root mean square of the finite elements."""
    magnitude = np.abs(wide(array))
    finite = magnitude[np.isfinite(magnitude)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def _growth(instruction: Instruction) -> float:
    """How many last bits of a sum its roundings come to, which go up and down at random: a quarter
    of the square root of its terms.
    """
    elements = sum(s.size for s in instruction.shape.leaves() if s.is_array)
    terms = work_of(instruction).flops / max(1, elements)
    return max(1.0, 0.25 * math.sqrt(terms))


def is_sum(instruction: Instruction) -> bool:
    """Whether elements are sums of terms of either sign. Where these cancel, a sum is off by the
    last bit of its partial sums, which are about as large as its neighbours.
    """
    match instruction.opcode:
        case "reduce" | "reduce-window" | "scatter" | "select-and-scatter" | "scan" | "all-reduce":
            callees = instruction.called_computations()
            return any(i.opcode == "add" for c in callees for i in c.instructions)
        case "dot" | "ragged-dot" | "scaled-dot" | "convolution" | "fft" | "triangular-solve":
            return True
        case "batch-norm-training" | "batch-norm-inference" | "batch-norm-grad":
            return True
    return False


def _is_short(value: np.ndarray, mantissa: int) -> np.ndarray:
    """Elements that need less than half of the bits: counts, masks and steps are exact. Where few
    of the elements do, it is by chance, and only zeros are.
    """
    scaled = np.frexp(np.abs(wide(value)))[0] * 2.0 ** (mantissa // 2)
    short = np.asarray(scaled == np.floor(scaled))
    return short if np.count_nonzero(short) > BY_CHANCE * short.size else np.asarray(value == 0)


def is_inexact(instruction: Instruction) -> bool:
    """Whether an instruction may round: it computes, and does not only move. What chooses among
    rounded values is taken to round as well, which makes noise a little larger.
    """
    row = OPS[instruction.opcode]
    return row.cost is not NOTHING and bool(instruction.operands)
