"""Scans without host calls: the values of the reference."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.tools.cases.inputs import made_up_inputs

ACCUMULATE = """HloModule m
step {{ x = {kind}[{row}] parameter(0)
  c = {kind}[{row}] parameter(1)
  s = {kind}[{row}] {opcode}({order})
  ROOT r = ({kind}[{row}], {kind}[{row}]) tuple(s, s) }}
ENTRY e {{ x = {kind}[{dims}] parameter(0)
  c = {kind}[{row}] parameter(1)
  ROOT r = ({kind}[{dims}], {kind}[{row}]) scan(x, c), dimensions={{{along}}}, num_carries=1,
    is_reverse={reverse}, is_associative={free}, to_apply=step }}
"""
GENERAL = """HloModule m
step {{ x = f32[3] parameter(0)
  k = s32[3,2] parameter(1)
  c = f32[3] parameter(2)
  n = s32[] parameter(3)
  y = f32[3] multiply(x, c)
  d = f32[3] add(y, x)
  one = s32[] constant(1)
  m = s32[] add(n, one)
  spread = s32[3,2] broadcast(m), dimensions={{}}
  t = s32[3,2] add(k, spread)
  ROOT r = (f32[3], s32[3,2], f32[3], s32[]) tuple(y, t, d, m) }}
ENTRY e {{ x = f32[3,{n}] parameter(0)
  k = s32[3,{n},2] parameter(1)
  c = f32[3] parameter(2)
  i = s32[] parameter(3)
  ROOT r = (f32[3,{n}], s32[3,{n},2], f32[3], s32[]) scan(x, k, c, i), dimensions={{1}},
    num_carries=2, is_reverse={reverse}, to_apply=step }}
"""


def _check(text: str) -> set[str]:
    module = driver.parse(text)
    optimized = driver.optimize(module, "scan_expander")
    opcodes = {i.opcode for c in optimized.computations for i in c.instructions}
    assert "scan" not in opcodes
    arguments = made_up_inputs(module, "uniform", 4)
    expected = driver.evaluate(module, *arguments)
    for found in (
        driver.evaluate(optimized, *arguments), driver.compile(module, cache=False)(*arguments)
    ):  # fmt: skip
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5)
    return opcodes


@pytest.mark.parametrize("reverse", ["true", "false"])
@pytest.mark.parametrize("free", ["true", "false"])
@pytest.mark.parametrize(
    ("kind", "dims", "row", "along", "opcode", "order"),
    [
        ("f32", "50", "", 0, "add", "x, c"), ("f32", "6,40", "6", 1, "add", "c, x"),
        ("s32", "9,5", "5", 0, "maximum", "x, c"), ("f64", "4,7,3", "4,3", 1, "multiply", "x, c"),
        ("u32", "12", "", 0, "minimum", "x, c"),
    ],
)  # fmt: skip
def test_accumulations(
    reverse: str, free: str, kind: str, dims: str, row: str, along: int, opcode: str, order: str
) -> None:
    text = ACCUMULATE.format(
        kind=kind, dims=dims, row=row, along=along, opcode=opcode, order=order, reverse=reverse,
        free=free,
    )  # fmt: skip
    assert ("reduce-window" in _check(text)) == (free == "true")


@pytest.mark.parametrize("reverse", ["true", "false"])
@pytest.mark.parametrize("n", [5, 1, 0])
def test_scans_of_any_step_are_loops(n: int, reverse: str) -> None:
    assert ("while" in _check(GENERAL.format(n=n, reverse=reverse))) == (n > 0)
