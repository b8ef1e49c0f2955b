"""An elementwise op is a row, a function on lanes and a file of cases: nothing else is edited.

A copy of the project gets `softplus`, of which nothing knows, and does with it all that it does
with any op.
"""

from __future__ import annotations

import pytest

from tests.support.project_copy import ProjectCopy

ROW = """
elementwise("softplus", 1, "ln(1 + e^x); -inf -> 0, inf -> inf.", record=RA, ulp=3,
            real=transcendental(lambda x: np.logaddexp(0, x)), cost=Cost(50, 130))
"""
FUNCTION = '''"""softplus(x) = max(x, 0) + ln(1 + e^-|x|): neither part cancels the other."""

from __future__ import annotations

from hlo.backend.math.exponential import exp
from hlo.backend.math.extremes import maximum
from hlo.backend.math.logarithm import log1p
from hlo.backend.math.term import Term


def softplus(x: Term) -> Term:
    return maximum(x, x.const(0.0)) + log1p(exp(-x.abs()))
'''
IMPORT = "from hlo.backend.math.softplus import softplus\n"
LINE = '    "softplus": ByKind(real=softplus),\n'
CASES = """// f32
// INPUT: f32[5] {-inf, inf, 0.0, 1.5, nan}
// EXPECT: f32[5] {0.0, inf, 0.69314718, 1.70141328, nan}
// ULP: 3
HloModule softplus

ENTRY e {
  x = f32[5] parameter(0)
  ROOT r = f32[5] softplus(x)
}
// -----
// f16: rounded once
// INPUT: f16[2] {1.5, -3.0}
// EXPECT: f16[2] {1.7011719, 0.048583984}
HloModule softplus

ENTRY e {
  x = f16[2] parameter(0)
  ROOT r = f16[2] softplus(x)
}
// -----
// no integers
// ERROR: dtype C3
HloModule softplus

ENTRY e {
  x = s32[2] parameter(0)
  ROOT r = s32[2] softplus(x)
}
"""
USES = '''
import numpy as np
from hlo import driver
from hlo.analysis.fusibility import op_cost
from hlo.backend.emitters.table import EMITTERS
from hlo.ops.table import OPS, Trait, opcodes
from tests.support.op_files import file_cases, run_case

assert EMITTERS.keys() == opcodes(Trait.ELEMENTWISE) | {"copy", "bitcast-convert"}
cases = list(file_cases(here / "tests/ops/softplus.hlo"))
for case in cases:
    assert run_case(case) == [], (case, run_case(case))
    compiled = lambda module, *values: driver.compile(module)(*values)
    assert run_case(case, compiled) == [], (case, run_case(case, compiled))

module = driver.parse("""HloModule m
sum {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT s = bf16[] add(a, b)
}
ENTRY e {
  x = bf16[64,128] parameter(0)
  y = bf16[64,128] softplus(x), result_accuracy={mode=highest}
  z = bf16[64,128] tanh(y)
  zero = bf16[] constant(0)
  ROOT r = bf16[64] reduce(z, zero), dimensions={1}, to_apply=sum
}""")
driver.verify(module)
printed = driver.to_text(module)
assert "softplus(" in printed and "result_accuracy={mode=highest}" in printed, printed
assert driver.to_text(driver.parse(printed)) == printed

optimised = driver.optimize(module)
entry = [i.opcode for i in optimised.entry.instructions]
assert entry.count("fusion") == 1 and "softplus" not in entry, entry
(softplus,) = [i for c in optimised.computations for i in c.instructions if i.opcode == "softplus"]
assert op_cost(softplus) == OPS["softplus"].cost.operations == 50

dtype = module.entry.parameters[0].shape.dtype.numpy
x = np.linspace(-3, 3, 64 * 128).reshape(64, 128).astype(dtype)
expected = np.asarray(driver.evaluate(module, x)).astype(np.float64)
found = np.asarray(driver.compile(module)(x)).astype(np.float64)
assert np.allclose(found, expected, rtol=2**-6), (found, expected)
print(f"{len(cases)} cases, {entry.count('fusion')} fusion, {op_cost(softplus)} additions")
'''

ROWS, TABLE = "hlo/ops/elementwise.py", "hlo/backend/emitters/table.py"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> ProjectCopy:
    """The project with the op."""
    copy = ProjectCopy(tmp_path_factory.mktemp("project"))
    copy.insert(ROWS, ROW)
    copy.add("hlo/backend/math/softplus.py", FUNCTION)
    copy.insert(TABLE, IMPORT, before="from hlo.backend.math.term")
    copy.insert(TABLE, LINE, before='    "abs"')
    copy.add("tests/ops/softplus.hlo", CASES)
    return copy


def test_it_is_a_row_a_function_on_lanes_and_cases(copy: ProjectCopy) -> None:
    assert copy.added == ["hlo/backend/math/softplus.py", "tests/ops/softplus.hlo"]
    assert copy.edited == {ROWS: 2, TABLE: 2}  # the row; the function's name and its import


def test_it_parses_verifies_evaluates_compiles_fuses_and_is_costed(copy: ProjectCopy) -> None:
    said = copy.script(USES)
    assert said == f"{CASES.count('HloModule')} cases, 1 fusion, 50 additions\n"


def test_it_is_listed_and_explained(copy: ProjectCopy) -> None:
    page = copy.opt("explain", "softplus")
    assert "ln(1 + e^x)" in page
    assert "compiled: loops" in page
    assert "as 50 additions, 130 cycles" in page
    assert "\nsoftplus " in copy.opt("--list-ops")
