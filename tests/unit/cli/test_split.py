"""--split-input-file: each module of a file in turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import call

ONE = "HloModule one\n\nENTRY main {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] add(x, x)\n}\n"
TWO = ONE.replace("one", "two").replace("add(", "multiply(")
SEPARATOR = "// -----\n\n"


@pytest.fixture
def both(tmp_path: Path) -> str:
    path = tmp_path / "both.hlo"
    path.write_text(f"{ONE}\n{SEPARATOR}{TWO}")
    return str(path)


@pytest.fixture
def alone(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "one.hlo", tmp_path / "two.hlo"]
    for path, text in zip(paths, (ONE, TWO), strict=True):
        path.write_text(text)
    return [str(path) for path in paths]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("hlo-opt", ("transform",)), ("hlo-opt", ("transform", "-p", "default")),
        ("hlo-opt", ("transform", "--emit=program")), ("hlo-opt", ("fmt",)),
    ],
)  # fmt: skip
def test_texts_can_be_split_again(
    tool: str, words: tuple[str, ...], both: str, alone: list[str]
) -> None:
    done = call(tool, *words, both, "--split-input-file")
    assert done.code == 0, done.err
    parts = [call(tool, *words, path).out for path in alone]
    assert done.out == SEPARATOR.join(parts)


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("hlo-opt", ("stats",)), ("hlo-opt", ("graph",)), ("hlo-opt", ("slice", "--from=x")),
        ("hlo-run", ("run",)), ("hlo-run", ("nans",)), ("hlo-run", ("compare",)),
        ("hlo-opt", ("extract", "--name=y")),
    ],
)  # fmt: skip
def test_reports_stand_one_behind_the_other(
    tool: str, words: tuple[str, ...], both: str, alone: list[str]
) -> None:
    command, *rest = words
    done = call(tool, command, *rest, both, "--split-input-file")
    parts = [call(tool, command, *rest, path) for path in alone]
    shown = [part.out.replace(path, both) for part, path in zip(parts, alone, strict=True)]
    assert done.out == f"{SEPARATOR.strip()}\n".join(shown)
    assert done.code == max(part.code for part in parts)


def test_one_module_is_one(alone: list[str]) -> None:
    done = call("hlo-opt", alone[0], "--split-input-file")
    assert (done.out, done.code) == (call("hlo-opt", alone[0]).out, 0)


def test_fmt_rewrites_each_part(both: str) -> None:
    assert call("hlo-opt", "fmt", "--check", both, "--split-input-file").code == 1
    assert call("hlo-opt", "fmt", "-i", both, "--split-input-file").code == 0
    assert call("hlo-opt", "fmt", "--check", both, "--split-input-file").code == 0
    assert Path(both).read_text().count("// -----") == 1


def test_faults_of_use(both: str, alone: list[str]) -> None:
    assert "2 modules" in call("hlo-opt", "stats", both).err
    done = call("hlo-opt", "extract", "--name=y", both, "--split-input-file", "-o", "x.hlo")
    assert done.code == 2
    assert "standard output" in done.err
    done = call("hlo-opt", "stats", both, "--split-input-file", "--module=one")
    assert (done.code, "exclude each other" in done.err) == (2, True)
    done = call("hlo-opt", "diff", both, alone[0], "--split-input-file")
    assert (done.code, "has 1 modules, expected 2" in done.err) == (1, True)


def test_an_error_says_where_in_the_file(both: str) -> None:
    text = Path(both).read_text().replace("multiply(x, x)", "multiply(x, q)")
    Path(both).write_text(text)
    done = call("hlo-opt", both, "--split-input-file")
    line = text.split("\n").index("  ROOT y = f32[4] multiply(x, q)") + 1
    assert done.code == 1
    assert f"both.hlo:{line}:" in done.err


def test_lists_and_checks_as_data(both: str) -> None:
    listed = json.loads(call("hlo-opt", "list", "--json", both).out)
    assert listed["modules"] == [{"name": n, "form": "hlo"} for n in ("one", "two")]
    (row,) = json.loads(call("hlo-opt", "check", "--json", both).out)
    assert (row["path"], row["modules"], row["errors"], row["messages"]) == (both, 2, 0, [])
    Path(both).write_text(Path(both).read_text().replace("add(x, x)", "add(x)"))
    done = call("hlo-opt", "check", "--json", both)
    (row,) = json.loads(done.out)
    assert (done.code, row["errors"], done.err) == (1, 1, "")
    assert row["messages"][0].startswith("error[")
