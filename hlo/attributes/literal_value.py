"""A literal as an attribute (custom-call's `literal=`): a shape and a value, or a tuple of them."""

from __future__ import annotations

from hlo.attributes.kind import AttributeKind
from hlo.attributes.literal_text import typed_literal_text
from hlo.attributes.tree import Tree, values
from hlo.ir.literal import Literal


def _literal(tree: Tree) -> Literal:
    """The parser has put a Literal in the place of `typed_literal`."""
    (literal,) = values(tree, Literal)
    return literal


LITERAL = AttributeKind("LITERAL", "kind_literal", _literal, typed_literal_text)
