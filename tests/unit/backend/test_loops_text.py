"""--emit=loops by command: one kernel, its reasons, and what is said of a name that is none."""

from pathlib import Path

import pytest

from tests.support.command import call

TEXT = """HloModule m
ENTRY e {
  x = f32[300] parameter(0)
  y = f32[200,20] parameter(1)
  a = f32[300] negate(x)
  b = f32[20,200] transpose(y), dimensions={1,0}
  ROOT r = (f32[300], f32[20,200]) tuple(a, b)
}"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    return str(path)


def test_one_kernel_by_its_number_and_by_its_instruction(file: str) -> None:
    whole = call("hlo-opt", file, "--emit=loops").out
    first, second = whole.split("\n\n")
    assert "kernel k0 (" in first
    assert call("hlo-opt", file, "--emit=loops", "--kernel=k0").out == first + "\n"
    assert call("hlo-opt", file, "--emit=loops", "--kernel=k1").out == second
    assert call("hlo-opt", file, "--emit=loops", "--kernel=b").out in (first + "\n", second)


def test_reasons_stand_before_the_loops(file: str) -> None:
    plain = call("hlo-opt", file, "--emit=loops").out.splitlines()
    lines = call("hlo-opt", file, "--emit=loops", "--remarks").out.splitlines()
    assert [line for line in lines if "  # " not in line] == plain
    assert any("  # tile: " in line for line in lines)


def test_flags_that_do_not_go_together_are_faults_of_the_command(file: str) -> None:
    assert call("hlo-opt", file, "--emit=program", "--kernel=k0").code == 2


def test_a_program_without_kernels_says_so(tmp_path: Path) -> None:
    path = tmp_path / "n.hlo"
    path.write_text("HloModule n\nENTRY e { ROOT p = f32[3] parameter(0) }\n")
    assert call("hlo-opt", str(path), "--emit=loops").out == "no kernels\n"
    assert "the program runs none" in call("hlo-opt", str(path), "--emit=loops", "--kernel=k0").err


def test_a_kernel_that_is_none_is_an_error_with_those_that_are(file: str) -> None:
    found = call("hlo-opt", file, "--emit=loops", "--kernel=k7")
    assert found.code == 1
    assert "there is no kernel k7, expected one of: k0 (" in found.err
