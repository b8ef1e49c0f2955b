"""Random and mutated modules: XLA's verdict and its four print forms, beside ours."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.parser.parse import parse
from hlo.printer.options import PrintOptions
from tests.support import oracle
from tests.support.mutation import mutated_token
from tests.support.parse_cases import FILES, cases
from tests.support.random_modules import random_text

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(not oracle.available(), reason="needs jaxlib 0.10.2"),
]
FORMS = {
    "default": PrintOptions.xla_default(),
    "short_parsable": PrintOptions.short_parsable(),
    "canonical": PrintOptions.canonical(),
    "fingerprint": PrintOptions.fingerprint(),
}
CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
SMALL = 4_000  # bytes
# How our errors begin where XLA accepts: the closed list of docs/language.md.
REFUSALS = (
    "expected a shape, a name",
    "',', expected a number",  # constant(,)
    "expected a name after the shape",
    "is not defined",  # an opcode's name without parentheses: the operand is dropped
    "',', expected an integer",  # an operand that is half a shape; an alias without its number
    "literal is ','",  # constant((,1)), whose first element is invented
    "a tile of -1",  # beside subgroups, for which XLA writes past its memory
    "dim_labels: ",  # labels that XLA mostly dies of
    "expected 0 or more and below",  # an element outside of the tuple
    "devices, expected",  # a list of devices that XLA writes past its memory
)


@pytest.fixture(scope="module")
def xla() -> Iterator[oracle.Oracle]:
    server = oracle.Oracle()
    yield server
    server.close()


@cache
def seeds() -> tuple[str, ...]:
    """The recorded cases, and the small files of the corpus where there is one."""
    texts = [text for name in FILES for sign, text in cases(name) if sign == "+"]
    if CORPUS.exists():
        for entry in json.loads((CORPUS / "index.json").read_text()):
            if entry["bytes"] < SMALL and entry["xla"] == "accepts":
                texts.append((CORPUS / entry["file"]).read_text(errors="surrogateescape"))
    return tuple(texts)


def read(text: str) -> tuple[Module | None, str]:
    try:
        return parse(text), ""
    except HloError as error:
        return None, str(error)


def disagreement(text: str, xla: oracle.Oracle) -> str:
    """What differs between XLA and us; "" for nothing."""
    module, error = read(text)
    verdict = xla.verdict(text)
    if module is None:
        known = any(refusal in error for refusal in REFUSALS)
        return f"refused: {error}" if verdict.accepted and not known else ""
    if not verdict.accepted:
        return f"accepted, XLA: {verdict.message}"
    if "..." in text:
        return ""  # filled from a counter of XLA's process
    wanted = xla.all_forms(text) or {}
    return ", ".join(form for form, want in wanted.items() if module.to_text(FORMS[form]) != want)


def disagreements(texts: Iterator[str], xla: oracle.Oracle) -> list[tuple[str, str]]:
    found = ((disagreement(text, xla), text) for text in texts)
    return [(what, text) for what, text in found if what]


def random_texts(count: int, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    return (random_text(rng) for _ in range(count))


def mutated_texts(count: int, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    return (mutated_token(rng.choice(seeds()), rng) for _ in range(count))


def test_random_modules(xla: oracle.Oracle) -> None:
    assert disagreements(random_texts(400, 1), xla) == []


def test_mutated_modules(xla: oracle.Oracle) -> None:
    assert disagreements(mutated_texts(400, 2), xla) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_random_modules(xla: oracle.Oracle, seed: int) -> None:
    assert disagreements(random_texts(1000, 100 + seed), xla) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_mutated_modules(xla: oracle.Oracle, seed: int) -> None:
    assert disagreements(mutated_texts(1000, 200 + seed), xla) == []
