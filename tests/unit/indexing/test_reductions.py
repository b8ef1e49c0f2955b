"""Maps of ops that reduce: terms fetched where the map says give what the reference gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hlo
from hlo.attributes.window import WindowDim
from hlo.indexing import affine
from hlo.indexing.affine import Index
from hlo.indexing.reductions import is_inside, term_cases, term_extents
from hlo.ir.instruction import Instruction

ADD = "add { a = s32[] parameter(0)\n b = s32[] parameter(1)\n ROOT r = s32[] add(a, b) }\n"

CASES = {
    "reduce": "x = s32[3,4,5] parameter(0)\n z = s32[] constant(0)\n"
    "ROOT r = s32[4] reduce(x, z), dimensions={2,0}, to_apply=add",
    "window": "x = s32[6,5] parameter(0)\n z = s32[] constant(0)\n"
    "ROOT r = s32[4,8] reduce-window(x, z), to_apply=add,"
    " window={size=3x2 stride=2x1 pad=1_2x0_1 lhs_dilate=1x2 rhs_dilate=1x2}",
    "dot": "x = s32[3,2,4,5] parameter(0)\n y = s32[5,2,6,3] parameter(1)\n"
    "ROOT r = s32[2,4,6] dot(x, y), lhs_batch_dims={1}, rhs_batch_dims={1},"
    " lhs_contracting_dims={0,3}, rhs_contracting_dims={3,0}",
    "convolution": "x = s32[2,7,6,3] parameter(0)\n y = s32[3,2,3,4] parameter(1)\n"
    "ROOT r = s32[2,4,6,4] convolution(x, y), dim_labels=b01f_01io->b01f,"
    " window={size=3x2 stride=2x1 pad=1_1x1_0 rhs_reversal=1x0}",
    "groups": "x = s32[2,5,6] parameter(0)\n y = s32[3,3,4] parameter(1)\n"
    "ROOT r = s32[2,3,4] convolution(x, y), dim_labels=b0f_0io->b0f, window={size=3},"
    " feature_group_count=2",
    "batch groups": "x = s32[3,5,4] parameter(0)\n y = s32[3,3,6] parameter(1)\n"
    "ROOT r = s32[3,2,6] convolution(x, y), dim_labels=f0b_0io->0bf,"
    " window={size=3}, batch_group_count=2",
}


def _at(index: Index) -> tuple[int, ...]:
    assert all(e.is_constant for e in index)
    return tuple(e.constant for e in index)


def _element(root: Instruction, place: tuple[int, ...], values: list[np.ndarray]) -> int:
    """The sum of the terms' products, where all conditions hold."""
    total = 0
    index = tuple(map(affine.number, place))
    for term in itertools.product(*map(range, term_extents(root))):
        cases = term_cases(root, index, tuple(map(affine.number, term)))
        assert [case.operand for case in cases] == list(range(len(root.operands)))
        if all(c.always for case in cases for c in case.conditions):
            factors = [values[case.operand][_at(case.index)] for case in cases if case.index]
            total += int(np.prod(factors))
    return total


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_terms_are_where_the_map_says(text: str) -> None:
    module = hlo.parse(f"HloModule m\n{ADD}ENTRY e {{ {text} }}")
    root = module.entry.root
    random = np.random.default_rng(1)
    values = [random.integers(-9, 9, p.shape.dims, np.int32) for p in module.entry.parameters]
    expected = np.asarray(hlo.evaluate(module, *values))
    for place in np.ndindex(expected.shape):
        assert _element(root, place, values) == expected[place], place


@pytest.mark.parametrize("pad", range(-3, 4))
@pytest.mark.parametrize(("size", "stride", "dilation"), [(1, 1, 1), (3, 1, 1), (2, 3, 2)])
def test_windows_inside(size: int, stride: int, dilation: int, pad: int) -> None:
    window = WindowDim(size, stride, pad, window_dilation=dilation)
    for outputs, elements in itertools.product(range(5), range(1, 9)):
        places = (o * stride + k * dilation - pad for o in range(outputs) for k in range(size))
        assert is_inside(window, outputs, elements) == all(0 <= p < elements for p in places)
