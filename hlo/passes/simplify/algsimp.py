"""algsimp: local rewrites by equations, filed by family in hlo/passes/patterns/."""

from __future__ import annotations

from hlo.ir.module import Module
from hlo.passes.patterns import arithmetic, movement  # noqa: F401  # which most programs need
from hlo.passes.rewriting import RULES, Limits, Rule, apply_rules


def _enter(opcode: str) -> None:
    """Import the families that have rules for an opcode, which enters them.

    Opcodes are compared as a pattern, family by family: what a rule is for stands at the rule, and
    a test holds these to it.
    """
    match opcode:
        case "reduce":
            from hlo.passes.patterns import reduction
        case "reduce-window":
            from hlo.passes.patterns import reduction, windowed_reduction  # noqa: F401
        case "dot" | "transpose":
            from hlo.passes.patterns import contraction
        case "convolution":
            from hlo.passes.patterns import contraction, convolution  # noqa: F401
        case "slice":
            from hlo.passes.patterns import indexing, ordering, slicing
        case "concatenate" | "pad":
            from hlo.passes.patterns import slicing  # noqa: F401
        case "dynamic-slice" | "dynamic-update-slice" | "get-dimension-size":
            from hlo.passes.patterns import indexing
        case "scatter":
            from hlo.passes.patterns import batching, counting, indexing, overlaps  # noqa: F401
        case "sort":
            from hlo.passes.patterns import ordering  # noqa: F401
        case "gather":
            from hlo.passes.patterns import counting, indexing, library  # noqa: F401
        case "custom-call" | "set-dimension-size" | "collective-permute" | "rng-bit-generator":
            from hlo.passes.patterns import library  # noqa: F401
        case _:
            _enter_elementwise(opcode)


def _enter_elementwise(opcode: str) -> None:
    match opcode:
        case "convert" | "bitcast-convert":
            from hlo.passes.patterns import conversion  # noqa: F401
        case "and" | "select":
            from hlo.passes.patterns import division, logic  # noqa: F401
        case "or" | "xor" | "not" | "compare" | "maximum" | "minimum" | "clamp":
            from hlo.passes.patterns import logic  # noqa: F401


RULES.fill_from(_enter)


def all_rules() -> dict[str, Rule]:
    """The rules of all families by name, family by family."""
    from hlo.passes.patterns import (  # noqa: F401
        batching,
        contraction,
        conversion,
        convolution,
        counting,
        division,
        indexing,
        library,
        logic,
        ordering,
        overlaps,
        reduction,
        slicing,
        windowed_reduction,
    )

    return {rule.name: rule for rule in RULES.in_order()}


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
