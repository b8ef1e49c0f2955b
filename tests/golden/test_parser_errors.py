"""Every error of a file is found, at its place, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo.errors import HloErrors
from hlo.parser.parse import parse
from tests.support.expected_errors import unmatched

FILES = sorted((Path(__file__).parent / "parser").glob("*.hlo"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_errors_are_found_on_their_lines(path: Path) -> None:
    text = path.read_text()
    with pytest.raises(HloErrors) as caught:
        parse(text, path.name)
    assert unmatched(text, caught.value) == []
