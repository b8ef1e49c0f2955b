"""Underflow: where numbers begin to be subnormal, by the ops that make them.

Tails of e^x and of powers, high powers, products of many elements, constants that have such
elements, and what a block is given of them. States of loops may decay to them: decays.py; and what
a program is given and gives back: moving_averages.py.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hlo.analysis.decisions import decisions_of
from hlo.analysis.fusibility import is_large_fraction, is_spread_constant
from hlo.analysis.reducers import reducer_of
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.graph import callers_below, calls, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal

if TYPE_CHECKING:  # of programs with averages alone
    from hlo.analysis.flow import Value

# The power from which on numbers of the size of 0.004, as programs are given many, underflow.
HIGH = 16
_MOST_LOOKED_AT = 1 << 18  # Elements of a constant.
# The largest magnitude and the least normal number, as integers of the floats' sizes.
_CODES = {dt.F32: (0x7FFFFFFF, 1 << 23), dt.BF16: (0x7FFF, 1 << 7)}


def may_underflow(computation: Computation) -> bool:
    """Whether numbers of the computation's program may: it is told at once of most that they do
    not.
    """
    module = computation.module
    return (computation if module is None else module.entry).fact(_may_underflow)


def _may_underflow(entry: Computation) -> bool:
    below = entry.fact(callers_below)
    if any(beginnings(c) or any(i.opcode == "while" for i in calls(c)) for c in below):
        return True
    if not entry.fact(_has_fractions):
        return False
    from hlo.analysis.moving_averages import averages  # few programs have such numbers

    return bool(averages(entry))


def _has_fractions(entry: Computation) -> bool:
    return any(is_large_fraction(i) for c in entry.fact(callers_below) for i in c.instructions)


def beginnings(computation: Computation) -> tuple[Instruction, ...]:
    """The values that begin to be subnormal there."""
    return computation.fact(_beginnings)


def _beginnings(computation: Computation) -> tuple[Instruction, ...]:
    found = [i for i in computation.instructions if _begins(i)]
    return (*found, *high_powers(computation))


def _begins(instruction: Instruction) -> bool:
    match instruction.opcode:
        case "exponential" | "power":
            return True
        case "constant":
            return _has_subnormals(instruction)
        case "parameter":
            return decisions_of(instruction).underflows
        case "reduce" | "reduce-window":
            return multiplies_many(instruction)
    return False


def multiplies_many(reduction: Instruction, least: int = HIGH) -> bool:
    """Whether results of a reduce or reduce-window are products of so many factors that they
    underflow.
    """
    return reducer_of(reduction).opcodes == ("multiply",) and _factors_of(reduction) >= least


def _factors_of(reduction: Instruction) -> int:
    if (window := reduction.attributes.get("window")) is not None:
        from hlo.attributes.window import Window  # few programs multiply so

        assert isinstance(window, Window), "as its form says"
        return prod(d.size for d in window.dims)
    return reduction.operands[0].shape.size // max(1, reduction.shape.size)


def _has_subnormals(constant: Instruction) -> bool:
    literal = constant.attributes.get("literal")
    codes = _CODES.get(constant.shape.dtype)
    if codes is None or not isinstance(literal, Literal) or literal.is_elided:
        return False
    if constant.shape.size > _MOST_LOOKED_AT:
        return False
    largest, normal = codes
    found = literal.array.view(f"u{constant.shape.dtype.item_bytes}") & largest
    return bool(((found > 0) & (found < normal)).any())


def high_powers(computation: Computation) -> frozenset[Instruction]:
    """Its products of so many equal factors that they underflow where no factor is subnormal; and
    the squares of which it keeps moving averages: gradients become as small as you like.
    """
    return computation.fact(_high_powers)


def _high_powers(computation: Computation) -> frozenset[Instruction]:
    powers: dict[Instruction, tuple[Instruction, int]] = {}
    for product in post_order(computation):
        if product.opcode == "multiply" and product.shape.dtype.is_float:
            (x, m), (y, n) = (powers.get(o, (o, 1)) for o in product.operands)
            if x is y:
                powers[product] = x, m + n
            elif is_spread_constant(x):
                powers[product] = y, n
            elif is_spread_constant(y):
                powers[product] = x, m
    high = frozenset(product for product, (_, power) in powers.items() if power >= HIGH)
    squares = [product for product, (_, power) in powers.items() if power == 2]
    module = computation.module
    if not squares or module is None or not module.entry.fact(_has_fractions):
        return high
    from hlo.analysis.moving_averages import averages  # few programs have such numbers

    found = averages(module.entry)
    return high | {square for square in squares if _is_added(square, found)}


def _is_added(square: Instruction, averages: frozenset[Value]) -> bool:
    """Whether it, or a multiple of it, is added to one of these."""
    waiting = [square]
    while waiting:
        value = waiting.pop()
        for user in value.users:
            if user.opcode == "add" and (user, ()) in averages:
                return True
            if user.opcode == "multiply" and any(is_spread_constant(o) for o in user.operands):
                waiting.append(user)
    return False
