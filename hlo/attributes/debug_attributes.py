"""debug_attributes of a header: what newer XLA logs about original values (jaxlib 0.10.2: unknown).

debug_attributes={
  {"constant"}:({log_mode=default,callback_id=123,partitioned=true})
}
"""

from __future__ import annotations

from msgspec import Struct

from hlo.attributes.kind import AttributeKind
from hlo.attributes.origin import OriginalArray, array_text, build_array
from hlo.attributes.scalars import bool_text
from hlo.attributes.tree import Tree, fields, has, int64, subtrees, tokens, unknown_field
from hlo.errors import Violation


class DebugAttributes(Struct, frozen=True):
    """Only what was written is held; None is absent."""

    log_mode: str | None = None
    callback_id: int | None = None
    op_id: int | None = None
    partitioned: bool | None = None


class DebugEntry(Struct, frozen=True):
    """What is logged about one original value."""

    original: OriginalArray
    attributes: tuple[DebugAttributes, ...]


_FIELDS = ("log_mode", "callback_id", "op_id", "partitioned")


def _debug_attributes(tree: Tree) -> tuple[DebugEntry, ...]:
    return tuple(_entry(t) for t in subtrees(tree, "debug_entry"))


def _entry(tree: Tree) -> DebugEntry:
    original = build_array(subtrees(tree, "origin_array")[0]) or OriginalArray("")
    return DebugEntry(original, tuple(_attributes(t) for t in subtrees(tree, "debug_fields")))


def _attributes(tree: Tree) -> DebugAttributes:
    found: dict[str, object] = {}
    for key, field in fields(tree, "debug_field"):
        if key not in _FIELDS:
            raise unknown_field(key, _FIELDS)
        words, numbers = tokens(field, "IDENT"), tokens(field, "INT")
        if key == "log_mode" and words:
            found[key] = words[0]
        elif key == "partitioned" and not (words or numbers):
            found[key] = has(field, "TRUE")
        elif key in ("callback_id", "op_id") and numbers:
            found[key] = int64(numbers[0])
        else:
            raise Violation("attribute-value", "", f"another value for {key}", "its own form")
    return DebugAttributes(**found)  # type: ignore[arg-type]  # each key has its type above


def debug_attributes_text(entries: tuple[DebugEntry, ...]) -> str:
    """One row per original value."""
    return "{\n" + ",\n".join(map(_entry_text, entries)) + "\n}"


def _entry_text(entry: DebugEntry) -> str:
    items = ",".join("{" + ",".join(_field_texts(a)) + "}" for a in entry.attributes)
    return f"  {array_text(entry.original)}:({items})"


def _field_texts(attributes: DebugAttributes) -> list[str]:
    values = [(key, getattr(attributes, key)) for key in _FIELDS]
    return [
        f"{key}={bool_text(value) if isinstance(value, bool) else value}"
        for key, value in values
        if value is not None
    ]


DEBUG_ATTRIBUTES = AttributeKind(
    "DEBUG_ATTRIBUTES", "kind_debug_attributes", _debug_attributes, debug_attributes_text
)
