"""What the code and the pages say of other places is there: files, and sections of pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.source_files import FILES, ROOT

# CHANGELOG.md tells of files under the names that they had.
PAGES = [*(ROOT / "docs").glob("*.md"), *(ROOT / f"{p}.md" for p in ("README", "CONTRIBUTING"))]
NAME = re.compile(r"(?<![\w/.*-])((?:\w[\w-]*/)*\w[\w-]*\.(?:py|lark|md))(?![\w-])")
SECTION = re.compile(r"docs/(\w+)\.md (\d+(?:\.\d+)*)")
# A user's files, and those of others.
NOT_OURS = {"FILE.py", "my_passes.py", "loss.py", "lax_test.py", "Linking.md", "train.py"}


def _known() -> set[str]:
    """Every end of the path of a file of the project: what it may be called."""
    homes = ("hlo", "tests", "benchmarks", "examples", "docs")
    files = [p for home in homes for p in (ROOT / home).rglob("*.*")] + list(ROOT.glob("*.*"))
    parts = [p.relative_to(ROOT).parts for p in files if p.suffix in (".py", ".lark", ".md")]
    return {"/".join(p[k:]) for p in parts for k in range(len(p))}


KNOWN = _known()


def missing_files(text: str) -> list[str]:
    return sorted(set(NAME.findall(text)) - KNOWN - NOT_OURS)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert missing_files(page.read_text()) == []


def test_files_that_the_code_names_exist() -> None:
    found = {p.relative_to(ROOT).as_posix(): missing_files(p.read_text()) for p in FILES}
    assert {name: names for name, names in found.items() if names} == {}


def test_sections_that_the_code_cites_exist() -> None:
    cited = {m for path in FILES for m in SECTION.findall(path.read_text())}
    assert cited
    for page, section in sorted(cited):
        told = (ROOT / f"docs/{page}.md").read_text()
        there = rf"^#+ {section}\b|\*\*(?:[\d., ]*, )?{section}(?:, [\d., ]*)?\*\*|^{section}\. "
        assert re.search(there, told, re.MULTILINE), f"docs/{page}.md has no section {section}"


def test_loops_that_a_page_shows_are_those_of_a_fixture() -> None:
    """Which tests/golden/loops holds to what --emit=loops prints."""
    fixtures = "\n".join(p.read_text() for p in (ROOT / "tests/golden/loops").glob("*.hlo"))
    known = " ".join(re.sub(r"// \w+(-NEXT)?:", "", fixtures).split())
    page = (ROOT / "docs/kernels.md").read_text()
    shown = re.findall(r"^```\n(kernel .*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    for nest in shown:
        assert " ".join(nest.split()) in known, f"docs/kernels.md shows what is not so:\n{nest}"


def test_the_scan_finds_what_is_not_there() -> None:
    text = "see gone.py, machine.py, hlo/machine.py, isa/select.py and isa/machine.py (FILE.py)"
    assert missing_files(text) == ["gone.py", "isa/machine.py"]
