"""Rule MP: which ops may have operands of different floating types (docs/semantics.md 0)."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.errors import Violation
from hlo.ir.dtype import DType
from hlo.ir.shape import ProgramShape, Shape
from hlo.ops.shape_rules import text

MIXED = frozenset({
    "call", "conditional", "constant", "convolution", "dot", "ragged-dot", "scaled-dot",
    "all-reduce", "all-reduce-start", "all-reduce-done", "all-gather", "all-gather-start",
    "all-gather-done", "async-start", "async-update", "async-done", "collective-permute",
    "collective-permute-start", "collective-permute-done", "copy-start", "copy-done",
    "custom-call", "domain", "fusion", "get-tuple-element", "opt-barrier", "infeed", "outfeed",
    "parameter", "recv", "recv-done", "reduce-precision", "reduce-window", "send", "send-done",
    "sort", "tuple", "while",
})  # fmt: skip
REDUCING = frozenset({"map", "reduce", "reduce-window"})


def check_precision(
    opcode: str, operands: Sequence[Shape], to_apply: ProgramShape | None = None
) -> None:
    """Operands of one floating type; reducers of exactly their operands' types."""
    if opcode not in MIXED:
        _check_one_float(operands)
    if opcode in REDUCING and to_apply is not None:
        for i, (shape, parameter) in enumerate(zip(operands, to_apply.parameters, strict=False)):
            if shape.dtype is not parameter.dtype:
                expected = f"{parameter.dtype}, as parameter {i} of to_apply"
                raise Violation("mixed-precision", f"operand {i}", text(shape), expected, "MP")


def _check_one_float(operands: Sequence[Shape]) -> None:
    first: DType | None = None
    for i, shape in enumerate(operands):
        for leaf in shape.leaves():
            if not leaf.dtype.is_float:
                continue
            if first is not None and leaf.dtype is not first:
                expected = f"{first} as before"
                raise Violation("mixed-precision", f"operand {i}", text(shape), expected, "MP")
            first = leaf.dtype
