"""Concatenates that are not cut at their seams: no operand is read where another one stands."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver

SUMMED = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[3,60000] parameter(0)
  y = f32[3,16] parameter(1)
  zero = f32[] constant(0)
  c = f32[3,60016] concatenate(x, y), dimensions={1}
  ROOT r = f32[3] reduce(c, zero), dimensions={1}, to_apply=add
}
"""


def of_many(count: int) -> str:
    """A concatenate of more operands than it has boxes for."""
    shape = "f32[1,4096]"
    parts = "\n".join(f"  p{n} = {shape} parameter({n})" for n in range(count))
    names = ", ".join(f"p{n}" for n in range(count))
    root = f"ROOT r = f32[{count},4096] concatenate({names}), dimensions={{0}}"
    return f"HloModule m\nENTRY e {{\n{parts}\n  {root}\n}}\n"


@pytest.mark.parametrize("text", [SUMMED, of_many(72)], ids=["summed", "many"])
def test_the_last_operand_is_not_read_before_its_beginning(text: str) -> None:
    module = driver.parse(text)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.entry.parameters]
    executable = driver.compile(module, threads=2, cache=False)
    guarded = executable.run_guarded(*values)
    assert isinstance(guarded, np.ndarray)
    np.testing.assert_allclose(guarded, driver.evaluate(module, *values), rtol=1e-4, atol=1e-3)
