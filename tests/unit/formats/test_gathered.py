"""What comes in many parts of a message is joined once, what is nothing is not there."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.formats import text_format, wire
from hlo.formats.message import Message

COUNT = 500
VARINT_OF_FIELD_9999 = wire.to_varint(9999 << 3)


@pytest.fixture(autouse=True)
def joins(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many arrays each call of concatenate was given."""
    calls: list[int] = []
    join = np.concatenate

    def counted(arrays: list[np.ndarray]) -> np.ndarray:
        calls.append(len(arrays))
        return join(arrays)

    monkeypatch.setattr(np, "concatenate", counted)
    return calls


def test_numbers_on_lines_of_their_own(joins: list[int]) -> None:
    text = "".join(f"s64s: {k}\nf32s: {k}.5\n" for k in range(COUNT)) + "s64s: [7, 8]\n"
    literal = text_format.parse_text(text, "LiteralProto")
    assert np.array_equal(literal["s64s"], [*range(COUNT), 7, 8])
    assert np.array_equal(literal["f32s"], np.arange(COUNT) + np.float32(0.5))
    assert not joins


def test_numbers_that_are_not_packed(joins: list[int]) -> None:
    packed = wire.encode(Message("LiteralProto", s64s=np.arange(3)))
    tag = wire.to_varint(Message("LiteralProto").type.fields["s64s"].number << 3)
    data = packed + b"".join(tag + wire.to_varint(k) for k in range(COUNT)) + packed
    literal = wire.decode(data, "LiteralProto")
    assert np.array_equal(literal["s64s"], [0, 1, 2, *range(COUNT), 0, 1, 2])
    assert len(joins) <= 3


def test_fields_that_are_not_known() -> None:
    text = "9999: 1\n" * COUNT
    literal = text_format.parse_text(text, "LiteralProto")
    assert literal.unknown == (VARINT_OF_FIELD_9999 + b"\1") * COUNT
    assert wire.decode(wire.encode(literal), "LiteralProto") == literal


def test_zeros_that_are_written_are_as_those_that_are_not() -> None:
    """Of a field that comes again the last one counts, a zero too."""
    number = Message("LayoutProto").type.fields["memory_space"].number
    tag = wire.to_varint(number << 3)
    assert wire.decode(tag + b"\0", "LayoutProto") == Message("LayoutProto")
    assert wire.decode(tag + b"\5" + tag + b"\0", "LayoutProto") == Message("LayoutProto")
    order = Message("LayoutProto").type.fields["minor_to_major"].number
    empty = wire.to_varint(order << 3 | 2) + b"\0"
    assert wire.decode(empty, "LayoutProto") == Message("LayoutProto")
