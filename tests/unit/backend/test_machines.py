"""Programs compiled for lesser machines than this one, run here: every family, every op."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.given_machines import with_features
from hlo.ir.module import Module
from hlo.machine import NAMED, Machine
from tests.support.machines_here import runs_here
from tests.support.op_files import Case, cases, run_case

LEVEL = NAMED["x86-64-v3"]
LESSER = {
    "generic": NAMED["generic"],
    "x86-64-v2": NAMED["x86-64-v2"],
    "without fma": with_features(LEVEL, "-fma"),
    "without avx2": with_features(LEVEL, "-avx2"),
    "without f16c": with_features(LEVEL, "-f16c"),
}
RUN = {name: machine for name, machine in LESSER.items() if runs_here(machine)}
COMPILED = [c for c in cases() if "ERROR" not in c.values and c.runs_on("compiled")]
FIRST_CASES = {case.file: case for case in reversed(COMPILED)}
DOT = """HloModule m
ENTRY e {{
  x = {0}[{1},{3}] parameter(0)
  y = {0}[{3},{2}] parameter(1)
  ROOT d = {0}[{1},{2}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""


def check(case: Case, machine: Machine) -> list[str]:
    def engine(module: Module, *arguments: object) -> object:
        return driver.compile(module, machine=machine, cache=False)(*arguments)

    return run_case(case, engine)


@pytest.mark.parametrize("name", RUN)
def test_an_op_on_a_lesser_machine(name: str) -> None:
    assert [(str(c), p) for c in FIRST_CASES.values() if (p := check(c, RUN[name]))] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_every_case_on_a_lesser_machine(name: str) -> None:
    """`pytest -m slow tests/unit/backend/test_machines.py`: half a minute for each machine."""
    assert [(str(c), p) for c in COMPILED if (p := check(c, RUN[name]))] == []


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "s32", "c64"])
@pytest.mark.parametrize("name", RUN)
def test_products_on_a_lesser_machine(name: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for sizes in ((40, 60, 200), (1, 70, 33), (129, 5, 300), (64, 64, 64)):
        module = hlo.parse(DOT.format(dtype, *sizes))
        arguments = [
            rng.integers(-4, 5, p.shape.dims).astype(p.shape.dtype.numpy)
            for p in module.entry.parameters
        ]
        got = driver.compile(module, machine=RUN[name], cache=False)(*arguments)
        want = hlo.evaluate(module, *arguments)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
