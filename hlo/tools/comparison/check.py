"""--compare: a result beside that of the reference, of unoptimised code, of XLA, or of a file.

What searches for faults runs many programs and asks a budget instead of a verdict: of a float leaf
16 ulp, or an error that is small beside the leaf's own size (its root mean square: where terms
cancel, small elements have large relative errors however well they are computed). Integers and
predicates must be equal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from hlo import driver
from hlo.choices import RIVALS
from hlo.errors import HloError
from hlo.ir.dtype import from_numpy
from hlo.ir.module import Module
from hlo.tools.cases import arrays
from hlo.tools.cases.case import Case
from hlo.tools.comparison.compare import DEFAULT, Budget, Report, Tolerance, compare
from hlo.tools.comparison.verdicts import DIFFERENT, EQUAL, UNDECIDED, few_ulps, judged_by_noise
from hlo.tools.comparison.widening import exact_leaves, rounded
from hlo.tools.jax.jax_engine import run_in_child

ULP = 16.0
WIDE_ROUNDINGS = 64  # of f32 and f64: epsilons of the leaf's size
NARROW_ROUNDINGS = 8  # of types with fewer than 24 bits of significand

Run = Callable[..., object]
# Ways to have a result of a module: the reference, code of the module as it is, fast code, the
# reference in f64, XLA.


class Checked(Struct, frozen=True):
    """Whether two results agree (hlo/tools/comparison/verdicts.py), and a report for people."""

    verdict: str
    text: str

    @property
    def passed(self) -> bool:
        return self.verdict == EQUAL


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
    tolerance: Tolerance = DEFAULT,
) -> Checked:
    """Compare `result` of module(*values) with the rival's; HloError where the rival cannot run.

    Without a tolerance the program's own noise says what is equal; what differs is shown element by
    element. rerun: runs the program again, to see how far its results move with its inputs.
    """
    theirs, ours = _expected(module, values, rival), list(arrays.leaves(result))
    if len(ours) != len(theirs):
        raise HloError("comparison", f"{len(ours)} outputs, {rival} has {len(theirs)}")
    given = tolerance.budget
    if given is not None:
        reports = [compare(a, b, given) for a, b in zip(ours, theirs, strict=True)]
        rows = [_numbered(report, i) for i, report in enumerate(reports)]
        return _checked(EQUAL if all(r.passed for r in reports) else DIFFERENT, rows, rival)
    verdicts = judged_by_noise(Case(module, tuple(values)), ours, theirs, rerun)
    rows = []
    for leaf, a, b in zip(verdicts.leaves, ours, theirs, strict=True):
        rows.append(str(leaf))
        if leaf.verdict == DIFFERENT:
            budget = Budget(ulp=few_ulps(b), atol=leaf.bound)
            rows += _numbered(compare(a, b, budget), leaf.number).split("\n")[1:]
    return _checked(verdicts.verdict, rows, rival)


def _numbered(report: Report, number: int) -> str:
    return report.text.replace("output {}", f"output {{{number}}}")


def _checked(verdict: str, rows: list[str], rival: str | Recorded) -> Checked:
    words = {EQUAL: "equal to", DIFFERENT: "different from", UNDECIDED: "undecided beside"}
    return Checked(verdict, "\n".join([*rows, f"{words[verdict]} {rival}"]))


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


def budget_of(expected: np.ndarray, tolerance: Tolerance = DEFAULT) -> Budget:
    """The budget of one leaf: as given, else the default described above."""
    if tolerance.budget is not None:
        return tolerance.budget
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
