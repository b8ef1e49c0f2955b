"""ragged_all_to_all_rewriter: one device that sends slices to itself moves rows.

    result[t] = input[start[k] + t - target[k]]  where target[k] <= t < target[k] + size[k]
                output[t]                        where no part k has the row t

Parts that are not as they should be (they overlap, or reach outside) are the op's own to refuse:
it stands in the branch of a conditional that is taken for them only.
"""

from __future__ import annotations

import math

import numpy as np

from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.graph import clone_instruction
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.collectives import GroupAttributes
from hlo.ops.making import make, make_constant
from hlo.passes.liveness import replace, replaceable
from hlo.passes.loop_making import adopted, element, new_computation, parameter, reducer

FLAG = Shape.array(dt.PRED, ())


def ragged_all_to_all_rewriter(module: Module) -> bool:
    """Write ragged all-to-alls of one device as gathers of rows. O(instructions)."""
    found = [i for i in replaceable(module, "ragged-all-to-all") if _is_rewritable(i)]
    for instruction in found:
        parts = _Transfers(module, instruction)
        replace(instruction, _checked(module, instruction, parts))
    return bool(found)


def _is_rewritable(op: Instruction) -> bool:
    computation, data, output = op.computation, op.operands[0].shape, op.shape
    assert computation is not None, "an instruction in a computation"
    groups = GroupAttributes.of(op.attributes).replica_groups
    own = next((g for g in groups.groups() if 0 in g), (0,))
    if own != (0,) or any(s.is_dynamic for s in (output, *(o.shape for o in op.operands))):
        return False
    is_refusing = op.is_root and all(o.opcode == "get-tuple-element" for o in op.operands)
    count = op.operands[2].shape.size
    return not is_refusing and bool(data.size and output.size and count and output.dims[0])


class _Transfers:
    """The numbers of all parts in s64, and which rows they cover."""

    def __init__(self, module: Module, op: Instruction) -> None:
        self.module, self.op = module, op
        self.data, self.output, *numbers = op.operands
        self.count = math.prod(numbers[0].shape.dims)
        self.rows, self.target_rows = self.data.shape.dims[0], self.output.shape.dims[0]
        self.start, self.size, self.target, self.wanted = map(self._flat, numbers)
        self.grid = Shape.array(dt.S64, (self.target_rows, self.count))
        self.target_row = self.make("iota", shape=self.grid, iota_dimension=0)
        target = self.along(self.target, 1)
        after = self.make("compare", self.target_row, target, direction="GE")
        away = self.make("subtract", self.target_row, target)
        within = self.make("compare", away, self.along(self.size, 1), direction="LT")
        self.covers = self.make("and", after, within)

    def make(self, opcode: str, *operands: Instruction, **attributes: object) -> Instruction:
        return make(self.op, opcode, *operands, **attributes)  # type: ignore[arg-type]  # shape

    def _flat(self, x: Instruction) -> Instruction:
        row = self.make("reshape", x, shape=Shape.array(x.shape.dtype, (self.count,)))
        return self.make("convert", row, shape=Shape.array(dt.S64, (self.count,)))

    def along(self, row: Instruction, d: int) -> Instruction:
        """A row of numbers along a dimension of the grid."""
        shape = Shape.array(row.shape.dtype, self.grid.dims)
        return self.make("broadcast", row, shape=shape, dimensions=(d,))

    def constant(self, value: object, dtype: DType) -> Instruction:
        shape = Shape.array(dtype, ())
        return make_constant(self.op, Literal.of(np.asarray(value, dtype.numpy), shape))

    def each(self, value: int) -> Instruction:
        """A number for every part."""
        shape = Shape.array(dt.S64, (self.count,))
        return self.make("broadcast", self.constant(value, dt.S64), shape=shape, dimensions=())

    def total(self, grid: Instruction) -> Instruction:
        """The sum over all parts, for each row of the result."""
        f = reducer(self.module, self.op, "add", Shape.array(dt.S64, ()))
        return self.make("reduce", grid, self.constant(0, dt.S64), dimensions=(1,), to_apply=f)

    def covered(self) -> Instruction:
        """How many parts have each row."""
        return self.total(self.make("convert", self.covers, shape=self.grid))

    def value(self) -> Instruction:
        """The result, for parts that are as they should be."""
        shift = self.along(self.make("subtract", self.start, self.target), 1)
        nothing = self.make("subtract", shift, shift)
        chosen = self.make("select", self.covers, self.make("add", self.target_row, shift), nothing)
        shape = self.output.shape.without_layout()
        sizes, rank = (1, *shape.dims[1:]), shape.rank
        rows = self.make(
            "gather", self.data, self.total(chosen), offset_dims=tuple(range(1, rank)),
            collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1, slice_sizes=sizes,
            shape=Shape.array(shape.dtype, shape.dims),
        )  # fmt: skip
        covered = self.covered()
        has = self.make("compare", covered, self.make("subtract", covered, covered), direction="NE")
        flags = Shape.array(dt.PRED, shape.dims)
        every = self.make("broadcast", has, shape=flags, dimensions=(0,))
        return self.make("select", every, rows, self.output)

    def fits(self) -> Instruction:
        """Whether all parts are as they should be, pred[]."""
        none = self.each(0)
        flags = [self.make("compare", self.size, self.wanted, direction="EQ")]
        for begin, most in ((self.start, self.rows), (self.target, self.target_rows)):
            room = self.make("subtract", self.each(most), begin)
            flags += [
                self.make("compare", begin, none, direction="GE"),
                self.make("compare", self.size, room, direction="LE"),
            ]
        flags.append(self.make("compare", self.size, none, direction="GE"))
        every = flags[0]
        for flag in flags[1:]:
            every = self.make("and", every, flag)
        covered = self.covered()
        one = self.make("broadcast", self.constant(1, dt.S64), shape=covered.shape, dimensions=())
        apart = self.make("compare", covered, one, direction="LE")
        return self.make("and", self.all_of(every), self.all_of(apart))

    def all_of(self, flags: Instruction) -> Instruction:
        f = reducer(self.module, self.op, "and", FLAG)
        true = self.constant(True, dt.PRED)
        return self.make("reduce", flags, true, dimensions=(0,), to_apply=f)


def _checked(module: Module, op: Instruction, parts: _Transfers) -> Instruction:
    """conditional(fits, value, op)."""
    value = parts.value()
    given = make(op, "tuple", *op.operands)
    kept = new_computation(op, "moved")
    kept.root = make(parameter(kept, 0, value.shape), "copy", kept.parameters[0])
    refusing = new_computation(op, "refused")
    whole = parameter(refusing, 0, given.shape)
    again = clone_instruction(op, tuple(element(whole, k) for k in range(len(op.operands))))
    again.shape = value.shape
    refusing.root = refusing.adopt(again)
    branches = [adopted(module, op, c) for c in (kept, refusing)]
    return make(
        op, "conditional", parts.fits(), value, given, true_computation=branches[0],
        false_computation=branches[1],
    )  # fmt: skip
