"""compare-extreme on every pair of special values: the comparison's truth does not change."""

import numpy as np
import pytest

import hlo
from hlo.ir.graph import clone_module
from hlo.passes.simplify.algsimp import algsimp

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1.5, -2.25], np.float32)
TEXT = """HloModule m
ENTRY e {{
  a = f32[9,9] parameter(0)
  c = f32[9,9] parameter(1)
  x = f32[9,9] negate(a)
  m = f32[9,9] {extreme}(x, c)
  p = pred[9,9] compare({operands}), direction={direction}
  ROOT r = (f32[9,9], pred[9,9]) tuple(m, p)
}}
"""


@pytest.mark.parametrize("operands", ["x, c", "c, x"])
@pytest.mark.parametrize("direction", ["GT", "GE", "LT", "LE", "EQ", "NE"])
@pytest.mark.parametrize("extreme", ["maximum", "minimum"])
def test_comparisons_with_an_extreme_have_their_truth(
    extreme: str, direction: str, operands: str
) -> None:
    text = TEXT.format(extreme=extreme, direction=direction, operands=operands)
    module = hlo.parse(text)
    rewritten = clone_module(module)
    fired = algsimp(rewritten, only="compare-extreme")
    upper = direction in (("GT", "LE") if operands == "x, c" else ("LT", "GE"))
    lower = direction in (("LT", "GE") if operands == "x, c" else ("GT", "LE"))
    assert fired == (upper if extreme == "maximum" else lower)
    values = np.repeat(SPECIAL[:, None], 9, 1), np.repeat(SPECIAL[None], 9, 0)
    assert np.array_equal(hlo.evaluate(module, *values)[1], hlo.evaluate(rewritten, *values)[1])
