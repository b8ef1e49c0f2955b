"""Broken protocol buffers, binary and text, give a module or one HloError: no crash, no hang."""

from __future__ import annotations

import random
from functools import cache

import pytest

from hlo.errors import HloError
from hlo.formats import json_format, text_format, wire
from hlo.formats.module_message import module_message
from hlo.formats.reading import candidates
from hlo.formats.writing import hlo_proto
from hlo.parser.parse import parse
from hlo.verifier.verify import verify
from tests.support.op_files import cases

MOST_BYTES = 4000


@cache
def seeds() -> tuple[bytes, ...]:
    """Small programs of many opcodes as HloProto."""
    texts = [case.text for case in cases()[::23] if "ERROR" not in case.values]
    messages = [wire.encode(hlo_proto(parse(text))) for text in texts]
    return tuple(m for m in messages if len(m) <= MOST_BYTES)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """One to four bytes changed, cut out, put in, or copied from elsewhere."""
    made = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(made)) if made else 0
        match draw.randrange(5):
            case 0:
                made[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                del made[at : at + draw.randint(1, 8)]
            case 2:
                made[at:at] = draw.randbytes(draw.randint(1, 4))
            case 3:
                there = draw.randrange(len(data))
                made[at : at + 8] = data[there : there + 8]
            case _:
                made[at : at + 1] = bytes([made[at] ^ (1 << draw.randrange(8))]) if made else b""
    return bytes(made)


def check_read(data: bytes) -> bool:
    """Whether bytes are read as a module, which can then be verified and written again."""
    try:
        for candidate in candidates("mutated.pb", data):
            module = candidate.read().module
            module_message(module)
            verify(module)
    except HloError:
        return False
    return True


def check_mutations(seed: int, count: int) -> int:
    draw = random.Random(seed)
    return sum(check_read(mutated(draw.choice(seeds()), draw)) for _ in range(count))


@pytest.mark.parametrize("seed", range(6))
def test_mutated_messages(seed: int) -> None:
    assert 0 < check_mutations(seed, 500) < 500


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_mutated_messages_often(seed: int) -> None:
    check_mutations(seed, 1000)


@pytest.mark.parametrize("form", ["text", "json"])
def test_mutated_text_forms(form: str) -> None:
    draw = random.Random(form)
    print_form = text_format.print_text if form == "text" else json_format.print_json
    printed = [print_form(wire.decode(data, "HloProto")).encode() for data in seeds()[::4]]
    read = sum(check_read(mutated(draw.choice(printed), draw)) for _ in range(400))
    assert 0 < read < 400


@pytest.mark.parametrize("seed", range(3))
def test_what_the_codec_reads_it_writes_again(seed: int) -> None:
    """Also of broken messages: the second time nothing changes."""
    draw = random.Random(seed)
    for _ in range(500):
        data = mutated(draw.choice(seeds()), draw)
        try:
            message = wire.decode(data, "HloProto")
        except HloError:
            continue
        written = wire.encode(message)
        assert wire.decode(written, "HloProto") == message
        assert wire.encode(wire.decode(written, "HloProto")) == written


def test_deep_messages() -> None:
    shape = b""
    for _ in range(5000):  # tuple_shapes in tuple_shapes
        shape = b"\x22" + wire.to_varint(len(shape)) + shape
    with pytest.raises(HloError, match="others"):
        wire.decode(shape, "ShapeProto")
    with pytest.raises(HloError, match="others"):
        text_format.parse_text("tuple_shapes {" * 5000, "ShapeProto")
    with pytest.raises(HloError, match=r"deep|others"):
        json_format.parse_json('{"tupleShapes":[' * 5000 + "]}" * 5000, "ShapeProto")
