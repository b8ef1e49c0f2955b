"""What a kind's `build` may ask of a parse tree, without knowing the parser.

Before `build` is called the parser puts values in the place of three kinds of subtree: `shape`
becomes a Shape, `typed_literal` a Literal, `computation_body` the name of the computation it made.
A Violation raised by `build` has at="": the parser knows which attribute it is reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from hlo.errors import Violation

T = TypeVar("T")


class Tree(Protocol):
    """A node: the rule it follows and its parts (trees, tokens, values)."""

    @property
    def data(self) -> str: ...

    @property
    def children(self) -> Sequence[object]: ...


def token_type(part: object) -> str:
    """The terminal of a token, "" for anything else."""
    return getattr(part, "type", "")


def tokens(tree: Tree, *types: str) -> list[str]:
    """The texts of the node's own tokens of some terminals."""
    return [str(c.value) for c in tree.children if getattr(c, "type", "") in types]  # type: ignore[attr-defined]  # a token


def has(tree: Tree, *types: str) -> bool:
    """Whether one of the node's own tokens has one of the terminals."""
    return any(getattr(c, "type", "") in types for c in tree.children)


def subtrees(tree: Tree, *rules: str) -> list[Tree]:
    """The node's children that follow one of some rules."""
    return [c for c in tree.children if getattr(c, "data", "") in rules]  # type: ignore[misc]  # trees


def values(tree: Tree, kind: type[T]) -> list[T]:
    """The values of a type that the parser put among the node's children."""
    return [c for c in tree.children if isinstance(c, kind)]


def key_of(tree: Tree) -> str:
    """The name in front of the `=` of a field (the token may hold the sign)."""
    (key,) = tokens(tree, "ATTR")
    return key.rstrip("=").rstrip()


def name_of(token: object) -> str:
    """A name as it is referred to: without `%` in front, without `:` behind."""
    return str(token.value).removeprefix("%").removesuffix(":")  # type: ignore[attr-defined]  # a token


def int64(text: str) -> int:
    """An Int token: stored in 64 bits, so 2^63 and more wrap (docs/text.md 1.5)."""
    number = int(text)
    return number - (1 << 64) if number >= 1 << 63 else number


def ints_of(tree: Tree) -> tuple[int, ...]:
    """The node's own Int tokens."""
    return tuple(int64(text) for text in tokens(tree, "INT"))


def double(text: str) -> float:
    """An Int or Decimal token, `inf`, `-inf`, `nan`, `-nan(0x1)`; payloads are not kept."""
    bare = text.lstrip("-")
    if bare.startswith("nan"):
        return float("-nan" if text[0] == "-" else "nan")
    if bare == "inf":
        return float(text)
    return float(text) if "." in text or "e" in text or "E" in text else float(int64(text))


def bounded_double(text: str) -> float:
    """As `double`, for the places that refuse a Decimal too large for a double."""
    number = double(text)
    if abs(number) == float("inf") and "inf" not in text:
        raise Violation("attribute-value", "", text, "a number in the range of f64")
    return number


def fields(tree: Tree, rule: str) -> Iterator[tuple[str, Tree]]:
    """The `key=value` subtrees of a node with their keys; a repeated key is refused."""
    seen: set[str] = set()
    for field in subtrees(tree, rule):
        key = key_of(field)
        if key in seen:
            raise Violation("attribute-value", "", f"{key} twice", "each field at most once")
        seen.add(key)
        yield key, field


def unknown_field(key: str, allowed: Sequence[str]) -> Violation:
    """The error of a field that the kind does not have."""
    return Violation("attribute-value", "", f"a field {key}", "one of " + ", ".join(allowed))


def is_empty(field: Tree) -> bool:
    """Whether the field's value is `{}`, which the grammar reads as a metadata without fields."""
    items = subtrees(field, "metadata_items")
    inner = subtrees(items[0], "kind_metadata") if items else []
    return len(inner) == 1 and not has(items[0], "LBRACE") and len(inner[0].children) == 2
