"""Ops on the run-time sizes of dimensions. Source: shared/OP_SEMANTICS_CONTROL.md section 4."""

from __future__ import annotations

from hlo.attributes.ints import INTS
from hlo.ops.table import Attr, Op, Trait


class GetDimensionSize(Op):
    """The run-time size of one dimension, s32[]."""

    opcode = "get-dimension-size"
    arity = 1
    attrs = {"dimensions": Attr(INTS)}


class SetDimensionSize(Op):
    """The operand with the run-time size of one dimension set to operand 1."""

    opcode = "set-dimension-size"
    arity = 2
    attrs = {"dimensions": Attr(INTS)}


class DynamicReshape(Op):
    """The operand's valid elements, row-major, under run-time sizes given by s32 scalars."""

    opcode = "dynamic-reshape"
    traits = Trait.MOVEMENT
    inferable = False
    takes_shape = True
