"""Every golden file with a RUN line does what it says."""

from pathlib import Path

import pytest

from tests.support.run_lines import run, run_lines

HERE = Path(__file__).parent
FILES = [p for p in sorted(HERE.rglob("*.hlo")) if run_lines(p)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(HERE)))
def test_golden(path: Path) -> None:
    for line in run_lines(path):
        assert run(line, path) is None
