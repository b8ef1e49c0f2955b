"""compare: three verdicts, and the first instruction that parts two programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.backend.emitters import table
from hlo.tools.cases.case import Case, case_of
from hlo.tools.comparison.verdicts import DIFFERENT, EQUAL, UNDECIDED, judged, noise_of
from hlo.tools.faults.divergence import diverged, wrong_alone
from tests.support.command import call
from tests.unit.tools.test_reduce import LOOP

# A sum that cancels: what is left is the rounding of what went in.
CANCELS = """HloModule m
ENTRY e {
  x = f32[3,4] parameter(0)
  l = f32[] constant(1e7)
  b = f32[3,4] broadcast(l), dimensions={}
  t = f32[3,4] tanh(x)
  up = f32[3,4] add(t, b)
  down = f32[3,4] subtract(up, b)
  h = f32[3,4] subtract(down, t)
  ROOT r = f32[3,4] multiply(h, b)
}
"""
PLAIN = "HloModule m\nENTRY e {\n x = f32[3,4] parameter(0)\n ROOT r = f32[3,4] tanh(x)\n}\n"


def verdict(text: str, change: float) -> str:
    case = case_of(hlo.parse(text))
    result = np.asarray(hlo.evaluate(case.module, *case.values))
    return judged(result * np.float32(1 + change), result, noise_of(case)).verdict


def test_a_few_ulps_are_equal_and_a_thousandth_is_not() -> None:
    assert verdict(PLAIN, 0) == EQUAL
    assert verdict(PLAIN, 4e-7) == EQUAL
    assert verdict(PLAIN, 1e-3) == DIFFERENT


def test_no_elements_are_equal() -> None:
    assert verdict(PLAIN.replace("3,4", "0,4"), 0) == EQUAL


def test_what_amplifies_its_last_bit_is_undecided() -> None:
    assert verdict(CANCELS, 1e-3) == UNDECIDED


def test_a_small_element_counts_by_itself() -> None:
    """1e-20 turned into 0 beside elements near 1."""
    case = case_of(hlo.parse(PLAIN), [np.full((3, 4), 0.5, np.float32)])
    case.values[0][1, 2] = 1e-20  # type: ignore[index]
    result = np.asarray(hlo.evaluate(case.module, *case.values))
    gone = result.copy()
    gone[1, 2] = 0
    found = judged(gone, result, noise_of(case))
    assert found.verdict == DIFFERENT
    assert found.leaves[0].index == (1, 2)


def test_integers_that_rounding_decides_are_undecided() -> None:
    text = CANCELS.replace("ROOT r", "r").replace(
        "(h, b)\n", "(h, b)\n  z = f32[3,4] multiply(x, x)\n  "
        "ROOT c = pred[3,4] compare(r, z), direction=LT\n",
    )  # fmt: skip
    case = case_of(hlo.parse(text))
    noise = noise_of(case)
    result = np.asarray(hlo.evaluate(case.module, *case.values))
    assert noise is not None
    assert noise[0].any()
    assert judged(np.where(noise[0] > 0, ~result, result), result, noise).verdict == UNDECIDED
    assert judged(~result, result, None).verdict == DIFFERENT


def test_no_finite_value_is_undecided() -> None:
    nans = np.full(3, np.nan, np.float32)
    assert judged(nans, nans, None).verdict == UNDECIDED
    assert judged(nans, np.ones(3, np.float32), None).verdict == DIFFERENT


def test_the_first_instruction_that_diverges_in_a_loop() -> None:
    """The bodies agree until the value is smaller than a bound that B has."""
    other = LOOP.replace(
        "t = f32[6,5] tanh(l)",
        "n = f32[] constant(0.5)\n  m = f32[6,5] broadcast(n), dimensions={}\n"
        "  t0 = f32[6,5] tanh(l)\n  t = f32[6,5] minimum(t0, m)",
    )  # fmt: skip
    a = case_of(hlo.parse(LOOP), [np.full((6, 5), 0.3, np.float32)])
    assert diverged(a, Case(hlo.parse(other), a.values)) is None
    faster = LOOP.replace("t = f32[6,5] tanh(l)", "t = f32[6,5] sine(l)")
    found = diverged(a, Case(hlo.parse(faster.replace("exponential", "exponential")), a.values))
    assert found is not None
    assert (found.loop, found.iteration) == ("body", 1)


def test_a_kernel_that_is_wrong_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.EMITTERS, "tanh", table.EMITTERS["sine"])
    found = wrong_alone(case_of(hlo.parse(CANCELS)))
    assert found is not None
    assert "tanh(%x)" in found.instruction


def test_the_command(tmp_path: Path) -> None:
    a, b = tmp_path / "a.hlo", tmp_path / "b.hlo"
    a.write_text(PLAIN)
    b.write_text(PLAIN.replace("tanh(x)", "sine(x)"))
    same = call("hlo-run", "compare", str(a))
    assert (same.code, same.out.splitlines()[-1]) == (0, "equal")
    other = call("hlo-run", "compare", str(a), str(b), "--json")
    assert other.code == 1
    assert json.loads(other.out)["verdict"] == "different"
    a.write_text(CANCELS)
    b.write_text(CANCELS.replace("constant(1e7)", "constant(1.01e7)"))
    assert call("hlo-run", "compare", str(a), str(b), "--passes=").code == 1
    assert call("hlo-run", "compare", str(a), str(b), "--passes=", "--allow-undecided").code == 0
