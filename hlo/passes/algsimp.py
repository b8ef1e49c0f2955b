"""algsimp: local rewrites by equations, filed by family in hlo/passes/patterns/."""

from __future__ import annotations

from hlo.ir.module import Module
from hlo.passes.patterns import (
    arithmetic,
    contraction,
    conversion,
    convolution,
    division,
    indexing,
    library,
    logic,
    movement,
    reduction,
    slicing,
)
from hlo.passes.rewriting import Limits, apply_rules

FAMILIES = (  # Importing a family enters its rules.
    arithmetic, contraction, convolution, conversion, division, indexing, library, logic, movement,
    reduction, slicing,
)  # fmt: skip


def algsimp(
    module: Module,
    *,
    inexact: bool = False,
    fuel: int = -1,
    only: str = "",
    without: str = "",
) -> bool:
    """Algebraic simplification: equations tried to a fixed point.

    inexact: also rules that change roundings or special values (the `fast` mode). fuel: at most so
    many rewrites (-1: no limit). only, without: rule names joined by `+`, used alone or left out.
    Cost: O(instructions + rewrites). Source of the list: XLA's algebraic_simplifier.cc, each rule
    judged anew for exactness.
    """
    return bool(
        apply_rules(module, limits_of(inexact=inexact, fuel=fuel, only=only, without=without))
    )


def limits_of(
    *, inexact: bool = False, fuel: int = -1, only: str = "", without: str = ""
) -> Limits:
    """What the pass's options say."""
    return Limits(
        inexact=inexact,
        fuel=None if fuel < 0 else fuel,
        only=frozenset(filter(None, only.split("+"))),
        without=frozenset(filter(None, without.split("+"))),
    )
