"""Numbers of one and two bytes read in no order: by the words that hold them."""

import numpy as np
import pytest

import hlo
from hlo import driver

PROGRAM = """HloModule m

ENTRY e {{
  x = {type}[7,{n}]{{1,0}} parameter(0)
  zero = {type}[] constant(0)
  ROOT p = {type}[15,{wide}]{{1,0}} pad(x, zero), padding=1_1_1x3_1_2
}}
"""


@pytest.mark.parametrize("type", ["s8", "u8", "s16", "u16", "bf16", "f16", "pred"])
@pytest.mark.parametrize("n", [5, 33, 77])
def test_holes_of_narrow_types_compiled_and_read_agree(type: str, n: int) -> None:
    text = PROGRAM.format(type=type, n=n, wide=3 + n + (n - 1) * 2 + 1)
    module = hlo.parse(text.replace("constant(0)", "constant(false)") if type == "pred" else text)
    dtype = module.entry.parameters[0].shape.dtype.numpy
    bits = np.random.default_rng(n).integers(0, 2 if type == "pred" else 64, (7, n))
    x = bits.astype(dtype)
    expected = driver.evaluate(module, x)
    got = driver.compile(module, cache=False)(x)
    assert np.asarray(got).tobytes() == np.asarray(expected).tobytes()
