"""The runner of tests/ops finds what is wrong."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.op_files import Case, file_cases, run_case, value_of

ADD = """
HloModule add
ENTRY e { x = f32[2] parameter(0) y = f32[2] parameter(1) ROOT r = f32[2] add(x, y) }
"""


def case_of(tmp_path: Path, *lines: str, text: str = ADD) -> Case:
    file = tmp_path / "add.hlo"
    file.write_text("".join(f"// {line}\n" for line in lines) + text)
    (case,) = file_cases(file)
    return case


INPUTS = ("INPUT: f32[2] {1, -0.0}", "INPUT: f32[2] {2, -0.0}")


@pytest.mark.parametrize(
    ("lines", "problems"),
    [
        (["EXPECT: f32[2] {3, -0.0}"], 0),
        (["EXPECT: f32[2] {3, 0}"], 1),  # the sign of zero counts
        (["EXPECT: f32[2] {3, 0}", "ULP: 0"], 0),
        (["EXPECT: f32[2] {3.0000002, -0.0}"], 1),
        (["EXPECT: f32[2] {3.0000002, -0.0}", "ULP: 1"], 0),
        (["EXPECT: f32[2]", "     {3,", "     -0.0}"], 0),  # a literal over several lines
        (["EXPECT: f64[2] {3, 0}"], 1),
        (["EXPECT: (f32[2]) ({3, 0})"], 1),
        (["RUN-ERROR: unsupported"], 1),
    ],
)
def test_expectations(tmp_path: Path, lines: list[str], problems: int) -> None:
    assert len(run_case(case_of(tmp_path, "sums", *INPUTS, *lines))) == problems


def test_errors_are_named_by_code_and_label(tmp_path: Path) -> None:
    text = ADD.replace("y = f32[2]", "y = f32[]")
    assert run_case(case_of(tmp_path, "ERROR: shape-mismatch C4", text=text)) == []
    assert run_case(case_of(tmp_path, "ERROR: shape-mismatch C2", text=text)) != []
    assert run_case(case_of(tmp_path, "ERROR: dtype", text=text)) != []
    assert run_case(case_of(tmp_path, "ERROR: dtype")) != []


def test_titles_and_engines(tmp_path: Path) -> None:
    case = case_of(tmp_path, "ONLY: interpreter", "what it shows", "EXPECT: f32[2] {3, 0}")
    assert str(case) == "add:1:what-it-shows"
    assert case.runs_on("interpreter")
    assert not case.runs_on("compiled")


def test_values_of_tuples() -> None:
    first, (second,) = value_of("(s4[2], (pred[])) ({-8, 7}, (true))")  # type: ignore[misc]  # tuples
    assert first.tolist() == [-8, 7]
    assert second == np.True_
