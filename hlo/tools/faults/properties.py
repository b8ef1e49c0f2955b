"""Properties that a reduction keeps.

A mismatch, a pass's fault, a message, a crash, a script's exit code, slowness beside XLA.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from pathlib import Path

from hlo import driver
from hlo.errors import HloError
from hlo.passes.manager import Manager
from hlo.tools import bench
from hlo.tools.cases import arrays
from hlo.tools.cases.case import Case
from hlo.tools.cases.trials import Property
from hlo.tools.comparison import check
from hlo.tools.comparison.compare import DEFAULT, Tolerance, compare
from hlo.tools.files.npz import write_npz
from hlo.tools.files.reading import write_text
from hlo.tools.jax.jax_engine import JaxProgram, without_donation

MODULE, INPUTS = "module.hlo", "inputs.npz"
SLOW_S = 0.2  # of measuring a program


def same_results(actual: object, expected: object, tolerance: Tolerance = DEFAULT) -> bool:
    """Whether results of one structure are equal within the tolerance."""
    pairs = zip(arrays.leaves(actual), arrays.leaves(expected), strict=True)
    return all(compare(a, e, check.budget_of(e, tolerance)).passed for a, e in pairs)


def differs_from(case: Case, rival: str, tolerance: Tolerance = DEFAULT) -> Property:
    """The reference's result of another form of the case's module differs from the rival's of the
    module as given; HloError where the rival cannot run it.
    """
    expected = tuple(check.rival_leaves(case.module, list(case.values), rival))

    def ask(changed: Case) -> bool:
        driver.verify(changed.module)
        ours = driver.evaluate(changed.module, *changed.values)
        return not same_results(tuple(arrays.leaves(ours)), expected, tolerance)

    return Property(f"differs from {rival} {tolerance}", ask)


def mismatch(
    rival: str,
    passes: str = "default",
    mode: str = "strict",
    tolerance: Tolerance = DEFAULT,
) -> Property:
    """Compiled code and a rival (interpreter, unoptimized, jax) differ."""

    def ask(case: Case) -> bool:
        driver.verify(case.module)
        ours = driver.compile(case.module, passes, mode, cache=False)(*case.values)
        theirs = check.rival_leaves(case.module, list(case.values), rival)
        return not same_results(tuple(arrays.leaves(ours)), tuple(theirs), tolerance)

    return Property(f"mismatch {rival} {passes} {mode} {tolerance}", ask)


def pass_fault(passes: str, tolerance: Tolerance = DEFAULT) -> Property:
    """The reference's results before and after passes differ, or they break the module."""

    def ask(case: Case) -> bool:
        driver.verify(case.module)
        expected = driver.evaluate(case.module, *case.values)
        changed = driver.optimize(case.module, passes, Manager())
        try:
            driver.verify(changed)
        except HloError:
            return True
        return not same_results(driver.evaluate(changed, *case.values), expected, tolerance)

    return Property(f"passes {passes} {tolerance}", ask)


def broken_pass(passes: str) -> Property:
    """A module that passes make of a sound one does not verify."""

    def ask(case: Case) -> bool:
        driver.verify(case.module)
        changed = driver.optimize(case.module, passes, Manager())
        try:
            driver.verify(changed)
        except HloError:
            return True
        return False

    return Property(f"broken {passes}", ask)


def message(pattern: str, passes: str = "default", mode: str = "strict") -> Property:
    """An error whose text matches, of verifying, optimising, compiling or running."""
    try:
        wanted = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise HloError(
            "arguments", f"message: {pattern!r} is no regular expression: {error}"
        ) from None

    def ask(case: Case) -> bool:
        try:
            driver.compile(case.module, passes, mode, cache=False)(*case.values)
        except Exception as error:  # ours as well as the user's: the pattern tells them apart
            return wanted.search(str(error)) is not None
        return False

    return Property(f"message {pattern} {passes} {mode}", ask)


def crash(passes: str = "default", mode: str = "strict") -> Property:
    """The process dies, or fails with what is no fault of the program: a bug of ours."""

    def ask(case: Case) -> bool:
        try:
            driver.compile(case.module, passes, mode, cache=False)(*case.values)
        except HloError:
            return False
        except Exception:  # a bug of ours is what is looked for
            return True
        return False

    return Property(f"crash {passes} {mode}", ask, crash=True)


def script(command: str, interesting: int = 0) -> Property:
    """A command ends with this code when it is given the file of the module; its folder holds the
    arguments too, as inputs.npz.
    """
    words = shlex.split(command)
    if not words:
        raise HloError("arguments", "script: the command is empty, expected a program to run")

    def ask(case: Case) -> bool:
        with tempfile.TemporaryDirectory(prefix="hlo-reduce-") as folder:
            path = str(Path(folder, MODULE))
            write_case(case, path, str(Path(folder, INPUTS)))
            done = subprocess.run([*words, path], capture_output=True, check=False)
            return done.returncode == interesting

    return Property(f"script {command} {interesting}", ask)


def slower_than_jax(factor: float, mode: str = "strict") -> Property:
    """A call takes more than so many times as long as XLA's."""

    def ask(case: Case) -> bool:
        module = without_donation(case.module)
        compiled = driver.compile(module, mode=mode, cache=False)
        rival = JaxProgram(driver.to_text(module))
        placed = rival.place(list(arrays.leaves(case.values)))
        ours, theirs = bench.measure(
            [lambda: compiled(*case.values), lambda: rival(placed)], SLOW_S
        )
        return ours.median > factor * theirs.median

    return Property(f"slower {factor:g} {mode}", ask)


def write_case(case: Case, path: str, inputs: str) -> None:
    """The module's text, and its arguments' leaves as 0, 1, .. where there are any."""
    leaves = {str(n): a for n, a in enumerate(arrays.leaves(case.values))}
    if leaves:
        write_npz(inputs, leaves)
    write_text(path, case.text)
