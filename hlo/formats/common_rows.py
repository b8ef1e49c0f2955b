"""Attributes that any instruction may carry, as fields of its message: one row each."""

from __future__ import annotations

from hlo.attributes.backend_config import string_or_dict_text
from hlo.attributes.frontend import frontend_attributes_text
from hlo.attributes.metadata import Metadata, metadata_text
from hlo.attributes.origin import Origin, origin_text
from hlo.attributes.result_accuracy import ResultAccuracy, Tolerance, result_accuracy_text
from hlo.attributes.statistics import Statistics, statistics_text
from hlo.errors import HloError
from hlo.formats.field_rows import Row
from hlo.formats.message import Message
from hlo.formats.metadata_message import (
    metadata_message,
    metadata_of_message,
    origin_message,
    origin_of,
)
from hlo.formats.sharding_message import sharding_message, sharding_text

KEY_SIGNS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


def frontend_text(message: Message) -> str | None:
    """The text of frontend attributes, sorted by key; None where there are none."""
    pairs = {e.text("key"): e.text("value") for e in message.children("map")}
    for key in pairs:
        if not key or not set(key) <= KEY_SIGNS or not (key[0].isalpha() or key[0] == "_"):
            raise HloError("message", f"a frontend attribute {key!r}, expected a name")
    return frontend_attributes_text(tuple(sorted(pairs.items()))) if pairs else None


def put_frontend(message: Message, pairs: object) -> None:
    """Set the frontend attributes of an instruction or a module."""
    for key, value in pairs:  # type: ignore[attr-defined]  # pairs of strings
        message.add("map", key=key, value=value)


def _read_replication(message: Message) -> str | None:
    flags = message.child("parameter_replication").numbers("replicated_at_leaf_buffers")
    return "{" + ",".join("true" if f else "false" for f in flags) + "}" if flags else None


def _write_replication(message: Message, value: object) -> None:
    held = message.put("parameter_replication")
    held["replicated_at_leaf_buffers"] = list(value)  # type: ignore[call-overload]  # flags


def _read_sharding(message: Message) -> str | None:
    return sharding_text(message.child("sharding")) if "sharding" in message else None


def _write_sharding(message: Message, value: object) -> None:
    message["sharding"] = sharding_message(value)  # type: ignore[arg-type]  # its kind


def _read_statistics(message: Message) -> str | None:
    held = message.child("statistics_viz")
    entries = tuple((s.text("stat_name"), s.real("stat_val")) for s in held.children("statistics"))
    index = held.number("stat_index_to_visualize")
    return statistics_text(Statistics(index, entries)) if entries or index else None


def _write_statistics(message: Message, value: object) -> None:
    assert isinstance(value, Statistics), "statistics"
    held = message.put("statistics_viz")
    held["stat_index_to_visualize"] = value.visualizing_index
    for name, number in value.entries:
        held.add("statistics", stat_name=name, stat_val=number)


def _read_accuracy(message: Message) -> str | None:
    held = message.child("result_accuracy")
    if "tolerance" in held:
        found = held.child("tolerance")
        tolerance = Tolerance(found.real("atol"), found.real("rtol"), found.number("ulps"))
        return result_accuracy_text(ResultAccuracy(tolerance=tolerance))
    mode = held.word("mode").lower()
    return None if mode == "default" else result_accuracy_text(ResultAccuracy(mode))


def _write_accuracy(message: Message, value: object) -> None:
    assert isinstance(value, ResultAccuracy), "an accuracy"
    if not value.is_shown:
        return
    held = message.put("result_accuracy")
    if value.tolerance is None:
        held.set_word("mode", value.mode.upper())
        return
    tolerance = held.put("tolerance")
    for name in ("atol", "rtol", "ulps"):
        tolerance[name] = getattr(value.tolerance, name)


def _read_origin(message: Message) -> str | None:
    if "original_value" not in message:
        return None
    return origin_text(origin_of(message.child("original_value")))


def _write_origin(message: Message, value: object) -> None:
    assert isinstance(value, Origin), "an origin"
    message["original_value"] = origin_message(value)


def _read_metadata(message: Message) -> str | None:
    if "metadata" not in message:
        return None
    metadata = metadata_of_message(message.child("metadata"))
    return metadata_text(metadata) if metadata != Metadata() else None


def _write_metadata(message: Message, value: object) -> None:
    assert isinstance(value, Metadata), "metadata"
    message["metadata"] = metadata_message(value)


def _read_config(message: Message) -> str | None:
    text = message.text("backend_config")
    return string_or_dict_text(text) if text else None


def _write_config(message: Message, value: object) -> None:
    message["backend_config"] = str(value).encode("utf-8", "surrogateescape")


def _write_frontend(message: Message, value: object) -> None:
    put_frontend(message.put("frontend_attributes"), value)


COMMON: dict[str, Row] = {
    "parameter_replication": Row(_read_replication, _write_replication),
    "sharding": Row(_read_sharding, _write_sharding),
    "frontend_attributes": Row(
        lambda m: frontend_text(m.child("frontend_attributes")), _write_frontend
    ),
    "statistics": Row(_read_statistics, _write_statistics),
    "result_accuracy": Row(_read_accuracy, _write_accuracy),
    "origin": Row(_read_origin, _write_origin),
    "metadata": Row(_read_metadata, _write_metadata),
    "backend_config": Row(_read_config, _write_config),
}
