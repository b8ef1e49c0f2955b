"""A target is a row, and a file of the instructions that it adds: nothing else is edited.

A copy of the project gets POWER9 with its vectors, and shows the loops and the assembly of a
program for it. The row alone compiles every program; what the file
answers is used where the question is asked already.
"""

from __future__ import annotations

import pytest

from tests.support.project_copy import ProjectCopy

MACHINE = """\
_POWER9 = frozenset({"altivec", "vsx", "power8-vector", "power9-vector"})
"""
ROW = """\
    Machine(name="pwr9", triple="powerpc64le-unknown-linux-gnu", features=_POWER9, registers=64),
"""
FILE = '''"""POWER with vectors."""

from __future__ import annotations

from hlo.backend.isa.generic import Isa


class Power(Isa):
    """Vectors of 16 bytes."""

    @property
    def fuses(self) -> bool:
        """xvmaddasp."""
        return self._has("vsx")
'''
CASE = """\
        case "powerpc64le":
            from hlo.backend.isa.power import Power

            return Power
"""
PROGRAM = """HloModule m
ENTRY e {
  x = f32[4099] parameter(0)
  z = f32[4099] multiply(x, x)
  ROOT r = f32[4099] exponential(z)
}
"""
MACHINES, SELECT = "hlo/machine.py", "hlo/backend/isa/select.py"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> ProjectCopy:
    """The project with the target."""
    copy = ProjectCopy(tmp_path_factory.mktemp("project"))
    copy.insert(MACHINES, MACHINE, before="# From the least to the most capable")
    copy.insert(MACHINES, ROW, before=")  # fmt: skip\nNAMED")
    copy.add("hlo/backend/isa/power.py", FILE)
    copy.insert(SELECT, CASE, before='        case "riscv64"')
    (copy.folder / "program.hlo").write_text(PROGRAM)
    return copy


def test_it_is_a_row_and_a_file_of_instructions(copy: ProjectCopy) -> None:
    assert copy.added == ["hlo/backend/isa/power.py"]
    # features and row; whose instructions are in the file
    assert copy.edited == {MACHINES: 2, SELECT: 3}


def test_it_is_listed_and_its_code_is_shown(copy: ProjectCopy) -> None:
    assert "\npwr9\n  powerpc64le-unknown-linux-gnu, 64 vectors" in copy.opt("--list-machines")
    loops = copy.opt("--emit=loops", "--machine=pwr9", "program.hlo")
    assert "lanes" in loops
    code = copy.opt("--emit=asm", "--machine=pwr9", "program.hlo")
    assert "xvmadd" in code  # as the file says
