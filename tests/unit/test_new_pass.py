"""A pass is a file and a line of the catalogue: nothing else is edited.

A copy of the project gets `subtract-expander`, and runs, verifies, times, lists and explains it by
name as any pass.
"""

from __future__ import annotations

import pytest

from tests.support.project_copy import ProjectCopy

FILE = '''"""subtract-expander: differences as sums."""

from __future__ import annotations

from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.making import make
from hlo.passes.liveness import replace, replaceable


def subtract_expander(module: Module, *, integers: bool = False) -> bool:
    """Write differences of floats as sums.

    a - b  =>  a + (-b), rounded once as well. O(instructions).
    integers: those of integers too, which wrap in both forms.
    """
    found = [i for i in replaceable(module, "subtract") if _is_rewritable(i, integers)]
    for instruction in found:
        a, b = instruction.operands
        replace(instruction, make(instruction, "add", a, make(instruction, "negate", b)))
    return bool(found)


def _is_rewritable(instruction: Instruction, integers: bool) -> bool:
    dtype = instruction.shape.dtype
    return (dtype.is_float and not dtype.is_scale) or (dtype.is_integral and integers)
'''
IMPORT = "from hlo.passes.expand.subtract_expander import subtract_expander\n"
LINE = '    "subtract-expander": subtract_expander,\n'
CASES = """// RUN: hlo-opt %s --passes=subtract-expander | filecheck %s
// RUN: hlo-opt %s --passes=subtract_expander{integers=true},dce | filecheck %s --check-prefix=ALL
HloModule m
ENTRY e {
  x = f32[3] parameter(0)
  y = f32[3] parameter(1)
  n = s32[3] parameter(2)
  // CHECK: f32[3]{0} negate(%y)
  // CHECK: f32[3]{0} add(%x
  d = f32[3] subtract(x, y)
  // CHECK: s32[3]{0} subtract(
  // ALL-NOT: subtract(
  m = s32[3] subtract(n, n)
  ROOT r = (f32[3], s32[3]) tuple(d, m)
}
"""
USES = """
import numpy as np
from hlo.passes import manager
from hlo.passes.pipeline import parse_pipeline
from tests.support.run_lines import run, run_lines

cases = here / "tests/golden/passes/subtract-expander.hlo"
for line in run_lines(cases):
    assert run(line, cases) is None, run(line, cases)

module = hlo.parse(cases.read_text())
optimised = hlo.optimize(module, "subtract-expander,fixpoint(subtract_expander,dce)")
opcodes = [i.opcode for i in optimised.entry.instructions]
assert "negate" in opcodes and "subtract" in opcodes, opcodes
x, y, n = np.float32([1, 2.5, -3]), np.float32([0.1, 1e30, -3]), np.int32([1, 2, 3])
for run in (hlo.evaluate, lambda m, *values: hlo.compile(m, passes="subtract-expander")(*values)):
    found = run(optimised, x, y, n)
    assert all(np.array_equal(a, b) for a, b in zip(found, (x - y, n - n))), found

verified = []
watching = manager.Manager(verify=lambda m: verified.append(m))
steps = parse_pipeline("subtract-expander,subtract-expander")
assert watching.run(hlo.parse(cases.read_text()), steps) and len(verified) == 1, verified
assert [r.changed for r in watching.runs] == [True, False]
print(*opcodes)
"""
CATALOGUE = "hlo/passes/catalogue.py"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> ProjectCopy:
    """The project with the pass."""
    copy = ProjectCopy(tmp_path_factory.mktemp("project"))
    copy.add("hlo/passes/expand/subtract_expander.py", FILE)
    copy.insert(CATALOGUE, IMPORT, before="from hlo.passes.simplify.tuple_simplifier")
    copy.insert(CATALOGUE, LINE, before='    "tuple-simplifier"')
    copy.add("tests/golden/passes/subtract-expander.hlo", CASES)
    return copy


def test_it_is_a_file_a_line_and_cases(copy: ProjectCopy) -> None:
    files = ["hlo/passes/expand/subtract_expander.py", "tests/golden/passes/subtract-expander.hlo"]
    assert copy.added == files
    assert copy.edited == {CATALOGUE: 2}  # its line, and the import of what the line names


def test_it_runs_by_name_and_is_verified(copy: ProjectCopy) -> None:
    assert copy.script(USES).split().count("add") == 1


def test_it_is_listed_and_explained(copy: ProjectCopy) -> None:
    assert "[integers=False]" in copy.opt("--list-passes").split("\nsubtract-expander ")[1]
    page = copy.opt("explain", "subtract_expander")
    assert page.startswith("pass subtract-expander\nWrite differences of floats as sums.")
    assert "integers: those of integers too" in page
