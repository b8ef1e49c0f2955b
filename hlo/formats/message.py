"""Message: a protocol buffer as a value, and the types that the schema describes.

    schema.MESSAGES --message_type--> MessageType: its fields by number and by name
    Message(type): what fields are set to, and the bytes of those that the type does not know

Repeated fields are lists; numbers of a literal are NumPy arrays, for they may be many. Enumerations
are numbers. Strings hold bytes that are not UTF-8 as surrogates, so that they survive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct

from hlo.errors import HloError
from hlo.formats.schema import ENUMS, MESSAGES

DEEPEST = 200  # messages in messages; tuples may nest 120 deep, and lie some levels down
BULK = "LiteralProto"  # whose numbers are held as arrays
ARRAYS = {
    "int32": np.int32, "int64": np.int64, "uint32": np.uint32, "uint64": np.uint64,
    "float": np.float32, "double": np.float64, "bool": np.bool_,
}  # fmt: skip
ZEROS: dict[str, object] = {"string": "", "bytes": b"", "bool": False, "float": 0.0, "double": 0.0}
ENTRY = "Entry"  # ends the name of the type of a map's entries, which have a key and a value
SYNTHETIC = frozenset(("OriginalValueRecoveryTableProto.Entry",))  # called so, and no map's


class Field(Struct, frozen=True):
    """A field of a message, by its number.

    kind: a scalar type of protobuf, "message" or "enum"; of: which message or enumeration.
    """

    number: int
    name: str
    kind: str
    of: str
    is_repeated: bool
    has_presence: bool
    is_bulk: bool

    @property
    def is_map(self) -> bool:
        return self.is_repeated and self.of.endswith(ENTRY) and self.of not in SYNTHETIC

    @property
    def zero(self) -> object:
        return ZEROS.get(self.kind, 0)


class MessageType(Struct, frozen=True, eq=False):
    """A message's name and fields, in the order of their numbers."""

    name: str
    fields: dict[str, Field]
    by_number: dict[int, Field]

    @property
    def is_entry(self) -> bool:
        """Whether it is a map's: with a key and a value, which are always written."""
        return self.name.endswith(ENTRY) and self.name not in SYNTHETIC


@cache
def message_type(name: str) -> MessageType:
    """The type of a name of the schema."""
    rows = [row.split() for row in MESSAGES[name].split(";")]
    fields = [_field(name, int(number), field, kind) for number, field, kind in rows]
    return MessageType(name, {f.name: f for f in fields}, {f.number: f for f in fields})


def _field(owner: str, number: int, name: str, kind: str) -> Field:
    repeated, optional = kind.endswith("*"), kind.endswith("?")
    of = kind.rstrip("*?")
    held = "message" if of in MESSAGES else "enum" if of in ENUMS else of
    is_bulk = owner == BULK and repeated and held in ARRAYS
    presence = optional or (held == "message" and not repeated)
    return Field(number, name, held, of if held != of else "", repeated, presence, is_bulk)


@cache
def enum_words(name: str) -> dict[int, str]:
    """The words of an enumeration by number."""
    rows = [row.split() for row in ENUMS[name].split(";")]
    return {int(number): word for number, word in rows}


@cache
def enum_numbers(name: str) -> dict[str, int]:
    """The numbers of an enumeration by word."""
    return {word: number for number, word in enum_words(name).items()}


class Message:
    """Fields by name; one that is not set reads as its zero, or as an empty message."""

    __slots__ = ("type", "unknown", "values")

    def __init__(self, name: str, /, **values: object) -> None:
        self.type = message_type(name)
        self.values: dict[str, object] = {}
        self.unknown = b""  # fields that the type does not know, as they came
        for key, value in values.items():
            self[key] = value

    def __getitem__(self, name: str) -> object:
        value = self.values.get(name)
        if value is not None:
            return value
        field = self.type.fields[name]
        if field.is_repeated:
            return []
        return Message(field.of) if field.kind == "message" else field.zero

    def __setitem__(self, name: str, value: object) -> None:
        assert name in self.type.fields, f"{self.type.name} has no field {name}"
        self.values[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __repr__(self) -> str:
        return f"<{self.type.name} {', '.join(self.values)}>"

    def __eq__(self, other: object) -> bool:
        """Equal types, fields and unknown bytes; arrays are compared by their bits."""
        if not isinstance(other, Message):
            return NotImplemented
        return self.type is other.type and self.unknown == other.unknown and _same(self, other)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def number(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int), f"{name} is a number"
        return value

    def flag(self, name: str) -> bool:
        return bool(self[name])

    def real(self, name: str) -> float:
        value = self[name]
        assert isinstance(value, float | int), f"{name} is a number"
        return float(value)

    def text(self, name: str) -> str:
        """A string, or bytes as a string."""
        value = self[name]
        if isinstance(value, bytes):
            return value.decode("utf-8", "surrogateescape")
        assert isinstance(value, str), f"{name} is a string"
        return value

    def numbers(self, name: str) -> list[int]:
        value = self[name]
        assert isinstance(value, list), f"{name} is repeated"
        return value

    def child(self, name: str) -> Message:
        """The message of a field; an empty one, not put there, where it is not set."""
        value = self[name]
        assert isinstance(value, Message), f"{name} is a message"
        return value

    def children(self, name: str) -> list[Message]:
        value = self[name]
        assert isinstance(value, list), f"{name} is repeated"
        return value

    def word(self, name: str) -> str:
        """The word of an enumeration's value. Raises HloError where it has none."""
        field, number = self.type.fields[name], self.number(name)
        words = enum_words(field.of)
        if number not in words:
            message = f"{self.type.name}.{name} is {number}, expected one of {field.of}: "
            raise HloError("message", message + ", ".join(words.values()))
        return words[number]

    def set_word(self, name: str, word: str) -> None:
        """Set an enumeration by its word."""
        self[name] = enum_numbers(self.type.fields[name].of)[word]

    def put(self, name: str) -> Message:
        """The message of a field, put there where it is not set."""
        value = self.values.get(name)
        if value is None:
            value = self.values[name] = Message(self.type.fields[name].of)
        assert isinstance(value, Message), f"{name} is a message"
        return value

    def add(self, name: str, /, **values: object) -> Message:
        """A new message at the end of a repeated field."""
        made = Message(self.type.fields[name].of, **values)
        self.values.setdefault(name, []).append(made)  # type: ignore[attr-defined]  # a list
        return made

    def ordered(self) -> Iterator[tuple[Field, object]]:
        """The fields that are set, in the order of their numbers."""
        values = self.values
        if len(values) == 1:
            ((name, value),) = values.items()
            yield self.type.fields[name], value
            return
        for field in self.type.by_number.values():
            value = values.get(field.name)
            if value is not None:
                yield field, value


class Gathered:
    """What may come in many parts while messages are read, and is joined when all are there:
    numbers of literals, which become arrays, and fields that a type does not know.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], tuple[Message, Field, list[list[object]]]] = {}
        self._unknown: dict[int, tuple[Message, list[bytes]]] = {}

    def add(self, message: Message, field: Field, values: np.ndarray | Sequence[object]) -> None:
        """More numbers of a field, behind those that came before."""
        key = (id(message), field.number)
        if key not in self._parts:
            message.values[field.name] = []  # it has its place among the fields
            self._parts[key] = (message, field, [[]])
        parts: list[Any] = self._parts[key][2]
        if isinstance(values, np.ndarray):
            parts += (values, [])
        else:
            parts[-1].extend(values)

    def add_unknown(self, message: Message, data: bytes) -> None:
        """A field that the message's type does not know, with its tag."""
        self._unknown.setdefault(id(message), (message, []))[1].append(data)

    def settle(self) -> None:
        """Put what came into the messages."""
        for message, field, parts in self._parts.values():
            dtype = ARRAYS[field.kind]
            arrays: list[np.ndarray] = [np.asarray(p, dtype) for p in parts if len(p)] or [
                np.empty(0, dtype)
            ]
            message[field.name] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        for message, pieces in self._unknown.values():
            message.unknown += b"".join(pieces)


def as_float(kind: str, value: float) -> float:
    """A number as its type holds it: 32 bits of a float."""
    if kind == "double":
        return value
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _same(a: Message, b: Message) -> bool:
    """Whether all fields are equal; a stack goes down the messages."""
    pending = [(a, b)]
    while pending:
        x, y = pending.pop()
        if x.type is not y.type or x.values.keys() != y.values.keys() or x.unknown != y.unknown:
            return False
        for key, value in x.values.items():
            other = y.values[key]
            if isinstance(value, Message) and isinstance(other, Message):
                pending.append((value, other))
            elif isinstance(value, np.ndarray) and isinstance(other, np.ndarray):
                if value.tobytes() != other.tobytes():
                    return False
            elif value and isinstance(value, list) and isinstance(value[0], Message):
                assert isinstance(other, list), "a repeated field"
                if len(value) != len(other):
                    return False
                pending += zip(value, other, strict=True)
            elif value != other and repr(value) != repr(other):  # NaNs are equal here
                return False
    return True
