"""The pipeline language, the catalogue's rules, the manager."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hlo
from hlo.cli.bug_report import report_bug
from hlo.errors import HloError
from hlo.passes.catalogue import CATALOGUE, NEEDS, PIPELINES, first_line
from hlo.passes.manager import Manager, PassError
from hlo.passes.order import ORDER
from hlo.passes.pipeline import Fixpoint, Layers, Step, Steps, parse_pipeline

TESTS = Path(__file__).parents[2]
OPS_FOLDER = TESTS / "ops"
TWICE = """HloModule m
ENTRY e {
  x = f32[3] parameter(0)
  a = f32[3] negate(x)
  ROOT b = f32[3] negate(a)
}
"""


def test_names_groups_and_options() -> None:
    text = "dce, constant-folding{max-elements=7},fixpoint(algsimp,cse),layers(dce,fixpoint(cse))"
    steps = parse_pipeline(text)
    assert steps[0] == Step("dce")
    assert steps[1] == Step("constant_folding", (("max_elements", 7),))
    assert steps[2] == Fixpoint((Step("algsimp"), Step("cse")))
    assert steps[3] == Layers((Step("dce"), Fixpoint((Step("cse"),))))
    assert parse_pipeline(",".join(map(str, steps))) == steps


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_parse(name: str) -> None:
    steps = parse_pipeline(name)
    assert bool(steps) == bool(PIPELINES[name])


@pytest.mark.parametrize(
    "text",
    ["nothing", "dce{", "dce{x=1}", "fixpoint(dce", "layers(dce", "dce)", "dce dce", "@",
     "algsimp{inexact=2}", "simplify{a=1}", "constant_folding{max-elements=x}", "fixpoint(" * 40],
)  # fmt: skip
def test_bad_pipelines_are_one_clear_error(text: str) -> None:
    with pytest.raises(HloError) as caught:
        parse_pipeline(text)
    assert caught.value.code in ("pipeline", "unknown-pass")


def names(steps: Steps) -> list[str]:
    found: list[str] = []
    for step in steps:
        found += names(step.steps) if isinstance(step, Fixpoint | Layers) else [step.name]
    return found


@pytest.mark.parametrize("name", PIPELINES)
def test_order_constraints_hold(name: str) -> None:
    order = names(parse_pipeline(name))
    for before, after, why in ORDER:
        assert before in CATALOGUE
        assert after in CATALOGUE
        if before in order and after in order:
            last = len(order) - 1 - order[::-1].index(after)
            assert order.index(before) < last, f"{before} before {after}: {why}"


def test_every_pass_says_what_it_does() -> None:
    for name, function in CATALOGUE.items():
        assert first_line(function).endswith("."), name


@pytest.mark.parametrize("name", NEEDS)
def test_a_pass_changes_nothing_without_the_ops_it_needs(name: str) -> None:
    """Run all the same, on every program of the ops' tests that lacks them."""
    for path in sorted(OPS_FOLDER.glob("*.hlo")):
        for text in path.read_text().split("\n// -----\n"):
            try:
                module = hlo.parse(text)
            except hlo.HloErrors:
                continue  # a test of an error
            present = {i.opcode for c in module.computations for i in c.instructions}
            if any(needed.isdisjoint(present) for needed in NEEDS[name]):
                assert not CATALOGUE[name](module), f"{path.name}: {module.name}"


def test_every_pass_is_found_under_its_name() -> None:
    assert NEEDS.keys() <= CATALOGUE.keys()
    for name, function in CATALOGUE.items():
        assert function.__name__ == re.sub("[-.]", "_", name), name


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_pass_has_cases_under_its_name(name: str) -> None:
    stem = re.sub("[-.]", "_", name)
    unit = TESTS / f"unit/passes/test_{stem}.py"
    golden = [p.name.replace("-", "_") for p in (TESTS / "golden/passes").iterdir()]
    has_cases = unit.exists() or any(found.startswith(stem) for found in golden)
    assert has_cases, f"add tests/golden/passes/{name}.hlo: a case that fires, one that must not"


def test_optimize_leaves_its_argument_alone() -> None:
    module = hlo.parse(TWICE)
    text = str(module)
    assert "negate" not in str(hlo.optimize(module, "algsimp"))
    assert str(module) == text


def test_a_pass_that_breaks_the_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(module: hlo.ir.module.Module) -> bool:  # type: ignore[name-defined]  # loaded with hlo
        root = module.entry.root
        root.shape = hlo.Shape.array("f32", [4])
        return True

    monkeypatch.setitem(CATALOGUE, "dce", breaks)
    with pytest.raises(PassError, match="pass dce broke the module"):
        Manager(verify=hlo.verify).run(hlo.parse(TWICE), parse_pipeline("dce"))


def test_a_pass_that_raises_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(module: hlo.ir.module.Module) -> bool:  # type: ignore[name-defined]  # loaded with hlo
        raise IndexError("tuple index out of range")

    monkeypatch.setitem(CATALOGUE, "dce", raises)
    with pytest.raises(IndexError) as caught:
        Manager().run(hlo.parse(TWICE), parse_pipeline("algsimp,dce"))
    assert caught.value.__notes__ == ["in pass dce"]
    told = report_bug("hlo-opt", ["--passes=dce"], caught.value).splitlines()
    assert told[0].endswith("IndexError: tuple index out of range, in pass dce")


def test_what_a_pass_did_is_counted() -> None:
    manager = Manager()
    manager.run(hlo.parse(TWICE), parse_pipeline("algsimp,dce"))
    assert [run.changed for run in manager.runs] == [True, False]
    assert manager.runs[0].instructions_before == 3
    assert manager.runs[0].instructions_after == 1


def test_a_fixpoint_ends_when_each_pass_has_left_the_module_as_it_is() -> None:
    manager = Manager()
    assert manager.run(hlo.parse(TWICE), parse_pipeline("fixpoint(tuple-simplifier,algsimp,dce)"))
    ran = [(run.step.name, run.changed) for run in manager.runs]
    assert ran == [
        ("tuple-simplifier", False), ("algsimp", True), ("dce", False),
        ("tuple-simplifier", False), ("algsimp", False),
    ]  # fmt: skip


def test_a_fixpoint_runs_no_more_rounds_than_it_may() -> None:
    """A pass that always says that it changed something."""
    manager = Manager()
    before = CATALOGUE["dce"]
    CATALOGUE["dce"] = lambda module: True
    try:
        manager.run(hlo.parse(TWICE), (Fixpoint((Step("dce"),), 3),))
    finally:
        CATALOGUE["dce"] = before
    assert len(manager.runs) == 3


NAMES = """
import sys
from hlo.passes.catalogue import CATALOGUE, NEEDS
from hlo.passes.pipeline import parse_pipeline
parse_pipeline("default")
assert all(name in CATALOGUE for name in NEEDS) and "no-pass" not in CATALOGUE
rare = ("hlo.passes.pass_lookup", "hlo.passes.while_loops.while_loop_unroller")
print(*(name in sys.modules for name in rare))
"""


def test_names_of_rare_passes_are_known_without_them() -> None:
    done = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_page_of_passes_says_something_of_each() -> None:
    page = (TESTS.parent / "docs/passes.md").read_text()
    assert [name for name in CATALOGUE if f"`{name}`" not in page] == []
