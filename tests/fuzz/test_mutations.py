"""Broken text gives a module or an HloError, and both readers of text say the same."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import pytest

from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.parser import parse as parser
from hlo.parser.pieces import Declined
from hlo.source import Source
from tests.support.mutation import mutated_often
from tests.support.parse_cases import FILES, cases

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"


@cache
def seeds() -> tuple[str, ...]:
    """Small real files where they are, and a few recorded cases always."""
    texts = [text for name in FILES for sign, text in list(cases(name))[::40] if sign == "+"]
    if CORPUS.exists():
        for entry in json.loads((CORPUS / "index.json").read_text()):
            if entry["bytes"] < 10_000:
                texts.append((CORPUS / entry["file"]).read_text(errors="surrogateescape"))
    return tuple(texts)


def precisely(text: str, start: str) -> Module | None:
    try:
        return parser.precise(Source("mutated", text), start)
    except HloError as error:
        if not (error.code and str(error).startswith("error[")):
            raise
        return None


def quickly(text: str, start: str) -> Module | None:
    try:
        return parser.fast(Source("mutated", text), start)
    except Declined:
        return None


def outline(module: Module) -> list[tuple[str, list[tuple[str, str, str, list[str], list[str]]]]]:
    """What both readings must agree on."""
    return [
        (
            c.name,
            [
                (i.name, i.opcode, str(i.shape), [o.name for o in i.operands], sorted(i.attributes))
                for i in c.instructions
            ],
        )
        for c in module.computations
    ]


def check_mutations(count: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        text = mutated_often(rng.choice(seeds()), rng)
        start = parser.start_rule(text)
        module = precisely(text, start)
        if start == "instruction_text":
            continue
        quick = quickly(text, start)
        if quick is not None:
            assert module is not None, text
            assert outline(quick) == outline(module), text


@pytest.mark.parametrize("seed", range(4))
def test_mutated_text(seed: int) -> None:
    check_mutations(500, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_much_mutated_text(seed: int) -> None:
    check_mutations(2000, 1000 + seed)
