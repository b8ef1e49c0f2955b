"""Foreign names: what jax.lax, StableHLO and NumPy call ops that HLO calls otherwise."""

from __future__ import annotations

ALIASES = {
    "neg": "negate", "exp": "exponential", "expm1": "exponential-minus-one",
    "log1p": "log-plus-one",
    "cos": "cosine", "sin": "sine", "sub": "subtract", "mul": "multiply", "div": "divide",
    "rem": "remainder", "max": "maximum", "min": "minimum", "pow": "power",
    "clz": "count-leading-zeros", "population_count": "popcnt", "round": "round-nearest-afz",
}  # fmt: skip
"""Elementwise ops with the same operands."""

NEAREST = {
    **ALIASES,
    "dot_general": "dot", "einsum": "dot", "matmul": "dot", "conv_general_dilated": "convolution",
    "conv": "convolution", "broadcast_in_dim": "broadcast", "convert_element_type": "convert",
    "cast": "convert", "mod": "remainder", "where": "select", "select_n": "select",
    "sum": "reduce", "reduce_sum": "reduce", "reduce_max": "reduce", "reduce_min": "reduce",
    "cumsum": "reduce-window", "sigmoid": "logistic", "concat": "concatenate", "rev": "reverse",
    "cond": "conditional", "case": "conditional", "return": "tuple",
}  # fmt: skip
"""The op that a name's reader means, whatever its operands are."""
