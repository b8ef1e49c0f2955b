"""Rows: an attribute's value as a field of an instruction's message, in both directions.

    attribute's value --Row.write--> fields of HloInstructionProto --Row.read--> its text, or None

A path names a field in messages of the instruction: `gather_dimension_numbers.offset_dims`. What is
written are an attribute's values, defaults included; what is read is text, which the parser checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from hlo.attributes.escape import quoted
from hlo.attributes.ints import ints_text
from hlo.formats.message import Message

Read = Callable[[Message], str | None]
Write = Callable[[Message, object], None]


class Row(Struct, frozen=True):
    """read gives None where the message does not say the attribute."""

    read: Read
    write: Write


def _at(message: Message, path: str) -> tuple[Message, str]:
    """The message that a path's field is in, as it is read, and the field."""
    *outer, name = path.split(".")
    for part in outer:
        message = message.child(part)
    return message, name


def _put(message: Message, path: str) -> tuple[Message, str]:
    *outer, name = path.split(".")
    for part in outer:
        message = message.put(part)
    return message, name


def plain(path: str, read: Callable[[Message, str], str | None]) -> Row:
    """A field that holds the attribute's value as it is."""

    def write(message: Message, value: object) -> None:
        holder, name = _put(message, path)
        if value is not None:
            holder[name] = value

    return Row(lambda message: read(*_at(message, path)), write)


def ints(path: str) -> Row:
    """A list of numbers; text has it where it is empty, too."""

    def write(message: Message, value: object) -> None:
        holder, name = _put(message, path)
        if value:
            holder[name] = list(value)  # type: ignore[call-overload]  # a tuple of numbers

    return Row(lambda m: ints_text(tuple(_numbers(m, path))), write)


def _numbers(message: Message, path: str) -> list[int]:
    holder, name = _at(message, path)
    return holder.numbers(name)


def some_ints(path: str) -> Row:
    """A list of numbers of which text says nothing where it is empty."""
    row = ints(path)
    return Row(lambda m: row.read(m) if _numbers(m, path) else None, row.write)


def number(path: str) -> Row:
    """A number that text always has."""
    return plain(path, lambda holder, name: str(holder.number(name)))


def positive(path: str) -> Row:
    """A number of which text says nothing where it is zero or less."""
    return plain(path, lambda h, n: str(h.number(n)) if h.number(n) > 0 else None)


def flag(path: str) -> Row:
    """A flag of which text says nothing where it is not set."""
    return plain(path, lambda holder, name: "true" if holder.flag(name) else None)


def truth(path: str) -> Row:
    """A flag that text always has."""
    return plain(path, lambda holder, name: "true" if holder.flag(name) else "false")


def string(path: str) -> Row:
    """A word that text has without quotes."""
    return plain(path, lambda h, n: h.text(n) or None)


def quoted_string(path: str, default: str | None = None) -> Row:
    """A string between quotes; bytes in the message where its field is of bytes."""

    def read(message: Message) -> str | None:
        holder, name = _at(message, path)
        text = holder.text(name)
        return None if default is not None and text in ("", default) else quoted(text)

    def write(message: Message, value: object) -> None:
        holder, name = _put(message, path)
        assert isinstance(value, str), "a string"
        if value == default:
            return
        if holder.type.fields[name].kind == "bytes":
            holder[name] = value.encode("utf-8", "surrogateescape")
        else:
            holder[name] = value

    return Row(read, write)


def word(path: str, prefix: str = "", reduction: Callable[[str], str] = str, zero: str = "") -> Row:
    """An enumeration's word: in text without the prefix, in lower case where reduction says so.

    zero: the word of which text says nothing.
    """

    def read(message: Message) -> str | None:
        holder, name = _at(message, path)
        found = holder.word(name)
        return None if found == zero else reduction(found.removeprefix(prefix))

    def write(message: Message, value: object) -> None:
        holder, name = _put(message, path)
        text = str(value) if reduction is str else str(value).upper()
        holder.set_word(name, prefix + text)

    return Row(read, write)


def first(path: str) -> Row:
    """The one number of a list; text says nothing where there is none."""

    def read(message: Message) -> str | None:
        found = _numbers(message, path)
        return str(found[0]) if found else None

    def write(message: Message, value: object) -> None:
        if value != -1:
            message[path] = [value]

    return Row(read, write)


def parts(
    path: str,
    made: type,
    pairs: Mapping[str, str],
    print: Callable[..., str],
    *,
    always: bool = False,
) -> Row:
    """A repeated message whose fields are those of a struct; pairs: struct's field -> message's."""

    def read(message: Message) -> str | None:
        holder, name = _at(message, path)
        rows = [
            made(**{own: m[theirs] for own, theirs in pairs.items()}) for m in holder.children(name)
        ]
        return print(tuple(rows)) if rows or always else None

    def write(message: Message, value: object) -> None:
        holder, name = _put(message, path)
        for row in value:  # type: ignore[attr-defined]  # a tuple of structs
            holder.add(name, **{theirs: getattr(row, own) for own, theirs in pairs.items()})

    return Row(read, write)
