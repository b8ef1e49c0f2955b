"""The cases of a family that CI runs meet what the whole family meets."""

from __future__ import annotations

import itertools

import pytest
from _pytest.mark.structures import ParameterSet

from tests.support.covering import covering, sample

AXES = ("abc", range(12), "wxyz", (True, False))


def in_ci(cases: list[ParameterSet]) -> list[tuple[object, ...]]:
    return [tuple(case.values) for case in cases if not case.marks]


def test_all_combinations_are_there_once() -> None:
    cases = [tuple(case.values) for case in covering(*AXES)]
    assert sorted(cases, key=str) == sorted(itertools.product(*AXES), key=str)
    assert len({case.id for case in covering(*AXES)}) == len(cases)


@pytest.mark.parametrize(("strength", "most"), [(1, 12), (2, 50), (4, 3 * 12 * 4 * 2)])
def test_ci_meets_every_value_or_group_of_values(strength: int, most: int) -> None:
    chosen = in_ci(covering(*AXES, strength=strength))
    assert len(chosen) <= most
    for places in itertools.combinations(range(len(AXES)), strength):
        met = {tuple(case[n] for n in places) for case in chosen}
        assert met == set(itertools.product(*(AXES[n] for n in places)))


def test_others_are_slow() -> None:
    names = [[mark.name for mark in case.marks] for case in covering("ab", range(3), strength=1)]
    assert sorted(names) == [[]] * 3 + [["slow"]] * 3


def test_values_are_met_about_as_often() -> None:
    chosen = in_ci(covering("abc", range(12), strength=1))
    assert [sum(case[0] == letter for case in chosen) for letter in "abc"] == [4, 4, 4]


def test_values_of_several_parameters() -> None:
    cases = covering([("f32", 1), ("f64", 2)], "xy", several=(0,))
    assert cases[0].values == ("f32", 1, "x")
    assert [case.id for case in cases] == ["f32-1-x", "f32-1-y", "f64-2-x", "f64-2-y"]


def test_samples() -> None:
    assert in_ci(sample(range(7), 3)) == [(0,), (3,), (6,)]
