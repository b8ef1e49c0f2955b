"""Making instructions where the shape follows from the table: `make` and `make_constant` for
passes, `inferred_shape` for the parser and the Builder.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.ops.table import OPS, REQUIRED


def inferred_shape(
    opcode: str,
    operands: Iterable[Instruction],
    attributes: dict[str, object],
    shape: Shape | None = None,
) -> Shape:
    """The result shape by the op's own rule; raises Violation where it is broken."""
    row = OPS[opcode]
    keywords = keywords_for_infer(opcode, attributes)
    if row.takes_shape:
        keywords["shape"] = shape
    inferred = row.infer(*(o.shape for o in operands), **keywords)
    assert isinstance(inferred, Shape), f"{opcode}.infer gives a Shape"
    return inferred


def keywords_for_infer(opcode: str, attributes: dict[str, object]) -> dict[str, object]:
    """The opcode's own attributes with defaults filled in, as `infer` and `check` take them."""
    return {
        name: _for_infer(attributes[name]) if name in attributes else attr.default
        for name, attr in OPS[opcode].attrs.items()
        if name in attributes or attr.default is not REQUIRED
    }


def _for_infer(value: object) -> object:
    """Called computations reach `infer` as their program shapes."""
    if isinstance(value, Computation):
        return value.program_shape
    if isinstance(value, tuple) and value and isinstance(value[0], Computation):
        return tuple(c.program_shape for c in value)
    return value


def make(
    like: Instruction,
    opcode: str,
    *operands: Instruction,
    shape: Shape | None = None,
    **attributes: object,
) -> Instruction:
    """A new instruction in `like`'s computation, with its place and metadata;
    the shape is inferred.
    """
    assert like.computation is not None, f"{like.name} stands in no computation"
    result = inferred_shape(opcode, operands, attributes, shape)
    return like.computation.new(
        opcode, shape or result, operands, attributes, like=like, name=opcode
    )


def make_constant(like: Instruction, literal: Literal) -> Instruction:
    """A constant in `like`'s computation."""
    assert like.computation is not None, f"{like.name} stands in no computation"
    return like.computation.new("constant", literal.shape, (), {"literal": literal}, like=like)
