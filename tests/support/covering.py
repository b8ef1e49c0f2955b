"""Families of cases that run the same code: CI runs some that cover them, `-m slow` the rest.

Where a test runs on every type, size and machine, the code that a case takes is chosen by one of
its values, or by two of them together: a type's loads with a machine's instructions, a size's tails
with a form's strides. So of all combinations CI has as many as it takes for each pair of values to
be met (`strength` 2), or, where nothing is chosen by two values together, each value (1). What is
chosen by three of them does not belong here. The others are marked `slow`, not left out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import pytest
from _pytest.mark.structures import ParameterSet

SLOW = pytest.mark.slow
MOST_NAMED = 40


def covering(
    *axes: Iterable[object],
    strength: int = 2,
    several: Collection[int] = (),
) -> list[ParameterSet]:
    """All combinations of the axes' values as parameters; those that CI does not need are slow.

    strength: how many values together choose the code. several: axes by number whose values are
    tuples of several parameters.
    """
    values = [list(axis) for axis in axes]
    places = list(itertools.product(*(range(len(axis)) for axis in values)))
    chosen = chosen_of(places, strength)
    made = []
    for n, at in enumerate(places):
        case = [axis[k] for axis, k in zip(values, at, strict=True)]
        parts = [v if k in several else (v,) for k, v in enumerate(case)]
        name = "-".join(itertools.starmap(_name, zip(case, at, strict=True)))
        marks = () if n in chosen else SLOW
        made.append(pytest.param(*itertools.chain(*parts), id=name, marks=marks))
    return made


def sample(cases: Sequence[object], every: int) -> list[ParameterSet]:
    """Each so manieth of alike cases as parameters, the others slow."""
    return [
        pytest.param(case, id=_name(case, n), marks=() if n % every == 0 else SLOW)
        for n, case in enumerate(cases)
    ]


def chosen_of(places: Sequence[tuple[int, ...]], strength: int) -> set[int]:
    """Numbers of cases that meet all that any case meets: each time one that meets most of what is
    left, of equals the one whose values others have least, so that all axes move on.
    """
    together = min(strength, len(places[0])) if places else 0
    met = [frozenset(itertools.combinations(enumerate(at), together)) for at in places]
    chosen: set[int] = set()
    left = set().union(*met)
    used: Counter[tuple[int, int]] = Counter()

    def worth(n: int) -> tuple[int, int, int]:
        return len(met[n] & left), -sum(used[value] for value in enumerate(places[n])), -n

    while left:
        best = max(range(len(met)), key=worth)
        chosen.add(best)
        left -= met[best]
        used.update(enumerate(places[best]))
    return chosen


def _name(value: object, number: int) -> str:
    """Of a value in a test's name: short, or where it stands among the others."""
    if isinstance(value, tuple):
        name = "-".join(_name(v, number) for v in value) or "none"
    else:
        name = str(getattr(value, "name", getattr(value, "__name__", value)))
    return name if name.isprintable() and len(name) <= MOST_NAMED else f"case {number}"
