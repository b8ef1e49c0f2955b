"""How much is done to compile a program does not follow from how large its arrays are.

The events of a profiler are counted, calls and returns: the same in every run, unlike time.
"""

from __future__ import annotations

import sys
from functools import reduce

import pytest

import hlo

SMALL, LARGE = 1 << 14, 1 << 20
MOST = 3  # Large arrays have parts, splits and tails that small ones have not; 64 would be growth.
PROGRAMS = {
    "row": "f32[1,1,{n}] x f32[1,1,17] -> f32[1,1,{n}]: size=17 pad=8_8 | bf0_oi0->bf0",
    "row of strides": "f32[1,1,{n}] x f32[1,1,8] -> f32[1,1,{h}]: size=8 stride=2 pad=3_3 "
    "| bf0_oi0->bf0",
    "row of holes": "f32[1,1,{h}] x f32[1,1,3] -> f32[1,1,{n}]: size=3 pad=2_1 lhs_dilate=2 "
    "| bf0_oi0->bf0",
    "features": "f32[1,{n},32] x f32[7,1,32] -> f32[1,{n},32]: size=7 pad=3_3 "
    "| b0f_0io->b0f, feature_group_count=32",
    "features at the end": "f32[1,{n},32] x f32[7,1,32] -> f32[1,{m},32]: size=7 "
    "| b0f_0io->b0f, feature_group_count=32",
    "rows of features": "f32[1,32,{n}] x f32[32,1,7] -> f32[1,32,{n}]: size=7 pad=3_3 "
    "| bf0_oi0->bf0, feature_group_count=32",
    "gradient of features": "f32[1,{n},32] x f32[1,{n},32] -> f32[7,1,32]: size={n} pad=3_3 "
    "| f0b_i0o->0bf, batch_group_count=32",
    "gradient of rows": "f32[1,32,{n}] x f32[1,32,{n}] -> f32[32,1,7]: size={n} pad=3_3 "
    "| fb0_io0->fb0, batch_group_count=32",
    "product": "f32[1,{n},8] x f32[7,8,8] -> f32[1,{n},8]: size=7 pad=3_3 | b0f_0io->b0f",
}  # base, kernel, result: window | labels


def _events(text: str) -> int:
    """What a profiler is told while a module is compiled that was before."""
    module, count = hlo.parse(text), 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    hlo.compile(module, cache=False)
    sys.setprofile(counted)
    try:
        hlo.compile(module, cache=False)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", PROGRAMS)
def test_convolutions_of_long_rows(name: str) -> None:
    shapes, _, rest = PROGRAMS[name].partition(":")
    base, _, kernel, _, result = shapes.split()
    window, _, attributes = rest.partition("|")
    text = f"""HloModule m
ENTRY e {{
  x = {base} parameter(0)
  k = {kernel} parameter(1)
  ROOT r = {result} convolution(x, k), window={{{window.strip()}}}, dim_labels={attributes.strip()}
}}
"""

    def sized(n: int) -> str:
        sizes = {"{n}": n, "{h}": n // 2, "{m}": n - 6}
        return reduce(lambda t, letter: t.replace(letter, str(sizes[letter])), sizes, text)

    assert _events(sized(LARGE)) < MOST * _events(sized(SMALL))
