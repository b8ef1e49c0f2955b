"""Comparing in Python what the commands compare: two modules, or two ways to run one."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo import driver
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.tools.cases import arrays
from hlo.tools.cases.case import Case
from hlo.tools.comparison import check
from hlo.tools.comparison.verdicts import (
    DIFFERENT,
    EQUAL,
    NOISE_FACTOR,
    UNDECIDED,
    LeafVerdict,
    Verdicts,
    judged_by_noise,
    noise_of,
)
from hlo.tools.comparison.verdicts import wide as wide_numbers
from hlo.tools.comparison.widening import exact_leaves, widened
from hlo.tools.faults.compiled_nans import compiled_nans
from hlo.tools.faults.nans import Finding


def compare(
    module: Module,
    *arguments: object,
    other: Module | None = None,
    against: str = "interpreter",
    passes: str = "default",
    mode: str = "strict",
) -> Verdicts:
    """Equal, different or undecided, for each output (hlo/tools/comparison/verdicts.py).

    arguments: one per entry parameter, as a compiled module takes them. other: a second module,
    compiled alike; without one, compiled code is compared with `against`: interpreter, unoptimized,
    fast, f64 (the reference with every float in f64) or jax. Raises HloErrors for what does not
    verify or run.

    >>> x = np.arange(1024, dtype=np.float32)
    >>> hlo.compare(hlo.read("examples/axpy.hlo"), np.float32(2), x, x).verdict
    'equal'
    """
    case = Case(module, arguments)
    return compared(case, other, against, passes, mode).verdicts


class Nearness(Struct, frozen=True):
    """How far both sides of a leaf are from its value in f64, as root mean squares."""

    number: int
    first: float
    second: float


class Compared(Struct, frozen=True):
    """verdicts; nearness: of leaves of floats that are not equal, where f64 is there to ask."""

    verdicts: Verdicts
    nearness: tuple[Nearness, ...] = ()


def compared(
    case: Case, other: Module | None, against: str, passes: str = "default", mode: str = "strict"
) -> Compared:
    """As `compare`; what is not equal is measured against the program in f64."""
    run = driver.compile(case.module, passes, mode, cache=False)
    ours = tuple(arrays.leaves(run(*case.values)))
    theirs = expected(case, other, against, passes, mode)
    verdicts = judged_by_noise(case, ours, theirs, run)
    if verdicts.verdict == EQUAL and (other is None or not any(v.error for v in verdicts.leaves)):
        return Compared(verdicts)
    try:
        exact = exact_leaves(case)
    except HloError:  # of what is no program in f64: the verdicts stand as they are
        return Compared(verdicts)
    if other is not None:
        verdicts = _decided(verdicts, case, exact, other)
    nearness = (
        Nearness(leaf.number, *(_off(a[leaf.number], exact[leaf.number]) for a in (ours, theirs)))
        for leaf in verdicts.leaves
        if leaf.verdict != EQUAL and is_of_floats(exact[leaf.number])
    )
    return Compared(verdicts, tuple(nearness))


def _decided(
    verdicts: Verdicts, case: Case, exact: tuple[np.ndarray, ...], other: Module
) -> Verdicts:
    """Where the programs differ in f64 too, their roundings are no excuse: what is undecided is
    different, and what only noise allows for is not equal, but undecided.
    """
    try:
        second = exact_leaves(Case(other, case.values))
    except HloError:
        return verdicts
    noise = noise_of(widened(case))
    if noise is None:
        return verdicts
    leaves = (_leaf(*both) for both in zip(verdicts.leaves, exact, second, noise, strict=True))
    return Verdicts(tuple(leaves))


def _leaf(
    leaf: LeafVerdict, first: np.ndarray, second: np.ndarray, noise: np.ndarray
) -> LeafVerdict:
    """The verdict with what the leaf is in f64, beside the roundings of its own type."""
    if leaf.verdict == DIFFERENT or not is_of_floats(first):
        return leaf
    with np.errstate(all="ignore"):
        apart = np.where(first == second, 0.0, np.abs(first - second))
        unit = leaf.last_bit
        passes = NOISE_FACTOR * (unit * (np.abs(first) + leaf.size) + noise)
        over = (apart > passes) | (np.isnan(first) != np.isnan(second))
    if not over.any():
        return leaf
    if leaf.verdict == EQUAL:
        return replace(leaf, verdict=UNDECIDED, reason="within its noise, but not equal in f64")
    if float(np.max(apart, where=over, initial=0.0)) <= leaf.noise:
        return leaf
    return replace(leaf, verdict=DIFFERENT, reason="the programs differ in f64 too")


def is_of_floats(array: np.ndarray) -> bool:
    """Of f64 or c128, as what is widened has them."""
    return array.dtype.kind in "fc"


def _off(array: np.ndarray, exact: np.ndarray) -> float:
    """The root mean square of the distance, where both are finite."""
    with np.errstate(all="ignore"):
        distance = np.abs(wide_numbers(array) - exact)
    finite = distance[np.isfinite(distance)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def expected(
    case: Case, other: Module | None, against: str, passes: str = "default", mode: str = "strict"
) -> tuple[np.ndarray, ...]:
    """The output leaves that a comparison is with."""
    if other is not None:
        made = driver.compile(other, passes, mode, cache=False)(*case.values)
        return tuple(arrays.leaves(made))
    return tuple(check.rival_leaves(case.module, list(case.values), against))


def nans(
    module: Module, *arguments: object, kinds: tuple[str, ...] = ("nan", "inf")
) -> tuple[Finding, ...]:
    """The instructions of compiled code that make NaNs, infinities or denormals, in its order.

    kinds: of nan, inf, denormal. A finding says which element, operands, loop iteration and source
    line, and which outputs it reaches. Raises HloErrors for what does not verify or run.

    >>> module = hlo.parse("HloModule m ENTRY e { x = f32[2] parameter(0) ROOT r = f32[2] log(x) }")
    >>> [found.instruction for found in hlo.nans(module, np.float32([1, -1]))]
    ['%r = f32[2]{0} log(%x)']
    """
    if not set(kinds) <= {"nan", "inf", "denormal"} or not kinds:
        raise HloError("arguments", f"nans: kinds is {kinds}, expected of nan, inf, denormal")
    driver.verify(module)
    return compiled_nans(Case(module, arguments), kinds).findings
