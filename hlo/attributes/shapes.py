"""Shapes as attributes: one, a list, and the entry's parameters and result."""

from __future__ import annotations

from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, values
from hlo.ir.shape import ProgramShape, Shape, join_indexed, shape_text


def _shape(tree: Tree) -> Shape:
    (shape,) = values(tree, Shape)
    return shape


def _shapes(tree: Tree) -> tuple[Shape, ...]:
    return tuple(values(tree, Shape))


def shapes_text(shapes: tuple[Shape, ...]) -> str:
    """`{a, b}`, with layouts."""
    return "{" + ", ".join(map(shape_text, shapes)) + "}"


def _entry_layout(tree: Tree) -> ProgramShape:
    *parameters, result = values(tree, Shape)
    return ProgramShape(tuple(parameters), result)


def entry_layout_text(layout: ProgramShape) -> str:
    """`{(a, b)->c}`, with layouts."""
    parameters = join_indexed([shape_text(p) for p in layout.parameters])
    return f"{{({parameters})->{shape_text(layout.result)}}}"


SHAPE = AttributeKind("SHAPE", "kind_shape", _shape, shape_text)
SHAPES = AttributeKind("SHAPES", "kind_shapes", _shapes, shapes_text)
ENTRY_LAYOUT = AttributeKind("ENTRY_LAYOUT", "kind_entry_layout", _entry_layout, entry_layout_text)
