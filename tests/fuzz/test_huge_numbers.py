"""Numbers that nothing can be as large as, at every place of the language: a module or an HloError.

The texts are the op files: every opcode with all its attributes.
"""

from __future__ import annotations

import random
import re

import pytest

import hlo
from hlo.errors import HloError
from tests.support.op_files import OPS_FOLDER

NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")
NUMBERS = ("9" * 25, "9" * 5000, "-" + "9" * 25, "-1", str(2**63 - 1), str(2**63), str(-(2**63)),
           str(2**62), str(2**40), str(2**31), "0")  # fmt: skip


def texts() -> list[str]:
    """The programs of all files, without their comments."""
    found: list[str] = []
    for path in sorted(OPS_FOLDER.glob("*.hlo")):
        rows = [row for row in path.read_text().splitlines() if not row.startswith("//")]
        found += re.split(r"(?m)^(?=HloModule)", "\n".join(rows))
    return [text for text in found if NUMBER.search(text)]


def check(count: int, seed: int) -> None:
    rng = random.Random(seed)
    programs = texts()
    for _ in range(count):
        text = rng.choice(programs)
        places = [match.span() for match in NUMBER.finditer(text)]
        start, end = rng.choice(places)
        changed = text[:start] + rng.choice(NUMBERS) + text[end:]
        try:
            module = hlo.parse(changed)
            module.to_text()
            hlo.verify(module)
        except HloError as error:
            if not str(error).startswith("error["):
                raise


def test_huge_numbers() -> None:
    check(400, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_huge_numbers(seed: int) -> None:
    """Ten thousand of them: `pytest -m slow tests/fuzz/test_huge_numbers.py`, two minutes."""
    check(1000, seed)
