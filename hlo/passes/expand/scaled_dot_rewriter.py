"""scaled_dot_rewriter: a scaled dot is a dot of products with spread scales."""

from __future__ import annotations

from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.ops.table import attribute
from hlo.passes.liveness import replace, replaceable

DIMENSIONS = (
    "lhs_batch_dims", "lhs_contracting_dims", "rhs_batch_dims", "rhs_contracting_dims",
    "operand_precision",
)  # fmt: skip


def scaled_dot_rewriter(module: Module) -> bool:
    """Write scaled dots as dots of operands times their spread scales, in f32 or wider.

    scaled-dot(x, y, s, t)  =>  dot(x * spread(s), y * spread(t)). O(instructions).
    """
    found = [i for i in replaceable(module, "scaled-dot") if _is_rewritable(i)]
    for instruction in found:
        replace(instruction, _rewritten(instruction))
    return bool(found)


def _is_rewritable(dot: Instruction) -> bool:
    shapes = [*(o.shape for o in dot.operands), dot.shape]
    return not any(s.is_dynamic for s in shapes) and all(s.dtype.is_float for s in shapes)


def _rewritten(dot: Instruction) -> Instruction:
    x, y, s, t = dot.operands
    is_double = any(o.shape.dtype is dt.F64 for o in dot.operands) or dot.shape.dtype is dt.F64
    wide = dt.F64 if is_double else dt.F32
    attributes = {name: attribute(dot, name) for name in DIMENSIONS if name in dot.attributes}
    shape = Shape.array(wide, dot.shape.dims)
    product = make(
        dot, "dot", _scaled(dot, x, s, wide), _scaled(dot, y, t, wide), shape=shape, **attributes
    )
    return _converted(dot, product, dot.shape)


def _scaled(dot: Instruction, x: Instruction, scale: Instruction, wide: DType) -> Instruction:
    """x times the scale of each block; a scalar scale is 1, a dummy is one number for all."""
    shape = Shape.array(wide, x.shape.dims)
    converted = _converted(dot, x, shape)
    if scale.shape.is_scalar:
        return converted
    factor = _converted(dot, scale, Shape.array(wide, scale.shape.dims))
    return make(dot, "multiply", converted, _spread(dot, factor, shape))


def _spread(dot: Instruction, scale: Instruction, shape: Shape) -> Instruction:
    """scale[i // q] at every i, q the quotient of sizes."""
    if scale.shape.size == 1:
        scalar = make(dot, "reshape", scale, shape=Shape.array(shape.dtype, ()))
        return make(dot, "broadcast", scalar, shape=shape, dimensions=())
    sizes: list[int] = []
    kept: list[int] = []
    for n, m in zip(shape.dims, scale.shape.dims, strict=True):
        kept.append(len(sizes))
        sizes += [m] if n == m else [m, n // m]
    blocks = Shape.array(shape.dtype, sizes)
    spread = make(dot, "broadcast", scale, shape=blocks, dimensions=tuple(kept))
    return make(dot, "reshape", spread, shape=shape)


def _converted(dot: Instruction, x: Instruction, shape: Shape) -> Instruction:
    return x if x.shape == shape else make(dot, "convert", x, shape=shape)
