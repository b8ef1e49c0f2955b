"""Protocol buffers in text form (pbtxt), by the schema's table in both directions.

    text --parse_text--> Message --print_text--> text

As protobuf prints: a line a field, messages in braces; read as well are lists, `<>`, commas and
semicolons, comments. Fields that the schema does not know stand under their number, with bytes as a
string and fixed numbers in hexadecimal, and read back. NaNs lose their payload, as protobuf's do.
Source: protobuf.dev/reference/protobuf/textformat-spec.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from hlo.attributes.escape import escaped, unquoted
from hlo.errors import HloError, Violation
from hlo.formats.message import (
    DEEPEST,
    Field,
    Gathered,
    Message,
    as_float,
    enum_numbers,
    enum_words,
)
from hlo.formats.wire import BYTES, FIXED32, FIXED64, VARINT, to_varint, varint
from hlo.source import Source, Span

TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n]+|\#[^\n]*)+)|(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<number>-?\s*(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fF]?)"""
    r"""|(?P<word>-?\s*[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>[{}<>\[\]:;,])"""
)
CLOSING = {"{": "}", "<": ">"}
RANGES = {
    "int32": (-(1 << 31), (1 << 31) - 1), "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1), "uint64": (0, (1 << 64) - 1),
    "enum": (-(1 << 31), (1 << 31) - 1),
}  # fmt: skip
SPECIAL = {"inf": math.inf, "infinity": math.inf, "nan": math.nan}
TRUTH = {"true": True, "True": True, "t": True, "1": True}
TRUTH |= {"false": False, "False": False, "f": False, "0": False}


# -- writing -----------------------------------------------------------------------------------


def print_text(message: Message) -> str:
    """The text of a message."""
    return "".join(_lines(message))


def _lines(message: Message) -> Iterator[str]:
    """Lines of a message and of those in it; a stack of what is still to be written."""
    stack: list[Iterator[str | tuple[str, Message]]] = [_rows(message)]
    while stack:
        row = next(stack[-1], None)
        indent = "  " * (len(stack) - 1)
        if row is None:
            stack.pop()
            if stack:
                yield "  " * (len(stack) - 1) + "}\n"
        elif isinstance(row, str):
            yield f"{indent}{row}\n"
        else:
            yield f"{indent}{row[0]} {{\n"
            stack.append(_rows(row[1]))


def _rows(message: Message) -> Iterator[str | tuple[str, Message]]:
    is_entry = message.type.is_entry
    for field, value in message.ordered():
        values = value if field.is_repeated else (value,)
        assert isinstance(values, tuple | list | np.ndarray), "a repeated field"
        for part in values.tolist() if isinstance(values, np.ndarray) else values:
            if isinstance(part, Message):
                yield field.name, part
            elif field.is_repeated or field.has_presence or is_entry or _is_shown(part):
                yield f"{field.name}: {_text(field, part)}"
    yield from _unknown_rows(message.unknown)


def _is_shown(value: object) -> bool:
    return bool(value) or (isinstance(value, float) and math.copysign(1, value) < 0)


def _text(field: Field, value: object) -> str:
    kind = field.kind
    if kind == "bool":
        return "true" if value else "false"
    if kind == "enum":
        assert isinstance(value, int), "an enumeration's number"
        return enum_words(field.of).get(value, str(value))
    if kind in ("float", "double"):
        assert isinstance(value, float | int), "a number"
        return float_text(kind, float(value))
    if kind == "string":
        return f'"{escaped(str(value))}"'
    if kind == "bytes":
        assert isinstance(value, bytes), "bytes"
        return _quoted(value)
    return str(value)


def _quoted(data: bytes) -> str:
    return f'"{escaped(data.decode("utf-8", "surrogateescape"))}"'


def float_text(kind: str, value: float) -> str:
    """The shortest text that reads as the same number of the type."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value) if kind == "double" else str(np.float32(value))
    return text.removesuffix(".0")


def _unknown_rows(data: bytes) -> Iterator[str]:
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = varint(data, at)
            yield f"{number}: {value}"
            continue
        if wire == BYTES:
            size, at = varint(data, at)
            yield f"{number}: {_quoted(data[at : at + size])}"
        else:
            size = 4 if wire == FIXED32 else 8
            yield f"{number}: 0x{int.from_bytes(data[at : at + size], 'little'):0{2 * size}x}"
        at += size


# -- reading -----------------------------------------------------------------------------------


def parse_text(text: str, message_name: str, name: str = "<text>") -> Message:
    """The message of a type that a text says. Raises HloError "message" with the place."""
    reader = _Reader(text, name)
    made = reader.message(Message(message_name))
    reader.gathered.settle()
    return made


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._at = 0
        self._start = 0
        self._kind, self._word = "", ""
        self.gathered = Gathered()
        self._next()

    def _next(self) -> None:
        """Go to the next token; at the end its kind is "end"."""
        while True:
            self._start = self._at
            match = TOKEN.match(self._text, self._at)
            if match is None:
                self._kind, self._word = "end", "the end"
                if self._at < len(self._text):
                    raise self._error(repr(self._text[self._at]), "a field")
                return
            self._at = match.end()
            self._kind, self._word = str(match.lastgroup), match.group()
            if self._kind != "space":
                return

    def _error(self, found: str, expected: str) -> HloError:
        source = Source(self._name, self._text)
        end = max(self._at, min(self._start + 1, len(self._text)))
        message = f"protocol buffer text: {found}, expected {expected}"
        return HloError("message", message, Span(source, self._start, end))

    def _took(self, sign: str) -> bool:
        if self._kind == "sign" and self._word == sign:
            self._next()
            return True
        return False

    def message(self, top: Message) -> Message:
        """All fields to the end; messages are opened and closed on a stack."""
        stack: list[tuple[Message, str]] = [(top, "")]
        lists: list[tuple[Field, int]] = []  # open lists of messages, and how deep they stand
        while True:
            message, closing = stack[-1]
            if closing and self._took(closing):
                stack.pop()
                opened = self._in_list(lists, stack)
                if opened is not None:
                    stack.append(opened)
                else:
                    self._took(",") or self._took(";")
                continue
            if self._kind == "end":
                if closing:
                    raise self._error("the end", f"{closing} behind the fields of a message")
                return top
            opened = self._field(message, lists, len(stack))
            if opened is not None:
                stack.append(opened)
                if len(stack) > DEEPEST:
                    message_ = f"{self._name}: a message in {DEEPEST} others"
                    raise HloError("limit", f"{message_}, expected at most {DEEPEST}")

    def _in_list(
        self, lists: list[tuple[Field, int]], stack: list[tuple[Message, str]]
    ) -> tuple[Message, str] | None:
        """The next message of the list that the one just closed stands in, if there is one."""
        if not lists or lists[-1][1] != len(stack):
            return None
        if self._took("]"):
            lists.pop()
            return None
        if not self._took(","):
            raise self._error(self._word, "a comma or ] behind a message of a list")
        return self._opened(stack[-1][0], lists[-1][0])

    def _opened(self, message: Message, field: Field) -> tuple[Message, str]:
        sign = self._word
        if self._kind != "sign" or sign not in CLOSING:
            raise self._error(sign, f"{{ and the fields of {field.name}")
        self._next()
        child = message.add(field.name) if field.is_repeated else message.put(field.name)
        return child, CLOSING[sign]

    def _field(
        self, message: Message, lists: list[tuple[Field, int]], depth: int
    ) -> tuple[Message, str] | None:
        """Read a field; gives the message that it opens, if it is one."""
        if self._kind == "number" and self._word.isdigit():
            self._unknown(message)
            return None
        field = message.type.fields.get(self._word) if self._kind == "word" else None
        if field is None:
            raise self._error(f"{self._word}", f"a field of {message.type.name}")
        self._next()
        colon = self._took(":")
        if field.kind == "message":
            if field.is_repeated and self._took("["):
                if self._took("]"):
                    return None
                lists.append((field, depth))
            return self._opened(message, field)
        if not colon:
            raise self._error(self._word, f": behind {field.name}")
        self._values(message, field)
        self._took(",") or self._took(";")
        return None

    def _values(self, message: Message, field: Field) -> None:
        values: list[object] = []
        if not field.is_repeated:
            message[field.name] = self._value(field)
            return
        if not self._took("["):
            values.append(self._value(field))
        elif not self._took("]"):
            values.append(self._value(field))
            while not self._took("]"):
                if not self._took(","):
                    raise self._error(self._word, "a comma or ] in a list")
                values.append(self._value(field))
        if field.is_bulk:
            self.gathered.add(message, field, values)
            return
        known = message.values.setdefault(field.name, [])
        assert isinstance(known, list), "a repeated field"
        known += values

    def _value(self, field: Field) -> object:
        kind, word = field.kind, self._word
        if kind in ("string", "bytes"):
            return self._string(as_bytes=kind == "bytes")
        if self._kind not in ("number", "word"):
            raise self._error(word, f"a value of {field.name}")
        value: object = None
        if kind == "bool":
            value = TRUTH.get(word)
        elif kind in ("float", "double"):
            found = _float(word)
            value = None if found is None else as_float(kind, found)
        elif kind == "enum" and self._kind == "word":
            value = enum_numbers(field.of).get(word)
        else:
            value = _integer(word, *RANGES[kind])
        if value is None:
            raise self._error(word, f"a value of {field.name}, {field.of or kind}")
        self._next()
        return value

    def _string(self, *, as_bytes: bool) -> str | bytes:
        """One string, or several that follow each other."""
        if self._kind != "string":
            raise self._error(self._word, "a string")
        parts = []
        while self._kind == "string":
            try:
                parts.append(unquoted(self._word).encode("utf-8", "surrogateescape"))
            except (Violation, UnicodeEncodeError):
                raise self._error("a broken escape", "C escapes") from None
            self._next()
        joined = b"".join(parts)
        return joined if as_bytes else joined.decode("utf-8", "surrogateescape")

    def _unknown(self, message: Message) -> None:
        """A field under its number."""
        number = int(self._word) if len(self._word) < 10 else 0
        if not 1 <= number < 1 << 29:
            raise self._error(f"a field of number {self._word}", "1 to 536870911")
        self._next()
        if not self._took(":"):
            raise self._error(self._word, ": behind a field's number")
        if self._kind == "string":
            data = self._string(as_bytes=True)
            assert isinstance(data, bytes), "asked for"
            tag = to_varint(number << 3 | BYTES)
            self.gathered.add_unknown(message, tag + to_varint(len(data)) + data)
            return
        value = _integer(self._word, 0, (1 << 64) - 1) if self._kind == "number" else None
        if value is None:
            raise self._error(self._word, "a number or a string")
        if self._word.startswith("0x"):
            size = 4 if len(self._word) <= 10 else 8
            tag = to_varint(number << 3 | (FIXED32 if size == 4 else FIXED64))
            self.gathered.add_unknown(message, tag + value.to_bytes(size, "little"))
        else:
            tag = to_varint(number << 3 | VARINT)
            self.gathered.add_unknown(message, tag + to_varint(value))
        self._next()


def _integer(word: str, low: int, high: int) -> int | None:
    plain = word.replace(" ", "")
    if len(plain) > 40:
        return None
    try:
        value = int(plain, 16 if "x" in plain.lower() else 8 if _is_octal(plain) else 10)
    except ValueError:
        return None
    return value if low <= value <= high else None


def _is_octal(word: str) -> bool:
    digits = word.lstrip("-")
    return len(digits) > 1 and digits.startswith("0") and digits.isdigit()


def _float(word: str) -> float | None:
    plain = "".join(word.split()).lower()
    sign = -1.0 if plain.startswith("-") else 1.0
    special = SPECIAL.get(plain.lstrip("-"))
    if special is not None:
        return sign * special
    try:
        return float(plain.removesuffix("f"))
    except ValueError:
        return None
