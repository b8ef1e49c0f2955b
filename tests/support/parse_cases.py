"""Texts with verdicts, in tests/differential/parse_cases/*.txt.

Each file: a line with what stands before and behind each case, then a case a line, as JSON:
    + accepted    - rejected by XLA and by us
    ! accepted by XLA and refused by us: the closed list of issue 4, and what XLA reads garbage for
    ? accepted by us and rejected by XLA: newer forms, and sizes that XLA cannot allocate
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "differential" / "parse_cases"
FILES = sorted(path.stem for path in FOLDER.glob("*.txt"))


def cases(name: str) -> Iterator[tuple[str, str]]:
    """Signs and whole texts of one file."""
    first, *rows = (FOLDER / f"{name}.txt").read_text().splitlines()
    before, behind = json.loads(first)
    for row in rows:
        yield row[0], before + json.loads(row[2:]) + behind
