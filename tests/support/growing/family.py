"""Families: functions from a size to a module's text, entered with what their growth needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """text(size) is the module. large: the size at which each stage still has to end in seconds.

    base: the size of which tests take four and eight times. runs: whether a run's steps grow as the
    text does, so that it may be evaluated. text_growth: how much longer twice the size's text is.
    """

    name: str
    text: Callable[[int], str]
    large: int
    base: int
    runs: bool
    text_growth: float


FAMILIES: dict[str, Family] = {}


def family(
    large: int, *, base: int = 24, runs: bool = True, text_growth: float = 2
) -> Callable[[Callable[[int], str]], Callable[[int], str]]:
    """Enter a function from sizes to texts."""

    def enter(text: Callable[[int], str]) -> Callable[[int], str]:
        name = text.__name__
        FAMILIES[name] = Family(name, text, large, base, runs, text_growth)
        return text

    return enter
