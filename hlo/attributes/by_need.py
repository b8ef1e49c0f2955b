"""Kinds of attributes that few programs have, by name; each is imported when it is asked for."""

from __future__ import annotations

from functools import cache

from hlo.attributes.kind import AttributeKind


@cache
def kind_named(name: str) -> AttributeKind:
    """One of those that any instruction or header may have, or that a call of another has."""
    kind = _of_instructions(name) or _of_headers(name)
    assert kind is not None, f"{name} is a kind"
    return kind


def _of_instructions(name: str) -> AttributeKind | None:
    match name:
        case "BACKEND_CONFIG":
            from hlo.attributes.backend_config import BACKEND_CONFIG as kind
        case "FRONTEND_ATTRIBUTES":
            from hlo.attributes.frontend import FRONTEND_ATTRIBUTES as kind
        case "METADATA":
            from hlo.attributes.metadata import METADATA as kind
        case "ORIGIN":
            from hlo.attributes.origin import ORIGIN as kind
        case "RESULT_ACCURACY":
            from hlo.attributes.result_accuracy import RESULT_ACCURACY as kind
        case "SHARDING":
            from hlo.attributes.sharding import SHARDING as kind
        case "STATISTICS":
            from hlo.attributes.statistics import STATISTICS as kind
        case _:
            return None
    return kind


def _of_headers(name: str) -> AttributeKind | None:
    match name:
        case "BUFFER_DONOR":
            from hlo.attributes.aliasing import BUFFER_DONOR as kind
        case "DEBUG_ATTRIBUTES":
            from hlo.attributes.debug_attributes import DEBUG_ATTRIBUTES as kind
        case "ENTRY_LAYOUT":
            from hlo.attributes.shapes import ENTRY_LAYOUT as kind
        case "INPUT_OUTPUT_ALIAS":
            from hlo.attributes.aliasing import INPUT_OUTPUT_ALIAS as kind
        case "ORIGIN_RECOVERY_TABLE":
            from hlo.attributes.origin import ORIGIN_RECOVERY_TABLE as kind
        case "OUTPUT_TO_OPERAND_ALIASING":
            from hlo.attributes.aliasing import OUTPUT_TO_OPERAND_ALIASING as kind
        case _:
            return None
    return kind
