"""Modules that break a rule of ours, compiled by XLA:CPU: where does it refuse them, if at all?

The cases of tests/ops and tests/golden/verifier that must fail are compiled in a child process. The
answers stand in violations.txt, with a judgement where XLA refuses nothing:

    <case> | <our code and label> | where XLA refuses it | judgement

Where: parser, importer (StableHLO's, on JAX's path), verifier, compiler, unsupported (the op, not
what is wrong with it), dies (the process aborts), accepts.

`python tests/differential/test_violations_xla.py` asks again and writes the file, judgements kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from hlo.driver import parse, verify  # noqa: E402  # as a script it needs the path first
from hlo.errors import HloError, HloErrors  # noqa: E402
from tests.support import oracle  # noqa: E402
from tests.support.op_files import cases  # noqa: E402
from tests.support.pickle_server import PickleServer  # noqa: E402

TABLE = Path(__file__).parent / "violations.txt"
STAGES = (
    ("verifier", "hlo verifier"),
    ("importer", "<unknown>:0: error"),
    ("unsupported", "UNIMPLEMENTED"),
    ("unsupported", "not supported by XLA:CPU"),
    ("compiler", ""),
)
LABEL = re.compile(r"\((\w+)\)$")
SERVER = """
import pickle, sys
from hlo.tools.jax.jax_engine import JaxProgram
while True:
    try:
        text = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        JaxProgram(text)
        answer = ""
    except Exception as error:
        answer = str(error) or type(error).__name__
    pickle.dump(answer, sys.stdout.buffer)
    sys.stdout.buffer.flush()
"""


class Compiler:
    """XLA:CPU in a child process, started again after each death. None: it died, or hung."""

    def __init__(self) -> None:
        self._server = PickleServer(SERVER)
        self.close = self._server.close

    def refusal(self, text: str) -> str | None:
        answer = self._server.ask(text)
        assert answer is None or isinstance(answer, str), "what the server sends"
        return answer


def violations() -> Iterator[tuple[str, str]]:
    """Name and text of every module that must fail in layout-insensitive verification."""
    for case in cases():
        if "ERROR" in case.values:
            yield f"{case.file.stem}:{case.number}", case.text
    for file in sorted((ROOT / "tests/golden/verifier").glob("*.hlo")):
        parts = re.split(r"^// -----.*\n", file.read_text(), flags=re.MULTILINE)
        for number, text in enumerate(parts, start=1):
            if "expected-error" in text and "layout-sensitive" not in text.split("\n")[0]:
                yield f"verifier/{file.stem}:{number}", text


def ours(text: str) -> str:
    """Code and label of our first error."""
    try:
        verify(parse(text))
    except HloErrors as errors:
        error = errors.errors[0]
    except HloError as single:
        error = single
    else:
        return "accepts"
    label = LABEL.search(error.message)
    return f"{error.code} {label[1]}" if label else error.code


def theirs(parser: oracle.Oracle, compiler: Compiler, text: str) -> str:
    verdict = parser.verdict(text)
    if verdict.aborted:
        return "dies"
    if not verdict.accepted:
        return "parser"
    refusal = compiler.refusal(text)
    if refusal is None:
        return "dies"
    return next(where for where, words in STAGES if words in refusal) if refusal else "accepts"


def table() -> dict[str, tuple[str, str, str]]:
    rows = [line.split(" | ") for line in TABLE.read_text().splitlines() if line]
    return {name: (mine, xla, said[0] if said else "") for name, mine, xla, *said in rows}


def test_every_violation_stands_in_the_table() -> None:
    known = table()
    assert {name for name, _ in violations()} == known.keys()
    wrong = {n: ours(t) for n, t in violations() if ours(t) != known[n][0]}
    assert not wrong


def test_what_xla_accepts_has_a_judgement() -> None:
    assert not [name for name, (_, xla, said) in table().items() if xla == "accepts" and not said]


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.skipif(not oracle.available(), reason="needs jaxlib 0.10.2")
def test_xla_refuses_where_the_table_says() -> None:
    parser, compiler = oracle.Oracle(), Compiler()
    known = table()
    found = {n: theirs(parser, compiler, t) for n, t in violations()}
    parser.close()
    compiler.close()
    assert {n: v for n, v in found.items() if v != known[n][1]} == {}


if __name__ == "__main__":
    old = table() if TABLE.exists() else {}
    asked, compiling = oracle.Oracle(), Compiler()
    lines = []
    for name, text in violations():
        answer = theirs(asked, compiling, text)
        said = old.get(name, ("", "", ""))[2] if answer == "accepts" else ""
        lines.append(f"{name} | {ours(text)} | {answer} | {said}".rstrip(" |"))
    TABLE.write_text("\n".join(lines) + "\n")
    asked.close()
    compiling.close()
