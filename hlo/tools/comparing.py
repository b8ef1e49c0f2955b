"""Comparing in Python what the commands compare: two modules, or two ways to run one."""

from __future__ import annotations

import numpy as np

from hlo import driver
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.tools import arrays, check
from hlo.tools.cases import Case
from hlo.tools.compiled_nans import compiled_nans
from hlo.tools.nans import Finding
from hlo.tools.verdicts import Verdicts, judged, noise_of


def compare(
    module: Module,
    *arguments: object,
    other: Module | None = None,
    against: str = "interpreter",
    passes: str = "default",
    mode: str = "strict",
) -> Verdicts:
    """Equal, different or undecided, for each output (hlo/tools/verdicts.py).

    arguments: one per entry parameter, as a compiled module takes them. other: a second module,
    compiled alike; without one, compiled code is compared with `against`: interpreter, unoptimized,
    fast or jax. Raises HloErrors for what does not verify or run.
    """
    case = Case(module, arguments)
    ours = driver.compile(module, passes, mode, cache=False)(*arguments)
    return judged(tuple(arrays.leaves(ours)), expected(case, other, against, passes, mode),
                  noise_of(case))  # fmt: skip


def expected(
    case: Case, other: Module | None, against: str, passes: str = "default", mode: str = "strict"
) -> tuple[np.ndarray, ...]:
    """The output leaves that a comparison is with."""
    if other is not None:
        made = driver.compile(other, passes, mode, cache=False)(*case.values)
        return tuple(arrays.leaves(made))
    if against == "fast":
        made = driver.compile(case.module, mode="fast", cache=False)(*case.values)
        return tuple(arrays.leaves(made))
    return tuple(check.rival_leaves(case.module, list(case.values), against))


def nans(
    module: Module, *arguments: object, kinds: tuple[str, ...] = ("nan", "inf")
) -> tuple[Finding, ...]:
    """The instructions of compiled code that make NaNs, infinities or denormals, in its order.

    kinds: of nan, inf, denormal. A finding says which element, operands, loop iteration and source
    line, and which outputs it reaches. Raises HloErrors for what does not verify or run.
    """
    if not set(kinds) <= {"nan", "inf", "denormal"} or not kinds:
        raise HloError("arguments", f"nans: kinds is {kinds}, expected of nan, inf, denormal")
    driver.verify(module)
    return compiled_nans(Case(module, arguments), kinds).findings
