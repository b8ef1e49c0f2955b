"""--compare: a result beside that of the reference, of unoptimised code, of XLA, or of a file.

The default budget of a float leaf is 16 ulp, or an error that is small beside the leaf's own size
(its root mean square): sums and products whose terms cancel have small elements with large relative
errors however well they are computed. Integers and predicates must be equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlo import driver
from hlo.errors import HloError
from hlo.ir.dtype import from_numpy
from hlo.ir.module import Module
from hlo.tools import arrays
from hlo.tools.compare import Budget, compare
from hlo.tools.jax_engine import run_in_child

ULP = 16.0
WIDE_ROUNDINGS = 64  # of f32 and f64: epsilons of the leaf's size
NARROW_ROUNDINGS = 8  # of types with fewer than 24 bits of significand


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether two results agree, and the report a person reads."""

    passed: bool
    text: str


def compared(
    module: Module,
    values: list[object],
    result: object,
    rival: str,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    ulp: float | None = None,
) -> Checked:
    """Compare `result` of module(*values) with the rival's; HloError where the rival cannot run."""
    expected = rival_leaves(module, values, rival)
    actual = list(arrays.leaves(result))
    if len(actual) != len(expected):
        raise HloError("comparison", f"{len(actual)} outputs, {rival} has {len(expected)}")
    passed, rows = True, []
    for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        report = compare(ours, theirs, budget_of(theirs, rtol, atol, ulp))
        passed &= report.passed
        rows.append(report.text.replace("output {}", f"output {{{i}}}"))
    head = f"{'equal to' if passed else 'different from'} {rival}"
    return Checked(passed, "\n".join([*rows, head]))


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
    raise HloError(
        "arguments",
        f"compare: {rival!r}, expected interpreter, unoptimized, jax or FILE.npz",
    )


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
