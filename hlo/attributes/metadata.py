"""metadata of an instruction: where it comes from in the user's program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from hlo.attributes.escape import quoted, unquoted
from hlo.attributes.ints import ints_text
from hlo.attributes.kind import AttributeKind
from hlo.attributes.scalars import checked_int32
from hlo.attributes.tree import Tree, fields, has, int64, ints_of, subtrees, tokens, unknown_field
from hlo.errors import Violation


class Metadata(Struct, frozen=True):
    """Fields in the order in which they are printed; "" and 0 mean absent."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    profile_type: tuple[int, ...] = ()
    deduplicated_name: str = ""
    scheduling_name: str = ""
    stack_frame_id: int = 0
    metadata_payload: str | None = None

    @property
    def is_shown(self) -> bool:
        """Whether XLA prints an instruction's metadata at all."""
        return bool(
            self.op_type
            or self.op_name
            or self.source_file
            or self.scheduling_name
            or self.stack_frame_id
            or self.metadata_payload is not None
        )


_STRINGS = (
    "op_type", "op_name", "source_file", "deduplicated_name", "scheduling_name", "metadata_payload",
)  # fmt: skip
_NUMBERS = (
    "source_line", "source_end_line", "source_column", "source_end_column", "stack_frame_id",
)  # fmt: skip


def build_metadata(tree: Tree) -> Metadata:
    """From rule kind_metadata."""
    found = {key: _field(key, field) for key, field in fields(tree, "metadata_field")}
    return Metadata(**found)  # type: ignore[arg-type]  # _field gives each its type


def metadata_of(fields: Mapping[str, str | int]) -> Metadata | None:
    """From strings and 32-bit numbers; None where a field is another one."""
    for key, value in fields.items():
        if key not in (_STRINGS if isinstance(value, str) else _NUMBERS):
            return None
    return Metadata(**fields)  # type: ignore[arg-type]  # each key with a value of its own type


def _field(key: str, field: Tree) -> object:
    if key in _STRINGS and has(field, "STRING"):
        return unquoted(tokens(field, "STRING")[0])
    if key in _NUMBERS and has(field, "INT"):
        return checked_int32(int64(tokens(field, "INT")[0]))
    if key == "profile_type" and subtrees(field, "kind_ints"):
        types = ints_of(subtrees(field, "kind_ints")[0])
        if all(0 <= t <= 3 for t in types):
            return types
        raise Violation("attribute-value", "", ints_text(types), "profile types from 0 to 3")
    if key in (*_STRINGS, *_NUMBERS, "profile_type"):
        form = "a string" if key in _STRINGS else "an integer" if key in _NUMBERS else "integers"
        raise Violation("attribute-value", "", f"another value for {key}", form)
    raise unknown_field(key, (*_STRINGS, *_NUMBERS, "profile_type"))


def metadata_text(metadata: Metadata, *, raw_scheduling_name: bool = False) -> str:
    """raw_scheduling_name: as XLA prints it, without escapes."""
    return "{" + " ".join(_field_texts(metadata, raw_scheduling_name=raw_scheduling_name)) + "}"


def _field_texts(m: Metadata, *, raw_scheduling_name: bool) -> Iterator[str]:
    for key in Metadata.__struct_fields__:
        value = getattr(m, key)
        if key == "metadata_payload":
            if value is not None:
                yield f"{key}={quoted(value)}"
        elif not value:
            continue
        elif key == "scheduling_name" and raw_scheduling_name:
            yield f'{key}="{value}"'
        elif isinstance(value, str):
            yield f"{key}={quoted(value)}"
        else:
            yield f"{key}={ints_text(value) if isinstance(value, tuple) else value}"


METADATA = AttributeKind("METADATA", "kind_metadata", build_metadata, metadata_text)
