"""Making instructions whose shape follows from the table.

`make` and `make_constant` for passes, `inferred_shape` for the parser and the Builder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hlo.errors import Violation
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Ints, ProgramShape, Shape
from hlo.ops.attributes import REQUIRED
from hlo.ops.table import OPS, attribute_keywords


def inferred_shape(
    opcode: str,
    operands: Iterable[Instruction],
    attributes: Mapping[str, object],
    shape: Shape | None = None,
) -> Shape:
    """The result shape by the op's own rule; raises Violation where it is broken."""
    return shape_of([o.shape for o in operands], opcode, attributes, shape)


def shape_of(
    operands: Sequence[Shape],
    opcode: str,
    attributes: Mapping[str, object],
    shape: Shape | None = None,
) -> Shape:
    """The result shape for operands of these shapes; raises as inferred_shape does."""
    row = OPS[opcode]
    keywords = attribute_keywords(opcode, attributes, signature)
    if row.takes_shape:
        keywords["shape"] = shape
    inferred = row.infer(*operands, **keywords)
    assert isinstance(inferred, Shape), f"{opcode}.infer gives a Shape"
    return inferred


def check_required(opcode: str, given: Mapping[str, object]) -> None:
    """Every attribute without a default is given."""
    missing = [n for n, a in OPS[opcode].attrs.items() if a.default is REQUIRED and n not in given]
    if missing:
        name = min(missing)
        raise Violation("attribute-missing", "", f"no attribute {name}", f"{name}=")


def signature(callee: Computation) -> ProgramShape:
    """A called computation as `infer` and `check` take it."""
    return callee.program_shape


def make(
    like: Instruction,
    opcode: str,
    *operands: Instruction,
    shape: Shape | None = None,
    **attributes: object,
) -> Instruction:
    """A new instruction in `like`'s computation, with its place and metadata; the shape is
    inferred.
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


def transposed(x: Instruction, order: Ints) -> Instruction:
    """transpose(x) with dimension order[d] of x as dimension d; x itself in its own order."""
    if order == tuple(range(x.shape.rank)):
        return x
    shape = x.shape.with_dims([x.shape.dims[d] for d in order])
    return make(x, "transpose", x, shape=shape, dimensions=order)


def number_of(like: Instruction, value: float, dtype: DType) -> Instruction:
    """A scalar constant."""
    return make_constant(like, Literal(Shape.array(dtype, ()), np.array(value, dtype.numpy)))


def spread(like: Instruction, scalar: Instruction, shape: Shape) -> Instruction:
    """A scalar everywhere."""
    wanted = Shape.array(scalar.shape.dtype, shape.dims)
    return make(like, "broadcast", scalar, shape=wanted, dimensions=())
