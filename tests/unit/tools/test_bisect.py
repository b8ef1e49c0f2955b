"""bisect: planted faults of passes, rules and kernels are found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import hlo
from hlo.backend.emitters import table
from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.ops.making import make
from hlo.passes import rewriting
from hlo.passes.catalogue import CATALOGUE
from hlo.tools.cases.case import Case, case_of
from hlo.tools.cases.trials import Trials
from hlo.tools.faults.bisect import bisected, leaves_fault, stages
from hlo.tools.faults.bisect_kernels import bisected_kernels
from hlo.tools.faults.properties import differs_from, pass_fault
from hlo.tools.faults.reduce import reduced
from tests.support.command import call
from tests.support.long_chain import chain
from tests.unit.tools.test_reduce import SWAP


@pytest.fixture
def wrong_rule() -> Iterator[None]:
    """A rule that is no equation, for as long as a test runs."""

    @rewriting.rewrite("tanh")
    def planted(tanh: Instruction) -> Instruction | None:
        """tanh(x) => negate(x)"""
        return make(tanh, "negate", tanh.operands[0])

    yield
    del rewriting.RULES["planted"]  # alone: families may have been imported meanwhile
    rewriting._allowed.cache_clear()


@pytest.mark.usefixtures("wrong_rule")
def test_a_wrong_rewrite_of_a_pipeline_is_found_and_reduced() -> None:
    case = case_of(hlo.parse(chain(2000, "divide", 1990)))
    found = bisected(case, "default", differs_from(case, "interpreter"))
    assert found is not None
    assert found.step == "algsimp"
    assert found.rewrite is not None
    assert (found.rewrite.rule, found.rewrite.equation) == ("planted", "tanh(x) => negate(x)")
    assert "tanh(" in found.rewrite.old
    assert "negate(" in found.rewrite.new
    assert found.passes == "algsimp{only=planted}"
    made = reduced(found.before, Trials(pass_fault(found.passes)))
    assert made.case.size <= 5


def test_a_users_pass_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(chain(200, "divide", 190))
    (tmp_path / "mine.py").write_text(SWAP)
    try:
        outcome = call(
            "hlo-opt", "bisect", str(tmp_path / "m.hlo"), "-p", "simplify,swap-divide,cse,dce",
            "--load", str(tmp_path / "mine.py"), "-o", str(tmp_path / "min.hlo"),
        )  # fmt: skip
    finally:
        CATALOGUE.pop("swap-divide", None)
    assert outcome.code == 1
    assert "swap-divide, run 1 of it, is the first that breaks" in outcome.out
    assert "divide(%v" in outcome.out
    assert "to 3 instructions" in outcome.err
    assert hlo.parse((tmp_path / "min.hlo").read_text()).entry.root.opcode == "divide"


def test_a_pass_that_breaks_the_module() -> None:
    def broken(module: hlo.ir.module.Module) -> bool:
        """Break the root."""
        root = module.entry.root
        module.entry.set_operands(root, root.operands[:-1])
        return True

    CATALOGUE["broken"] = broken
    try:
        case = case_of(hlo.parse(chain(30, "divide", 20)))
        found = bisected(case, "dce,broken,cse", leaves_fault())
    finally:
        del CATALOGUE["broken"]
    assert found is not None
    assert found.step == "broken"


def test_right_programs_have_no_fault(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(chain(20, "divide", 10))
    outcome = call("hlo-opt", "bisect", str(tmp_path / "m.hlo"))
    assert outcome.code == 0
    assert "nothing is wrong" in outcome.err


def test_a_fault_that_is_there_before_is_said() -> None:
    case = case_of(hlo.parse(chain(20, "divide", 10)))
    other = Case(case.module, tuple(v + 1 for v in case.values))  # type: ignore[operator]
    with pytest.raises(HloError, match="has the fault already"):
        bisected(other, "default", differs_from(case, "interpreter"))


KERNELS = """HloModule m
ENTRY e {
  x = f32[8,16] parameter(0)
  w = f32[16,8] parameter(1)
  d = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[8,8] tanh(d)
  s = f32[8,8] sort(t), dimensions={0}, to_apply=less
  ROOT e = f32[8,8] exponential(s)
}
"""
LESS = """less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}
"""


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.EMITTERS, "exponential", table.EMITTERS["negate"])
    text = KERNELS.replace("ENTRY", LESS + "ENTRY")
    found = bisected_kernels(case_of(hlo.parse(text)))
    assert found is not None
    assert found.family == "fused_kernel (hlo/backend/kernels/fused_loops.py)"
    assert found.instruction.startswith("%e = f32[8,8]{1,0} exponential(")
    assert found.is_alone
    assert [i.opcode for i in found.case.module.entry.instructions] == ["parameter", "exponential"]


def test_a_kernel_that_cannot_be_made_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise IndexError("a bug of ours")

    monkeypatch.setitem(table.EMITTERS, "exponential", failing)
    text = KERNELS.replace("ENTRY", LESS + "ENTRY")
    found = bisected_kernels(case_of(hlo.parse(text)))
    assert found is not None
    assert found.instruction.startswith("%e = f32[8,8]{1,0} exponential(")
    assert found.is_alone


def test_what_is_wrong_in_two_families_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tanh by itself, and one that finishes a contraction."""
    monkeypatch.setitem(table.EMITTERS, "tanh", table.EMITTERS["negate"])
    text = """HloModule m
inside {
  x = f32[8,16] parameter(0)
  w = f32[16,8] parameter(1)
  d = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[8,8] tanh(d)
}
ENTRY e {
  x = f32[8,16] parameter(0)
  w = f32[16,8] parameter(1)
  t = f32[8,16] tanh(x)
  f = f32[8,8] fusion(x, w), kind=kOutput, calls=inside
  ROOT r = (f32[8,16], f32[8,8]) tuple(t, f)
}
"""
    found = bisected_kernels(case_of(hlo.parse(text)))
    assert found is not None
    assert " and " in found.family
    assert found.is_alone


def test_right_kernels_have_no_fault() -> None:
    assert bisected_kernels(case_of(hlo.parse(KERNELS.replace("ENTRY", LESS + "ENTRY")))) is None


def test_rounds_of_a_pass_are_counted() -> None:
    made = stages(hlo.parse(chain(60, "divide", 40)), "fixpoint(algsimp,cse,dce)")
    rounds = [s.round for s in made if s.step.name == "algsimp"]
    assert rounds == list(range(1, len(rounds) + 1))
