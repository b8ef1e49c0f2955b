"""Copies: at once, or begun by one instruction and ended by another.

Source: docs/semantics.md 7.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from hlo.attributes.scalars import INT32
from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.shape import Shape, compatible
from hlo.ops.attributes import Attributes
from hlo.ops.shape_rules import text
from hlo.ops.table import KernelFamily, Op, Trait


class Copy(Op):
    """result = operand, of any kind; only the layout and the memory space may change."""

    opcode = "copy"
    arity = 1
    traits = (
        Trait.MOVEMENT
        | Trait.SAME_PLACE
        | Trait.FINISHES
        | Trait.CARRIES
        | Trait.MOVES_MEMORY
        | Trait.EXACT
    )
    family = KernelFamily.FREE

    @staticmethod
    def infer(x: Shape) -> Shape:
        return x

    @staticmethod
    def evaluate(x: object) -> object:
        return x


class CopyStartAttributes(Attributes, frozen=True):
    cross_program_prefetch_index: Annotated[int | None, INT32, "given"] = None


class CopyStart(Op):
    """(copy, operand, context u32[]): the start of an asynchronous copy.

    C1: the result is (operand's shape, operand's shape, u32[]), each up to layout.
    """

    opcode = "copy-start"
    arity = 1
    record = CopyStartAttributes
    traits = Trait.MOVEMENT
    family = KernelFamily.FREE
    done = "copy-done"
    inferable = False

    @staticmethod
    def infer(x: Shape, *, attrs: CopyStartAttributes) -> Shape:
        return Shape.tuple((x, x, Shape.array(dt.U32)))

    @staticmethod
    def evaluate(x: object, *, attrs: CopyStartAttributes) -> tuple[object, ...]:
        return x, x, np.uint32(0).reshape(())


class CopyDone(Op):
    """The first element of a copy-start's result.

    C1: the operand is (destination, source, context). C2: destination and source have equal shapes.
    """

    opcode = "copy-done"
    arity = 1
    traits = Trait.MOVEMENT
    family = KernelFamily.FREE
    inferable = False

    @staticmethod
    def infer(x: Shape) -> Shape:
        if len(x.elements) != 3:
            raise Violation("shape-mismatch", "operand 0", text(x), "(T, T, u32[])", "C1")
        if not compatible(x.elements[0], x.elements[1]):
            raise Violation("shape-mismatch", "operand 0", text(x), "two equal shapes", "C2")
        return x.elements[0]

    @staticmethod
    def evaluate(x: tuple[object, ...]) -> object:
        return x[0]
