"""The op table: one row per opcode, filed by family; importing this package fills it."""

from hlo.ops import (  # noqa: F401  # each module enters its rows
    collectives,
    contraction,
    control,
    conversion,
    convolution,
    custom_call,
    dynamic,
    dynamic_slicing,
    elementwise,
    host,
    indexing,
    linear_algebra,
    movement,
    normalization,
    random,
    reduction,
    sorting,
    windowed_reduction,
)
