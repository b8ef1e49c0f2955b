"""A bitcast between layouts runs as a loop; one that regroups bytes is the reference's."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.analysis.legality import family_of
from hlo.backend.compilation import Compilation
from hlo.backend.planning.program import HostStep, KernelStep
from hlo.ir.module import Module
from hlo.ops.table import KernelFamily

TRANSPOSED = """HloModule m
ENTRY e { p = f32[2,3]{0,1} parameter(0)
  ROOT b = f32[3,2]{1,0} bitcast(p) }"""
RETYPED = """HloModule m
ENTRY e { p = f32[2,3,4]{0,2,1} parameter(0)
  ROOT b = s32[12,2]{1,0} bitcast(p) }"""
REGROUPED = """HloModule m
ENTRY e { p = f32[4,2]{0,1} parameter(0)
  ROOT b = s16[16]{0} bitcast(p) }"""


def steps(module: Module) -> list[type]:
    return [type(step) for step in Compilation(module, passes="", threads=1).program.steps]


@pytest.mark.parametrize("text", [TRANSPOSED, RETYPED, REGROUPED])
def test_equal_to_the_reference(text: str) -> None:
    module = driver.parse(text)
    dims = module.entry.parameters[0].shape.dims
    x = np.random.default_rng(1).normal(size=dims).astype(np.float32)
    found = driver.compile(module, passes="", cache=False)(x)
    np.testing.assert_array_equal(found, driver.evaluate(module, x))


@pytest.mark.parametrize("text", [TRANSPOSED, RETYPED])
def test_other_layouts_are_loops(text: str) -> None:
    module = driver.parse(text)
    assert family_of(module.entry.root) is KernelFamily.LOOPS
    assert steps(module) == [KernelStep]


def test_regrouped_bytes_are_left_to_the_host() -> None:
    assert steps(driver.parse(REGROUPED)) == [HostStep]
