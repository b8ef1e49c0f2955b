"""Lists of integers `{0,1}` and lists of such lists `{{0,1},{2}}`."""

from __future__ import annotations

from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, ints_of, subtrees

Ints = tuple[int, ...]


def ints_text(numbers: Ints) -> str:
    """`{0,1}`."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _ints_list(tree: Tree) -> tuple[Ints, ...]:
    return tuple(ints_of(t) for t in subtrees(tree, "kind_ints"))


def ints_list_text(lists: tuple[Ints, ...]) -> str:
    """`{{0,1},{2}}`."""
    return "{" + ",".join(map(ints_text, lists)) + "}"


INTS = AttributeKind("INTS", "kind_ints", ints_of, ints_text)
INTS_LIST = AttributeKind("INTS_LIST", "kind_ints_list", _ints_list, ints_list_text)
