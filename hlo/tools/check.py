"""--compare: a result beside that of the reference, of unoptimised code, of XLA, or of a file.

The default budget of a float leaf is 16 ulp, or an error that is small beside the leaf's own size
(its root mean square: where terms cancel, small elements have large relative errors however well
they are computed), or beside the program's condition: how far the leaf moves when every input moves
by its last bit. Integers and predicates must be equal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo import driver
from hlo.choices import RIVALS
from hlo.errors import HloError
from hlo.ir.dtype import from_numpy
from hlo.ir.module import Module
from hlo.tools import arrays
from hlo.tools.cases import Case
from hlo.tools.compare import Budget, compare
from hlo.tools.jax_engine import run_in_child
from hlo.tools.widening import exact_leaves, rounded

ULP = 16.0
WIDE_ROUNDINGS = 64  # of f32 and f64: epsilons of the leaf's size
NARROW_ROUNDINGS = 8  # of types with fewer than 24 bits of significand
NUDGES = 2  # runs with inputs off by their last bit
NUDGE_FACTOR = 8.0  # a program rounds at every step, not only at its inputs

Run = Callable[..., object]
# Ways to have a result of a module: the reference, code of the module as it is, fast code, the
# reference in f64, XLA.


class Checked(Struct, frozen=True):
    """Whether two results agree, and the report a person reads."""

    passed: bool
    text: str


class Recorded(Struct, frozen=True):
    """A rival that has run already: the result that a snapshot holds."""

    result: object

    def __str__(self) -> str:
        return "what is recorded"


def compared(
    module: Module,
    values: list[object],
    result: object,
    rival: str | Recorded,
    *,
    rerun: Run | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    ulp: float | None = None,
) -> Checked:
    """Compare `result` of module(*values) with the rival's; HloError where the rival cannot run.

    rerun: runs the program again, to see how far its results move with the last bit of its inputs.
    """
    expected = _expected(module, values, rival)
    actual = list(arrays.leaves(result))
    if len(actual) != len(expected):
        raise HloError("comparison", f"{len(actual)} outputs, {rival} has {len(expected)}")
    given = (rtol, atol, ulp) != (None, None, None)
    moved = movements(rerun, values, actual) if rerun and not given else [0.0] * len(actual)
    passed, rows = True, []
    for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        budget = budget_of(theirs, rtol, atol, ulp)
        if moved[i]:
            budget = replace(budget, atol=budget.atol + NUDGE_FACTOR * moved[i])
        report = compare(ours, theirs, budget)
        passed &= report.passed
        rows.append(report.text.replace("output {}", f"output {{{i}}}"))
    head = f"{'equal to' if passed else 'different from'} {rival}"
    return Checked(passed, "\n".join([*rows, head]))


def _expected(module: Module, values: list[object], rival: str | Recorded) -> list[np.ndarray]:
    if isinstance(rival, Recorded):
        return list(arrays.leaves(rival.result))
    return rival_leaves(module, values, rival)


def rival_leaves(module: Module, values: list[object], rival: str) -> list[np.ndarray]:
    """The rival's result, tuples flattened."""
    if rival == "interpreter":
        return list(arrays.leaves(driver.evaluate(module, *values)))
    if rival == "unoptimized":
        return list(arrays.leaves(driver.compile(module, passes="")(*values)))
    if rival == "jax":
        return run_in_child(driver.to_text(module), list(arrays.leaves(tuple(values))))
    if rival.endswith(".npz"):
        return list(arrays.load_npz(rival).values())
    if rival == "fast":
        return list(arrays.leaves(driver.compile(module, mode="fast", cache=False)(*values)))
    if rival == "f64":
        shapes = [s for s in module.entry.root.shape.leaves() if s.is_array]
        return list(rounded(exact_leaves(Case(module, tuple(values))), shapes))
    raise HloError("arguments", f"compare: {rival!r}, expected {', '.join(RIVALS)} or FILE.npz")


def movements(rerun: Run, values: list[object], result: list[np.ndarray]) -> list[float]:
    """How far each leaf moves, at most, when every float input moves by its last bit."""
    worst = [0.0] * len(result)
    for seed in range(NUDGES):
        rng = np.random.default_rng(seed)
        nudged = arrays.leaves(rerun(*[_nudged(v, rng) for v in values]))
        for i, (here, there) in enumerate(zip(result, nudged, strict=True)):
            if here.dtype.kind in "biu" or not here.size:
                continue
            with np.errstate(all="ignore"):
                distance = np.abs(_wide(here) - _wide(there))
            finite = distance[np.isfinite(distance)]
            worst[i] = max(worst[i], float(finite.max(initial=0.0)))
    return worst


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


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
        return (_wide(array) * factor).astype(array.dtype)


def budget_of(
    expected: np.ndarray, rtol: float | None, atol: float | None, ulp: float | None = None
) -> Budget:
    """The budget of one leaf: as given, else the default described above."""
    if rtol is not None or atol is not None or ulp is not None:
        return Budget(ulp=ulp or 0.0, rtol=rtol or 0.0, atol=atol or 0.0)
    dtype = from_numpy(expected.dtype)
    if dtype is None or not (dtype.is_float or dtype.is_complex):
        return Budget()
    format = dtype.component.float_format
    assert format is not None, "a float type has a format"
    wide = format.mantissa >= 23
    magnitude = np.abs(expected).astype(np.float64)
    finite = magnitude[np.isfinite(magnitude)]
    with np.errstate(over="ignore"):
        size = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    roundings = WIDE_ROUNDINGS if wide else NARROW_ROUNDINGS
    return Budget(ulp=ULP if wide else 4.0, atol=roundings * 2.0 ** -(format.mantissa + 1) * size)
