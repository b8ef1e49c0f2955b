"""checking: all modules of many files parsed and verified, several files at a time.

paths --a process for each of `jobs`--> what was found of each, in the order of the paths
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from hlo import driver
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.tools.files.input_size import limited, most_bytes


class Checked(Struct, frozen=True):
    """What was found in a file: the text of each module's errors, warnings; modules: how many."""

    path: str
    modules: int
    errors: int
    messages: tuple[str, ...]
    warnings: tuple[str, ...]


class Rules(Struct, frozen=True):
    """What `hlo-opt check` asks of files.

    wanted: a module's name, or part of one; None: all. syntax: parse only. lint: warn too, but
    for the codes that are disabled.
    """

    wanted: str | None = None
    syntax: bool = False
    lint: bool = False
    disabled: tuple[str, ...] = ()


def checked(paths: Sequence[str], rules: Rules, jobs: int = 1) -> Iterator[Checked]:
    """What is wrong with each file, in order; with `jobs` processes where that is more than one."""
    check = partial(_checked, rules=rules, most=most_bytes())
    if jobs == 1 or len(paths) == 1:
        yield from map(check, paths)
        return
    from concurrent.futures import ProcessPoolExecutor  # as long to import as a file to check
    from multiprocessing import get_context

    # Fresh processes: what this one has imported may hold threads, which forks do not survive.
    with ProcessPoolExecutor(min(jobs, len(paths)), get_context("spawn")) as pool:
        yield from pool.map(check, paths)


def _checked(path: str, *, rules: Rules, most: int | None) -> Checked:
    """One file; an error of one of its modules hides none of another's."""
    with limited(most):
        messages: list[str] = []
        warnings: list[str] = []
        errors = modules = 0
        try:
            for read in _modules(path, rules.wanted):
                modules += 1
                try:
                    warnings += _warnings(read(), rules)
                except HloError as error:
                    errors += _count(error)
                    messages.append(str(error))
        except HloError as error:
            errors += _count(error)
            messages.append(str(error))
        return Checked(path, modules, errors, tuple(messages), tuple(warnings))


def _modules(path: str, wanted: str | None) -> list[Callable[[], Module]]:
    """A reader for each module of a path."""
    if wanted is not None or path == "-":
        return [partial(driver.read, path, wanted)]
    return driver.readers(path)


def _warnings(module: Module, rules: Rules) -> list[str]:
    if not rules.syntax:
        driver.verify(module)
    return [str(w) for w in driver.lint(module, rules.disabled)] if rules.lint else []


def _count(error: HloError) -> int:
    return len(getattr(error, "errors", [error]))
