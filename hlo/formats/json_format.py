"""Protocol buffers as JSON, by the schema's table in both directions.

    Message --print_json--> text --parse_json--> Message

As protobuf maps them: names in camel case (those of the schema are read as well), 64-bit numbers as
strings, bytes in base 64, enumerations as words, maps as objects. What the schema does not know
stands under "@unknown". Source: protobuf.dev/programming-guides/json.
"""

from __future__ import annotations

import base64
import binascii
import json
import math

import numpy as np

from hlo.errors import HloError
from hlo.formats.message import ARRAYS, DEEPEST, Field, Message, as_float, enum_numbers, enum_words
from hlo.formats.text_format import RANGES, float_text

UNKNOWN = "@unknown"
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def print_json(message: Message) -> str:
    """The JSON text of a message, indented."""
    return json.dumps(_tree(message), indent=2, ensure_ascii=True) + "\n"


def camel(name: str) -> str:
    """`operand_ids` as `operandIds`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _tree(message: Message) -> dict[str, object]:
    """Calls itself for each level of messages, of which there are DEEPEST."""
    tree: dict[str, object] = {}
    for field, value in message.ordered():
        if field.is_map:
            assert isinstance(value, list), "a map's entries"
            tree[camel(field.name)] = {
                str(entry["key"]): _value(entry.type.fields["value"], entry["value"])
                for entry in value
            }
        elif field.is_repeated:
            parts = value.tolist() if isinstance(value, np.ndarray) else value
            assert isinstance(parts, list), "a repeated field"
            tree[camel(field.name)] = [_value(field, part) for part in parts]
        elif field.has_presence or value or value != field.zero or str(value) == "-0.0":
            tree[camel(field.name)] = _value(field, value)
    if message.unknown:
        tree[UNKNOWN] = base64.b64encode(message.unknown).decode()
    return tree


def _value(field: Field, value: object) -> object:
    kind = field.kind
    if isinstance(value, Message):
        return _tree(value)
    if kind in ("int64", "uint64"):
        return str(value)
    if kind == "bytes":
        assert isinstance(value, bytes), "bytes"
        return base64.b64encode(value).decode()
    if kind == "enum":
        assert isinstance(value, int), "an enumeration's number"
        return enum_words(field.of).get(value, value)
    if kind in ("float", "double"):
        assert isinstance(value, float | int), "a number"
        number = float(value)
        if math.isnan(number):
            return "NaN"
        if math.isinf(number):
            return "Infinity" if number > 0 else "-Infinity"
        return float(float_text(kind, number))
    return value


def parse_json(text: str, message_name: str, name: str = "<json>") -> Message:
    """The message of a type that a JSON text says. Raises HloError "message"."""
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise HloError("message", f"{name}: no JSON ({error})") from None
    except RecursionError:
        raise HloError("limit", f"{name}: JSON nested too deep") from None
    message = Message(message_name)
    _fill(message, tree, 0)
    return message


def _broken(where: str, found: object, expected: str) -> HloError:
    shown = json.dumps(found)[:60] if not isinstance(found, str) else found[:60]
    return HloError("message", f"{where} is {shown}, expected {expected}")


def _fill(message: Message, tree: object, depth: int) -> None:
    """Set a message's fields. Calls itself for each level, of which there are DEEPEST."""
    if depth > DEEPEST:
        raise HloError("limit", f"a message in {depth} others, expected at most {DEEPEST}")
    kind = message.type
    if not isinstance(tree, dict):
        raise _broken(kind.name, tree, "an object")
    known = {camel(f): field for f, field in kind.fields.items()}
    for key, value in tree.items():
        if key == UNKNOWN:
            message.unknown = _bytes(kind.name, value)
            continue
        field = known.get(key) or kind.fields.get(key)
        if field is None:
            raise HloError("message", f"{kind.name} has no field {key!r}, expected one of its own")
        if value is not None:
            _set(message, field, value, depth)


def _set(message: Message, field: Field, value: object, depth: int) -> None:
    where = f"{message.type.name}.{field.name}"
    if field.is_map:
        if not isinstance(value, dict):
            raise _broken(where, value, "an object")
        for key, part in value.items():
            entry = message.add(field.name)
            _set(entry, entry.type.fields["key"], key, depth)
            _set(entry, entry.type.fields["value"], part, depth)
    elif field.is_repeated:
        if not isinstance(value, list):
            raise _broken(where, value, "a list")
        if field.kind == "message":
            for part in value:
                _fill(message.add(field.name), part, depth + 1)
            return
        values = [_read(where, field, part) for part in value]
        message[field.name] = np.array(values, ARRAYS[field.kind]) if field.is_bulk else values
    elif field.kind == "message":
        _fill(message.put(field.name), value, depth + 1)
    else:
        message[field.name] = _read(where, field, value)


def _read(where: str, field: Field, value: object) -> object:
    kind = field.kind
    found: object = None
    if kind == "bytes":
        return _bytes(where, value)
    if kind == "string":
        found = value if isinstance(value, str) else None
    elif kind == "bool":
        found = value if isinstance(value, bool) else None
    elif kind in ("float", "double"):
        number = _float(value)
        found = None if number is None else as_float(kind, number)
    elif kind == "enum" and isinstance(value, str):
        found = enum_numbers(field.of).get(value)
    else:
        found = _integer(value, *RANGES[kind])
    if found is None:
        raise _broken(where, value, f"a value of {field.of or kind}")
    return found


def _integer(value: object, low: int, high: int) -> int | None:
    if isinstance(value, str) and len(value) < 40:
        try:
            value = int(value)
        except ValueError:
            return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if low <= value <= high else None


def _float(value: object) -> float | None:
    if isinstance(value, str):
        if value in SPECIAL:
            return SPECIAL[value]
        try:
            return float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _bytes(where: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise _broken(where, value, "a string in base 64")
    try:
        plain = value.replace("-", "+").replace("_", "/")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise _broken(where, value, "base 64") from None
