"""Mutated programs: the verifier ends with HloErrors or with nothing, whatever was parsed."""

import random
import re
from pathlib import Path

import pytest

from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.parser.parse import parse
from hlo.verifier.verify import verify

OPS = Path(__file__).parents[1] / "ops"
NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "4",
    "7",
    "-1",
    "-2",
    "<=3",
    "?",
    "1000000007",
    "9223372036854775807",
]
TYPES = ["pred", "s4", "s32", "u8", "u64", "bf16", "f32", "f64", "c64", "token", "f8e4m3fn"]
SHAPES = ["()", "(f32[2])", "token[]", "f32[]", "f32[2,3]", "(f32[2], u32[], token[])", "s32[0]"]
NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")
TYPE = re.compile(r"\b(?:pred|[suf]\d+|bf16|c64)(?=\[)")
SHAPE = re.compile(r"\b(?:pred|[suf]\d+|bf16|c64)\[[\d,<=]*\]")


def seeds() -> list[str]:
    """All programs of tests/ops."""
    texts = (file.read_text() for file in sorted(OPS.glob("*.hlo")))
    return [part for text in texts for part in re.split(r"^// -----.*\n", text, flags=re.M)]


def mutated(text: str, random_: random.Random) -> str:
    """The text with one to three numbers, types, shapes or operands exchanged for others."""
    for _ in range(random_.randint(1, 3)):
        kind = random_.randrange(4)
        pattern, values = [(NUMBER, NUMBERS), (TYPE, TYPES), (SHAPE, SHAPES), (NUMBER, NUMBERS)][
            kind
        ]
        places = list(pattern.finditer(text))
        if places:
            at = random_.choice(places)
            text = text[: at.start()] + random_.choice(values) + text[at.end() :]
    return text


def parsed(text: str) -> Module | None:
    try:
        return parse(text)
    except HloError:
        return None


def error_of(module: Module, *, layout_sensitive: bool) -> HloError | None:
    """The first thing that is wrong; any other exception is a fault of the verifier."""
    try:
        verify(module, layout_sensitive=layout_sensitive)
    except HloError as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(4))
def test_verifying_mutated_programs_ends_in_errors_only(seed: int) -> None:
    random_ = random.Random(seed)
    texts = seeds()
    verified = 0
    for _ in range(300):
        module = parsed(mutated(random_.choice(texts), random_))
        if module is None:
            continue
        verified += 1
        for layout_sensitive in (False, True):
            error = error_of(module, layout_sensitive=layout_sensitive)
            assert error is None or str(error)
    assert verified > 50
