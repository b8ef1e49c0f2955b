"""Which device executes: replica-id, partition-id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hlo.ir import dtype as dt
from hlo.ir.shape import Shape
from hlo.ops.table import KernelFamily, Op, Trait

if TYPE_CHECKING:
    from hlo.ops.context import Context

Array = np.ndarray


class ReplicaId(Op):
    """The number of the executing replica, u32[]."""

    opcode = "replica-id"
    arity = 0
    traits = Trait.SOURCE
    family = KernelFamily.FREE
    takes_context = True

    @staticmethod
    def infer() -> Shape:
        return Shape.array(dt.U32)

    @staticmethod
    def evaluate(*, context: Context) -> Array:
        return np.array(context.replica, np.uint32)


class PartitionId(Op):
    """The number of the executing partition, u32[]."""

    opcode = "partition-id"
    arity = 0
    traits = Trait.SOURCE
    family = KernelFamily.FREE
    takes_context = True

    @staticmethod
    def infer() -> Shape:
        return Shape.array(dt.U32)

    @staticmethod
    def evaluate(*, context: Context) -> Array:
        return np.array(context.partition, np.uint32)
