"""Each rule of algsimp: a case in which it fires and keeps the value, and one in which it must not.

passes/algsimp/<family>.hlo holds bodies behind `// FIRES rule` and `// NOT rule`.
"""

import builtins
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlo
from hlo.ir.graph import clone_module
from hlo.ops.table import OPS
from hlo.passes.rewriting import RULES, Limits, apply_rules
from hlo.passes.simplify.algsimp import algsimp, all_rules
from hlo.tools.cases.arrays import leaves
from hlo.tools.cases.inputs import made_up_inputs

ALL = all_rules()
COMMON = {"hlo.passes.patterns.arithmetic", "hlo.passes.patterns.movement"}  # of most programs
FOLDER = Path(__file__).parent / "passes" / "algsimp"
HEAD = re.compile(r"^// (FIRES|NOT) (\S+)\n", re.MULTILINE)


def cases() -> list[tuple[str, str, str]]:
    found = []
    for path in sorted(FOLDER.glob("*.hlo")):
        parts = HEAD.split(path.read_text())[1:]
        for kind, rule, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            assert ALL[rule].family == path.stem, f"{rule} is filed under {path.stem}"
            found.append((kind, rule, body))
    return found


CASES = cases()


def test_each_rule_has_both_cases() -> None:
    for rule in ALL:
        kinds = {kind for kind, name, _ in CASES if name == rule}
        assert kinds == {"FIRES", "NOT"}, rule


def test_each_rule_says_its_equation() -> None:
    for rule in ALL.values():
        assert "=>" in rule.equation, rule.name
        assert rule.opcodes <= OPS.keys()


def test_families_are_imported_for_the_opcodes_of_their_rules() -> None:
    """Asked for an opcode alone, in a fresh process, each has all its rules, in the same order."""
    wanted = {o: [r.name for r in ALL.values() if o in r.opcodes] for o in OPS}
    for opcode, names in wanted.items():
        homes = {ALL[name].function.__module__ for name in names}
        with pytest.MonkeyPatch.context() as patch:
            asked: set[str] = set()
            patch.setattr(builtins, "__import__", _noting(asked))
            assert [rule.name for rule in RULES.of(opcode)] == names
        assert homes <= asked | COMMON, opcode


def _noting(asked: set[str]) -> Callable[..., object]:
    """Python's import, which says what families it was asked for."""
    plain = builtins.__import__

    def noting(name: str, *rest: Any) -> object:
        if name == "hlo.passes.patterns" and len(rest) > 2:
            asked.update(f"{name}.{part}" for part in rest[2] or ())
        return plain(name, *rest)

    return noting


@pytest.mark.parametrize(
    ("kind", "rule", "body"), CASES, ids=[f"{k}-{r}-{i}" for i, (k, r, _) in enumerate(CASES)]
)
def test_rule(kind: str, rule: str, body: str) -> None:
    module = hlo.parse(f"HloModule m\nENTRY e {{\n{body}}}\n")
    hlo.verify(module)
    rewritten = clone_module(module)
    limits = Limits(inexact=True, only=frozenset({rule}))
    hits = apply_rules(rewritten, limits)
    if kind == "NOT":
        assert not hits
        # What a rule makes and does not use is looked at in the next round, for ever.
        assert len(rewritten.entry) == len(module.entry)
        return
    assert hits[rule] >= 1
    hlo.verify(rewritten)
    for inputs in ("normal", "wild"):
        if inputs == "wild" and not ALL[rule].exact:
            continue
        values = made_up_inputs(module, inputs, seed=1)
        before = list(leaves(hlo.evaluate(module, *values)))
        after = list(leaves(hlo.evaluate(rewritten, *values)))
        for x, y in zip(before, after, strict=True):
            assert_equal_values(x, y, exact=ALL[rule].exact)


def assert_equal_values(x: np.ndarray, y: np.ndarray, *, exact: bool) -> None:
    """Equal bits but for NaN payloads; close where the rule is not exact."""
    assert x.dtype == y.dtype
    assert x.shape == y.shape
    if x.dtype.kind in "biu" or x.dtype.name.startswith(("int", "uint")):
        assert np.array_equal(x, y)
        return
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    a, b = np.asarray(x).astype(wide), np.asarray(y).astype(wide)
    if exact:
        assert np.array_equal(a, b, equal_nan=True)
        if x.dtype.kind != "c":
            assert np.array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))
    else:
        assert np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_options_reach_the_rules() -> None:
    text = "HloModule m\nENTRY e { x = s32[3] parameter(0) ROOT r = s32[3] subtract(x, x) }"
    assert algsimp(hlo.parse(text)) is True
    assert algsimp(hlo.parse(text), without="subtract-self") is False
    assert algsimp(hlo.parse(text), only="add-zero") is False
    assert algsimp(hlo.parse(text), fuel=0) is False
