"""What is wrong in one place is never called equal, and bisect finds it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.planted_faults import (
    Outcome,
    cases,
    faults,
    kernel_outcomes,
    outcome,
    sound_verdicts,
    table_of,
)

SUITE = Path(__file__).parents[3] / "shared" / "suites" / "conformance"

PROGRAM = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[8,8] parameter(0)
  w = f32[8,8] parameter(1)
  b = f32[8] parameter(2)
  d = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bs = f32[8,8] broadcast(b), dimensions={1}
  h = f32[8,8] add(d, bs)
  t = f32[8,8] tanh(h)
  c = f32[] constant(0.3)
  cs = f32[8,8] broadcast(c), dimensions={}
  less = pred[8,8] compare(t, cs), direction=LT
  m = f32[8,8] subtract(t, x)
  s = f32[8,8] select(less, m, t)
  part = f32[7,8] slice(s), slice={[0:7],[0:8]}
  z = f32[] constant(0)
  ROOT r = f32[7] reduce(part, z), dimensions={1}, to_apply=add
}
"""


MOST = 130  # programs of the suite that faults are planted in, one in each


def check(outcomes: list[Outcome]) -> None:
    """None is called equal; nineteen of twenty are found."""
    said = {o.verdict for o in outcomes}
    assert said <= {"different", "undecided"}, table_of(outcomes)
    assert sum(o.is_found for o in outcomes) >= 0.95 * len(outcomes), table_of(outcomes)


def test_faults_of_each_kind_in_a_small_program(tmp_path: Path) -> None:
    (tmp_path / "program.hlo").write_text(PROGRAM)
    ((path, case),) = cases([tmp_path])
    assert sound_verdicts([(path, case)], tmp_path) == {"equal": 1}
    planted = list(faults(path, case, random.Random(0), 9))
    assert len(planted) >= 8
    check([outcome(fault, case, tmp_path) for fault in planted])
    check(list(kernel_outcomes([(path, case)], 1, tmp_path)))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not SUITE.exists(), reason="the suite is not here")
def test_a_hundred_faults_of_the_suite(tmp_path: Path) -> None:
    found = list(cases([SUITE]))
    rng = random.Random(1)
    rng.shuffle(found)
    found = found[:MOST]
    made = [(f, case) for path, case in found for f in faults(path, case, rng, 1)]
    outcomes = [outcome(fault, case, tmp_path) for fault, case in made]
    outcomes += kernel_outcomes(found, 1, tmp_path)
    assert len(outcomes) >= 100
    check(outcomes)
    verdicts = sound_verdicts(found, tmp_path)
    assert verdicts["different"] == 0
    assert verdicts["undecided"] <= 0.05 * len(found)
