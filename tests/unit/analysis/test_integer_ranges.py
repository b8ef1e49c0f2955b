"""Ranges of integers: every value that a random expression takes lies in its range."""

import numpy as np
import pytest

import hlo
from hlo.analysis.integer_ranges import ranges
from hlo.ir import dtype as dt

OPS = ("add", "subtract", "multiply", "maximum", "minimum", "divide", "remainder", "and")
TEXT = """HloModule m
ENTRY e {{
  i = s64[12] iota(), iota_dimension=0
  p = s8[12] parameter(0)
  x = s64[12] convert(p)
  c = s64[12] constant({{{constant}}})
  low = s64[] constant(-5)
  high = s64[] constant(9)
  k = s64[12] clamp(low, x, high)
{lines}
  n = s64[12] negate({last})
  a = s64[12] abs(n)
  less = pred[12] compare(a, c), direction=LT
  ROOT s = s64[12] select(less, a, {last})
}}
"""


def expression(seed: int) -> str:
    rng = np.random.default_rng(seed)
    names, lines = ["i", "x", "c", "k"], []
    for n in range(4):
        op = rng.choice(OPS)
        a, b = rng.choice(names, 2)
        if op in ("divide", "remainder"):
            b = "c"
        lines.append(f"  v{n} = s64[12] {op}({a}, {b})")
        names.append(f"v{n}")
    constant = ",".join(map(str, rng.integers(1, 30, 12)))
    return TEXT.format(constant=constant, lines="\n".join(lines), last=names[-1])


@pytest.mark.parametrize("seed", range(60))
def test_values_lie_in_their_range(seed: int) -> None:
    module = hlo.parse(expression(seed))
    least, most = ranges(module.entry).get(module.entry.root, dt.S64.int_range)
    narrowed = hlo.optimize(module, "index-narrower")
    rng = np.random.default_rng(seed)
    for _ in range(20):
        p = rng.integers(-128, 128, 12).astype(np.int8)
        found = np.asarray(hlo.evaluate(module, p))
        assert least <= found.min()
        assert found.max() <= most
        assert np.array_equal(found, hlo.evaluate(narrowed, p))


def test_what_may_wrap_has_no_ends() -> None:
    module = hlo.parse("""HloModule m
ENTRY e {
  p = s64[4] parameter(0)
  i = s64[4] iota(), iota_dimension=0
  big = s64[4] constant({4611686018427387904,1,1,1})
  twice = s64[4] add(big, big)
  q = s32[4] parameter(1)
  halves = s32[4] constant({0,1,2,3})
  joined = s64[2] bitcast(halves)
  ROOT s = s64[4] add(p, i)
}
""")
    found = {i.name: r for i, r in ranges(module.entry).items()}
    assert "s" not in found
    assert "twice" not in found
    assert "joined" not in found
    assert found["q"] == (-(1 << 31), (1 << 31) - 1)
