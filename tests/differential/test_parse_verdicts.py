"""What the parser accepts and rejects, beside XLA's: recorded cases, the oracle, the corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo.errors import HloError
from hlo.parser.parse import parse
from tests.support.oracle import Oracle
from tests.support.parse_cases import FILES, cases

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"


def is_accepted(text: str) -> bool:
    try:
        parse(text)
    except HloError:
        return False
    return True


@pytest.mark.parametrize("name", FILES)
def test_recorded_verdicts(name: str) -> None:
    wrong = [text for sign, text in cases(name) if is_accepted(text) != (sign in "+?")]
    assert not wrong


def disagreements(name: str, xla: Oracle, step: int) -> list[str]:
    chosen = list(cases(name))[::step]
    return [text for sign, text in chosen if xla.accepts(text) != (sign in "+!")]


@pytest.mark.oracle
@pytest.mark.parametrize("name", FILES)
def test_recorded_verdicts_are_the_oracles(name: str, xla: Oracle) -> None:
    """A sample: XLA's process is started anew after each of its many aborts."""
    assert not disagreements(name, xla, 11)


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("name", FILES)
def test_all_recorded_verdicts_are_the_oracles(name: str, xla: Oracle) -> None:
    assert not disagreements(name, xla, 1)


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.exists(), reason="no shared corpus")
def test_verdicts_on_the_corpus() -> None:
    wrong = []
    for entry in json.loads((CORPUS / "index.json").read_text()):
        if entry["bytes"] > 1_000_000:
            continue  # the big dumps have a test of their own
        text = (CORPUS / entry["file"]).read_text(errors="surrogateescape")
        expected = entry["xla"] == "accepts"
        if is_accepted(text) != expected:
            wrong.append(entry["file"])
    assert not wrong


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.exists(), reason="no shared corpus")
def test_verdicts_on_the_big_dumps() -> None:
    for entry in json.loads((CORPUS / "index.json").read_text()):
        if entry["bytes"] > 1_000_000:
            text = (CORPUS / entry["file"]).read_text(errors="surrogateescape")
            module = parse(text, entry["file"])
            assert sum(len(c) for c in module.computations) > 0
