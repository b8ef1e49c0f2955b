"""Loops over lanes: every vector of a batch is known to lie within the loop."""

import ml_dtypes
import numpy as np

from hlo import driver
from hlo.driver import emit_stage

STACK = """HloModule m
ENTRY e { x = bf16[20,1000] parameter(0)
  y = bf16[20,1000] parameter(1)
  a = bf16[20,1,1000] reshape(x)
  b = bf16[20,1,1000] reshape(y)
  ROOT r = bf16[20,2,1000] concatenate(a, b), dimensions={1} }"""


def test_batches_of_reshaped_rows_are_loads() -> None:
    """Not gathers from positions modulo the row's length."""
    module = driver.parse(STACK)
    text = emit_stage(driver.optimize(module), "llvm")
    assert "masked.gather" not in text
    assert "urem" not in text
    x = np.arange(20000).reshape(20, 1000).astype(ml_dtypes.bfloat16)
    result = driver.compile(module, cache=False)(x, -x)
    np.testing.assert_array_equal(result, np.stack([x, -x], 1))
