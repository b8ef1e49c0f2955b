"""A convolution whose features lie planes apart, on arrays in which they lie side by side.

convolution of [images, features, ..] --features_last--> of turned factors, result as it was

Matrix units read depth in runs of memory, of which windows with features last have one for each of
their rows. Where features are planes apart a run is a row of the window, and to turn each window's
numbers while it is packed takes as many times as long as windows share them.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from hlo.attributes.dim_labels import DimLabels
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.convolutions.convolution import (
    AS_THEY_ARE,
    convolution_contraction,
)
from hlo.backend.kernels.contraction.convolutions.held import held_as_multiplied
from hlo.backend.kernels.contraction.matrix_units.amx import tile_plan
from hlo.backend.kernels.contraction.problem.axes import normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.problem.tiles import tiles_of
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.convolution import ConvolutionAttributes

Order = tuple[int, ...]


class Turned(Struct, frozen=True):
    """A convolution whose arrays are turned first, and its result back.

    convolution: of arrays in new orders; orders: of base and kernel, () where one stays.
    """

    convolution: Instruction
    orders: tuple[Order, Order]


def features_last(instruction: Instruction, target: Target) -> Turned | None:
    """The convolution on turned factors where matrix units serve that; None where features lie side
    by side, or a window has one element and rows of the base are whole tiles as they lie.
    """
    attrs = ConvolutionAttributes.of(instruction.attributes)
    rank, labels = instruction.shape.rank, attrs.dim_labels
    if labels.lhs_feature == rank - 1:
        return None
    ring = ring_of(instruction.shape.dtype, target)
    c = normal(convolution_contraction(instruction, AS_THEY_ARE)[0], ring.lanes)
    if tiles_of(c, ring) is None:
        return None
    is_point = all(dim.size == 1 for dim in attrs.window.dims)
    if is_point and tile_plan(c, ring) is not None:
        return None
    base = (labels.lhs_batch, *labels.lhs_spatial, labels.lhs_feature)
    kernel: Order = (labels.rhs_output_feature, *labels.rhs_spatial, labels.rhs_input_feature)
    if labels.rhs_input_feature == rank - 1 or labels.rhs_output_feature == rank - 1:
        kernel = ()
    turned = _turned(instruction, labels, (base, kernel))
    made = normal(held_as_multiplied(turned.convolution, target)[0], ring.lanes)
    return turned if tile_plan(made, ring) is not None else None


def _turned(instruction: Instruction, labels: DimLabels, orders: tuple[Order, Order]) -> Turned:
    """The convolution of stand-ins for its operands in these orders."""
    body = Computation("features_last")
    moved = [
        body.new("parameter", _in_order(operand.shape, order), (), {"parameter_number": number})
        for number, (operand, order) in enumerate(zip(instruction.operands, orders, strict=True))
    ]
    rank = instruction.shape.rank
    inner = tuple(range(1, rank - 1))
    new = replace(labels, lhs_batch=0, lhs_spatial=inner, lhs_feature=rank - 1)
    if orders[1]:
        new = replace(new, rhs_output_feature=0, rhs_spatial=inner, rhs_input_feature=rank - 1)
    attributes = {**instruction.attributes, "dim_labels": new}
    convolution = body.new("convolution", instruction.shape, moved, attributes)
    return Turned(convolution, orders)


def _in_order(shape: Shape, order: Order) -> Shape:
    return Shape.array(shape.dtype, tuple(shape.dims[d] for d in order)) if order else shape
