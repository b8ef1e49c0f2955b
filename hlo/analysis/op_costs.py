"""Op costs: which ops take many instructions, and which need no rounding to a narrow type."""

from __future__ import annotations

# Functions of mathematics: dozens of instructions each.
FUNCTIONS = frozenset(
    {
        "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "sine",
        "cosine", "tan", "power", "atan2", "erf", "cbrt", "sinh", "cosh", "asin", "acos", "asinh",
        "acosh", "atanh",
    }
)  # fmt: skip
# What costs more than a few cycles.
HEAVY = FUNCTIONS | {"sqrt", "rsqrt", "divide", "remainder"}
HEAVY_FLOPS = 10  # what one of them costs in additions
# The result is an operand's value, but for its sign, or a number that every type has.
EXACT = frozenset(
    {"abs", "negate", "maximum", "minimum", "clamp", "select", "copy", "sign", "and", "or", "real"}
)
