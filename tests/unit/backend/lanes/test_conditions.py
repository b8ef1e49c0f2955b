"""What is evaluated along lanes of its own does not ask the lanes outside one by one."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from tests.support.covering import covering

ROW_SUM_BESIDE = """HloModule m
%add (a: {t}[], b: {t}[]) -> {t}[] {{
  %a = {t}[] parameter(0)
  %b = {t}[] parameter(1)
  ROOT %r = {t}[] add(%a, %b)
}}
%fused (p: {t}[{n},{k}], q: {t}[{n},25]) -> {t}[{n},{w}] {{
  %p = {t}[{n},{k}]{{1,0}} parameter(0)
  %q = {t}[{n},25]{{1,0}} parameter(1)
  %z = {t}[] constant(0)
  %s = {t}[{n}]{{0}} reduce(%p, %z), dimensions={{1}}, to_apply=%add
  %b = {t}[{n},{k}]{{1,0}} broadcast(%s), dimensions={{0}}
  %c = {t}[{n},{w}]{{1,0}} concatenate({operands}), dimensions={{1}}
  ROOT %r = {t}[{n},{w}]{{1,0}} negate(%c)
}}
ENTRY %e (p: {t}[{n},{k}], q: {t}[{n},25]) -> {t}[{n},{w}] {{
  %p = {t}[{n},{k}]{{1,0}} parameter(0)
  %q = {t}[{n},25]{{1,0}} parameter(1)
  ROOT %f = {t}[{n},{w}]{{1,0}} fusion(%p, %q), kind=kLoop, calls=%fused
}}
"""


@pytest.mark.parametrize(
    ("columns", "element", "order"),
    covering([31, 16, 64, 7], ["f32", "s8", "f64", "bf16"], ["%q, %b", "%b, %q"]),
)
def test_a_row_sum_beside_another_array(columns: int, element: str, order: str) -> None:
    text = ROW_SUM_BESIDE.format(t=element, n=100, k=columns, w=columns + 25, operands=order)
    module = driver.parse(text)
    generator = np.random.default_rng(7)
    p, q = (generator.integers(-3, 4, (100, k)) for k in (columns, 25))
    values = [
        a.astype(leaf.shape.dtype.numpy)
        for a, leaf in zip((p, q), module.entry.parameters, strict=True)
    ]
    for passes in ("", "default"):
        found = driver.compile(module, passes=passes, cache=False)(*values)
        np.testing.assert_array_equal(
            np.asarray(found), np.asarray(driver.evaluate(module, *values))
        )
