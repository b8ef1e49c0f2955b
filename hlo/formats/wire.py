"""Protocol buffers in binary form, by the schema's table in both directions.

    bytes --decode--> Message --encode--> the same bytes

Fields are written in the order of their numbers, unknown ones behind them as they came. Source: the
encoding as protobuf.dev/programming-guides/encoding describes it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np

from hlo.errors import HloError
from hlo.formats.message import ARRAYS, DEEPEST, Field, Gathered, Message

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIRES = {"float": FIXED32, "double": FIXED64, "string": BYTES, "bytes": BYTES, "message": BYTES}
FORMS = {"float": "<f", "double": "<d"}
LONGEST_VARINT = 10
_U64 = (1 << 64) - 1


def decode(data: bytes, name: str) -> Message:
    """The message of a type. Raises HloError "message" where the bytes are none."""
    made, gathered = Message(name), Gathered()
    _decode_into(made, data, 0, gathered)
    gathered.settle()
    return made


def _broken(message: Message, found: str, expected: str) -> HloError:
    return HloError("message", f"{message.type.name}: {found}, expected {expected}")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and where it ends. Raises IndexError behind the end."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    at += 1
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _U64, at
        shift += 7
        if shift >= 7 * LONGEST_VARINT:
            raise ValueError("a number of more than 10 bytes")


def _decode_into(message: Message, data: bytes, depth: int, gathered: Gathered) -> None:
    """Set a message's fields from bytes. Calls itself for each level, of which there are DEEPEST.

    As protobuf reads: of a field that comes again the last one counts, messages are merged.
    """
    if depth > DEEPEST:
        raise HloError("limit", f"a message in {depth} others, expected at most {DEEPEST}")
    fields = message.type.by_number
    at, end = 0, len(data)
    try:
        while at < end:
            start = at
            tag, at = varint(data, at)
            number, wire = tag >> 3, tag & 7
            value, at = _value(message, data, at, wire)
            field = fields.get(number)
            if field is None or not _takes(field, wire):
                if not 1 <= number < 1 << 29:
                    raise _broken(message, f"a field of number {number}", "1 to 536870911")
                gathered.add_unknown(message, data[start:at])
            else:
                _put(message, field, wire, value, depth, gathered)
    except (IndexError, struct.error):
        raise _broken(message, f"{end} bytes that end in a field", "whole fields") from None
    except ValueError as error:
        raise _broken(message, str(error), "at most 10") from None


def _value(message: Message, data: bytes, at: int, wire: int) -> tuple[int | bytes, int]:
    """What stands behind a tag: a number, or bytes; and where it ends."""
    if wire == VARINT:
        return varint(data, at)
    if wire == BYTES:
        size, at = varint(data, at)
    elif wire in (FIXED32, FIXED64):
        size = 4 if wire == FIXED32 else 8
    else:
        raise _broken(message, f"a field of wire type {wire}", "0, 1, 2 or 5")
    if at + size > len(data):
        raise _broken(message, f"{size} bytes in a field", f"the {len(data) - at} that are there")
    return data[at : at + size], at + size


def _takes(field: Field, wire: int) -> bool:
    own = WIRES.get(field.kind, VARINT)
    return wire == own or (wire == BYTES and field.is_repeated)


def _put(
    message: Message, field: Field, wire: int, value: int | bytes, depth: int, gathered: Gathered
) -> None:
    if field.kind == "message":
        assert isinstance(value, bytes), "a message is bytes"
        child = message.add(field.name) if field.is_repeated else message.put(field.name)
        _decode_into(child, value, depth + 1, gathered)
        if field.is_map:
            for part in child.type.fields:
                child.values.setdefault(part, child[part])
        return
    own = WIRES.get(field.kind, VARINT)
    if wire != own:  # packed, as repeated numbers are written
        assert isinstance(value, bytes), "packed numbers are bytes"
        if value:
            _extend(message, field, _packed(field, value), gathered)
    elif field.is_repeated:
        _extend(message, field, [_scalar(field, value)], gathered)
    else:
        _put_one(message, field, _scalar(field, value))


def _put_one(message: Message, field: Field, value: object) -> None:
    """A field that is there with its zero is as good as not there, if nothing tells them apart."""
    if field.has_presence or message.type.is_entry or _is_set(value):
        message.values[field.name] = value
    else:
        message.values.pop(field.name, None)


def _extend(
    message: Message, field: Field, values: np.ndarray | Sequence[object], gathered: Gathered
) -> None:
    if field.is_bulk:
        gathered.add(message, field, values)
        return
    known = message.values.setdefault(field.name, [])
    assert isinstance(known, list), "a repeated field"
    known.extend(values)


def _scalar(field: Field, value: int | bytes) -> object:
    kind = field.kind
    if isinstance(value, int):
        return _number(kind, value)
    if kind == "string":
        return value.decode("utf-8", "surrogateescape")
    if kind == "bytes":
        return value
    return struct.unpack(FORMS[kind], value)[0]


def _number(kind: str, value: int) -> int | bool:
    """A varint's number as its type has it: signed numbers are written as 64 bits."""
    if kind == "int64":
        return value - (1 << 64) if value >> 63 else value
    if kind in ("int32", "enum"):
        low = value & 0xFFFFFFFF
        return low - (1 << 32) if low >> 31 else low
    if kind == "bool":
        return value != 0
    return value & 0xFFFFFFFF if kind == "uint32" else value


def _packed(field: Field, data: bytes) -> np.ndarray | Sequence[object]:
    if field.kind in FORMS:
        kind = np.dtype(ARRAYS[field.kind]).newbyteorder("<")
        if len(data) % kind.itemsize:
            raise ValueError(f"{len(data)} bytes of packed {field.kind}")
        array = np.frombuffer(data, kind)
        return array if field.is_bulk else array.tolist()
    if field.is_bulk:
        return _unpacked_varints(data, ARRAYS[field.kind])
    return [_number(field.kind, value) for value in _varints(data)]


def _varints(data: bytes) -> Iterator[int]:
    at, end = 0, len(data)
    while at < end:
        value, at = varint(data, at)
        yield value


def _unpacked_varints(data: bytes, kind: type) -> np.ndarray:
    """All varints of packed bytes at once: bytes below 128 end one."""
    raw = np.frombuffer(data, np.uint8)
    if not raw.size:
        return np.empty(0, kind)
    ends = np.flatnonzero(raw < 0x80)
    if not ends.size or ends[-1] != raw.size - 1:
        raise IndexError("packed numbers end in a number")
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > LONGEST_VARINT:
        raise ValueError("a number of more than 10 bytes")
    values = np.zeros(starts.size, np.uint64)
    for k in range(int(lengths.max())):
        there = lengths > k
        part = (raw[starts[there] + k] & 0x7F).astype(np.uint64)
        values[there] |= part << np.uint64(7 * k)
    return values != 0 if kind is np.bool_ else values.astype(kind)


# -- writing -----------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """The bytes of a message. Calls itself for each level of messages."""
    pieces: list[bytes] = []
    is_entry = message.type.is_entry
    for field, value in message.ordered():
        pieces += _written(field, value, is_entry=is_entry)
    pieces.append(message.unknown)
    return b"".join(pieces)


def _written(field: Field, value: object, *, is_entry: bool) -> Iterator[bytes]:
    kind = field.kind
    if field.is_repeated:
        yield from _written_repeated(field, value)
    elif kind == "message":
        assert isinstance(value, Message), "a message"
        yield from _framed(field, encode(value))
    elif field.has_presence or is_entry or _is_set(value):
        if WIRES.get(kind) == BYTES:
            yield from _framed(field, _raw(value))
        else:
            yield to_varint(field.number << 3 | WIRES.get(kind, VARINT))
            yield _one(kind, value)


def _is_set(value: object) -> bool:
    """Whether a value is none that its field has anyway; -0.0 is written."""
    return bool(value) or (isinstance(value, float) and struct.pack("<d", value) != bytes(8))


def _written_repeated(field: Field, value: object) -> Iterator[bytes]:
    assert isinstance(value, list | np.ndarray), "a repeated field"
    if field.kind == "message":
        for part in value:
            yield from _framed(field, encode(part))
    elif WIRES.get(field.kind) == BYTES:
        for part in value:
            yield from _framed(field, _raw(part))
    elif len(value):
        yield from _framed(field, _pack(field.kind, value))


def _raw(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    assert isinstance(value, bytes), "a string or bytes"
    return value


def _framed(field: Field, data: bytes) -> tuple[bytes, bytes, bytes]:
    return to_varint(field.number << 3 | BYTES), to_varint(len(data)), data


def _one(kind: str, value: object) -> bytes:
    if kind in FORMS:
        return struct.pack(FORMS[kind], value)
    assert isinstance(value, int), "a number"
    return to_varint(value)


def to_varint(value: int) -> bytes:
    """The shortest varint of a number; a negative one as 64 bits."""
    if 0 <= value < 0x80:
        return _SHORT[value]
    value &= _U64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORT = tuple(bytes([n]) for n in range(0x80))


def _pack(kind: str, values: np.ndarray | list[object]) -> bytes:
    if kind in FORMS:
        return np.asarray(values, np.dtype(ARRAYS[kind]).newbyteorder("<")).tobytes()
    if isinstance(values, np.ndarray):
        return _packed_varints(values)
    return b"".join([to_varint(v) for v in values])  # type: ignore[arg-type]  # numbers


def _packed_varints(values: np.ndarray) -> bytes:
    """All numbers of an array at once: as many bytes of each as it needs."""
    wide = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values
    wide = wide.astype(np.uint64)
    lengths = np.ones(wide.size, np.int64)
    for k in range(1, LONGEST_VARINT):
        lengths += wide >> np.uint64(7 * k) != 0
    ends = np.cumsum(lengths)
    out = np.zeros(int(ends[-1]), np.uint8)
    starts = ends - lengths
    for k in range(int(lengths.max())):
        there = lengths > k
        more = np.where(lengths[there] > k + 1, 0x80, 0).astype(np.uint8)
        out[starts[there] + k] = (wide[there] >> np.uint64(7 * k)).astype(np.uint8) & 0x7F | more
    return out.tobytes()
