"""Every pass on programs of all kinds: no exception, what it leaves verifies and reads back, it
says truly whether it changed anything, and the program means the same.

CI takes a sample; all of it, 40,000 runs with the pairs: `pytest -m slow` with this file's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice, product

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.ir.graph import clone_module
from hlo.ir.module import Module
from hlo.passes.catalogue import CATALOGUE
from hlo.passes.manager import Manager
from hlo.passes.pipeline import parse_pipeline
from hlo.passes.simplify.algsimp import algsimp
from tests.support.program_texts import generated, shared, verified, written

LARGEST = 60_000  # characters of a program that every pass runs on
PARTS = 8


def sample(part: int) -> Iterator[tuple[str, Module]]:
    """What CI runs on."""
    programs = [*islice(written(), part, None, 9 * PARTS), *islice(shared(), part, None, 9 * PARTS)]
    seeds = (
        *range(part, 24, PARTS),
        *((243,) if part == 3 else ()),
    )  # 243: a value leaves two loops
    return verified([*programs, *generated(seeds)])


def everything(part: int) -> Iterator[tuple[str, Module]]:
    programs = [*islice(written(), part, None, PARTS), *islice(shared(), part, None, PARTS)]
    return verified([*programs, *generated(range(part, 400, PARTS))])


def results(module: Module) -> list[np.ndarray]:
    """The reference's, for small whole numbers: generated programs keep them exact."""
    rng = np.random.default_rng(0)
    shapes = [p.shape for p in module.entry.parameters]
    arguments = [rng.integers(-9, 10, s.dims).astype(s.dtype.numpy) for s in shapes]
    found = driver.evaluate(module, *arguments)
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


def check(name: str, module: Module, passes: str) -> str:
    """One run of a pipeline on a copy; the text afterwards."""
    copy, before = clone_module(module), driver.to_text(module)
    changed = Manager(verify=hlo.verify).run(copy, parse_pipeline(passes))
    after = driver.to_text(copy)
    assert changed == (after != before), f"{passes} says changed={changed} on {name}"
    if changed:
        again = hlo.parse(after)
        hlo.verify(again)
        if name.startswith(("graph", "control flow")):
            for got, wanted in zip(results(again), results(module), strict=True):
                assert np.array_equal(got, wanted, equal_nan=True), f"{passes} on {name}"
    return after


def check_each(programs: Iterator[tuple[str, Module]]) -> None:
    for name, module in programs:
        if len(driver.to_text(module)) <= LARGEST:
            for passes in CATALOGUE:
                check(name, module, passes)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_pass_alone(part: int) -> None:
    check_each(sample(part))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_pass_alone_on_everything(part: int) -> None:
    check_each(everything(part))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_every_pair_of_passes(seed: int) -> None:
    for name, module in verified(generated([seed])):
        for first, second in product(CATALOGUE, CATALOGUE):
            check(name, module, f"{first},{second}")


# -- fixed points ----------------------------------------------------------------------------------


# Programs on which a pipeline finds something to do once more, and why. May only shrink.
UNSETTLED = {
    "golden/passes/while-loop-state-splitting-written.hlo:0": "a fusion hides from what updates an "
    "array that it is read behind it, so that the update takes in what moves the fusion's result",
    "golden/passes/while-loop-interchange-rows.hlo:0": "the same",
    "golden/passes/score-order-given.hlo:0": "scores are put in another order behind the "
    "rules, which then find a transpose that the product of scores and values can do",
}


def check_settles(programs: Iterator[tuple[str, Module]], passes: str) -> None:
    """A pipeline has nothing to do on what it made itself."""
    steps = parse_pipeline(passes)
    for name, module in programs:
        if name in UNSETTLED:
            continue
        once = clone_module(module)
        Manager().run(once, steps)
        twice = clone_module(once)
        Manager().run(twice, steps)
        assert driver.to_text(twice) == driver.to_text(once), f"{passes} twice on {name}"


@cache
def few(part: int) -> tuple[tuple[str, Module], ...]:
    return tuple(sample(part))


@pytest.mark.parametrize("part", range(PARTS))
def test_the_default_twice_is_the_default_once(part: int) -> None:
    check_settles(iter(few(part)), "default")


@pytest.mark.slow
@pytest.mark.parametrize("passes", ["default", "fast", "simplify"])
@pytest.mark.parametrize("part", range(PARTS))
def test_pipelines_twice_are_pipelines_once(part: int, passes: str) -> None:
    check_settles(everything(part), passes)


def check_fixed_point(programs: Iterator[tuple[str, Module]]) -> None:
    for name, module in programs:
        copy = clone_module(module)
        algsimp(copy)
        assert not algsimp(clone_module(copy)), f"algsimp twice on {name}"


@pytest.mark.parametrize("part", range(PARTS))
def test_algsimp_reaches_a_fixed_point(part: int) -> None:
    check_fixed_point(iter(few(part)))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_algsimp_reaches_a_fixed_point_on_everything(part: int) -> None:
    check_fixed_point(everything(part))
