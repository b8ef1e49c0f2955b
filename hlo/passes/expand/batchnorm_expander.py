"""batchnorm_expander: batch normalisation as sums and elementwise ops, which fuse."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant
from hlo.ops.normalization import BatchNormAttributes
from hlo.passes.liveness import awaited, fused_computations


def batchnorm_expander(module: Module) -> bool:
    """Write batch-norm-training, -inference and -grad as sums and elementwise ops.

    By the formulas of hlo/ops/normalization.py, in f32 where the type is narrower. O(instructions).
    """
    changed = False
    fused = fused_computations(module)
    for computation in tuple(module.computations):
        found = [i for i in computation.instructions if i.opcode in _EXPANSIONS]
        if computation in fused or not found:
            continue
        kept = awaited(computation)
        for instruction in found:
            if instruction not in kept and _is_expandable(instruction):
                batch = _Batch.of(instruction, _adder(module, computation, instruction))
                new = _EXPANSIONS[instruction.opcode](batch)
                computation.replace_uses(instruction, new)
                computation.remove(instruction)
                changed = True
    return changed


def _is_expandable(instruction: Instruction) -> bool:
    if "control-predecessors" in instruction.attributes:
        return False
    return not any(o.shape.is_dynamic for o in instruction.operands)


def _wide(dtype: dt.DType) -> dt.DType:
    """The type of the arithmetic."""
    return dt.F64 if dtype is dt.F64 else dt.F32


def _adder(module: Module, caller: Computation, norm: Instruction) -> Computation:
    """A reducer that adds numbers of the arithmetic's type."""
    added = Computation("add", execution_thread=caller.execution_thread)
    scalar = Shape.array(_wide(norm.operands[0].shape.dtype), ())
    parameters = [
        added.new("parameter", scalar, (), {"parameter_number": n}, name=name)
        for n, name in enumerate(("lhs", "rhs"))
    ]
    added.root = added.new("add", scalar, parameters, name="sum")
    module.adopt(added, before=caller)
    return added


class _Batch(Struct, frozen=True):
    """One batch normalisation: its operands in the arithmetic's type, and what it is made of."""

    norm: Instruction
    adder: Computation
    operands: tuple[Instruction, ...]
    feature: int
    epsilon: float

    @staticmethod
    def of(norm: Instruction, adder: Computation) -> _Batch:
        wide = _wide(norm.operands[0].shape.dtype)
        operands = tuple(_converted(norm, o, wide) for o in norm.operands)
        attrs = BatchNormAttributes.of(norm.attributes)
        return _Batch(norm, adder, operands, attrs.feature_index, attrs.epsilon)

    @property
    def count(self) -> int:
        """Elements per feature."""
        shape = self.operands[0].shape
        return shape.size // max(1, shape.dims[self.feature])

    def op(self, opcode: str, *operands: Instruction) -> Instruction:
        return make(self.norm, opcode, *operands)

    def spread(self, feature: Instruction) -> Instruction:
        """A value per feature, at all its elements."""
        shape = self.operands[0].shape.with_dims(self.operands[0].shape.dims)
        return make(self.norm, "broadcast", feature, shape=shape, dimensions=(self.feature,))

    def constant(self, value: float) -> Instruction:
        """A number at every feature."""
        dtype = self.operands[0].shape.dtype
        literal = Literal.of(np.array(value, dtype.numpy), Shape.array(dtype, ()))
        scalar = make_constant(self.norm, literal)
        shape = Shape.array(dtype, (self.operands[0].shape.dims[self.feature],))
        return make(self.norm, "broadcast", scalar, shape=shape, dimensions=())

    def total(self, x: Instruction) -> Instruction:
        """The sum per feature."""
        dtype = x.shape.dtype
        zero = make_constant(
            self.norm, Literal.of(np.array(0, dtype.numpy), Shape.array(dtype, ()))
        )
        others = tuple(d for d in range(x.shape.rank) if d != self.feature)
        return make(self.norm, "reduce", x, zero, dimensions=others, to_apply=self.adder)

    def mean(self, x: Instruction) -> Instruction:
        return self.op("divide", self.total(x), self.constant(self.count))

    def root(self, variance: Instruction) -> Instruction:
        """1 / sqrt(variance + epsilon), with epsilon as the operand's type holds it."""
        kind = self.norm.operands[0].shape.dtype
        held = float(np.asarray(self.epsilon).astype(kind.numpy))
        return self.op("rsqrt", self.op("add", variance, self.constant(held)))

    def centred(self, mean: Instruction) -> Instruction:
        return self.op("subtract", self.operands[0], self.spread(mean))

    def scaled(
        self, centred: Instruction, root: Instruction, scale: Instruction, offset: Instruction
    ) -> Instruction:
        normal = self.op("multiply", centred, self.spread(root))
        return self.op("add", self.op("multiply", normal, self.spread(scale)), self.spread(offset))

    def result(self, *values: Instruction) -> Instruction:
        """The values in the types and layouts of the result."""
        shape = self.norm.shape
        parts = shape.elements if shape.is_tuple else (shape,)
        done = [self._finished(v, s) for v, s in zip(values, parts, strict=True)]
        return make(self.norm, "tuple", *done, shape=shape) if shape.is_tuple else done[0]

    def _finished(self, value: Instruction, shape: Shape) -> Instruction:
        value = _converted(self.norm, value, shape.dtype)
        return value if value.shape == shape else make(self.norm, "copy", value, shape=shape)


def _converted(like: Instruction, value: Instruction, dtype: dt.DType) -> Instruction:
    if value.shape.dtype is dtype:
        return value
    return make(like, "convert", value, shape=Shape.array(dtype, value.shape.dims))


def _training(batch: _Batch) -> Instruction:
    x, scale, offset = batch.operands
    mean = batch.mean(x)
    centred = batch.centred(mean)
    variance = batch.mean(batch.op("multiply", centred, centred))
    y = batch.scaled(centred, batch.root(variance), scale, offset)
    return batch.result(y, mean, variance)


def _inference(batch: _Batch) -> Instruction:
    _, scale, offset, mean, variance = batch.operands
    return batch.result(batch.scaled(batch.centred(mean), batch.root(variance), scale, offset))


def _grad(batch: _Batch) -> Instruction:
    _, scale, mean, variance, dy = batch.operands
    root = batch.root(variance)
    normal = batch.op("multiply", batch.centred(mean), batch.spread(root))
    dscale, doffset = batch.total(batch.op("multiply", dy, normal)), batch.total(dy)
    count = batch.constant(batch.count)
    along = batch.op("multiply", normal, batch.spread(batch.op("divide", dscale, count)))
    lost = batch.op("add", batch.spread(batch.op("divide", doffset, count)), along)
    factor = batch.spread(batch.op("multiply", scale, root))
    dx = batch.op("multiply", factor, batch.op("subtract", dy, lost))
    return batch.result(dx, dscale, doffset)


_EXPANSIONS = {
    "batch-norm-training": _training,
    "batch-norm-inference": _inference,
    "batch-norm-grad": _grad,
}
