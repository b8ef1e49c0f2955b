"""convolution-of-holes: every output is the same sum, in any mix of dilations, pads and orders."""

from itertools import pairwise

import numpy as np
import pytest

import hlo
from hlo.attributes.window import WindowDim
from hlo.ir.graph import clone_module
from hlo.passes.patterns import convolution
from hlo.passes.patterns.phases import Holes, Phases
from hlo.passes.simplify.algsimp import algsimp
from hlo.tools.cases.inputs import made_up_inputs

CASES = {  # lhs, rhs, result, window
    "two-dims": ("2,4,3,3", "3,4,3,2", "2,8,6,2", "size=3x4 pad=2_1x1_3 lhs_dilate=2x2"),
    "unequal": ("1,5,2,3", "3,2,3,2", "1,13,2,2", "size=3x2 pad=2_0x0_1 lhs_dilate=3x1"),
    "cropped": ("1,5,6,2", "2,3,2,3", "1,5,7,3", "size=2x3 pad=-2_-1x1_-3 lhs_dilate=2x2"),
    "fewer taps": ("1,5,2,3", "2,2,3,2", "1,14,2,2", "size=2x2 pad=1_1x0_1 lhs_dilate=3x1"),
    "one tap": ("2,4,3,3", "1,1,3,2", "2,7,6,2", "size=1x1 pad=0_0x0_1 lhs_dilate=2x2"),
    "patches": ("2,3,4,5", "4,3,5,2", "2,12,12,2", "size=4x3 pad=3_3x2_2 lhs_dilate=4x3"),
    "joined": ("1,5,3,2", "5,8,2,3", "1,16,12,3", "size=5x8 pad=3_4x5_5 lhs_dilate=3x4"),
    "overlapping": ("1,5,4,2", "7,2,2,3", "1,16,8,3", "size=7x2 pad=-1_10x1_1 lhs_dilate=3x2"),
    "strided": ("1,4,5,2", "2,3,2,3", "1,7,2,3", "size=2x3 stride=1x2 pad=1_0x0_0 lhs_dilate=2x1"),
}

PLAIN = "dim_labels=b01f_01io->b01f"
GROUPS = {  # in two groups, features before places
    "groups": ("2,6,3,4", "4,3,3,2", "2,4,9,8", "size=3x2 pad=2_2x1_1 lhs_dilate=3x2"),
    "groups joined": ("1,4,5,3", "6,2,5,7", "1,6,16,9", "size=5x7 pad=3_4x4_4 lhs_dilate=3x3"),
}


def written(name: str) -> str:
    lhs, rhs, out, window = (CASES | GROUPS)[name]
    rest = "dim_labels=bf01_oi01->bf01, feature_group_count=2" if name in GROUPS else PLAIN
    return (
        f"HloModule m\nENTRY e {{\n  x = f32[{lhs}] parameter(0)\n  w = f32[{rhs}] parameter(1)\n"
        f"  ROOT r = f32[{out}] convolution(x, w), window={{{window}}}, {rest}\n}}\n"
    )


@pytest.mark.parametrize("name", CASES | GROUPS)
@pytest.mark.parametrize("inputs", ["normal", "wild"])
def test_places_between_holes_have_the_same_sums(
    name: str, inputs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "LEAST_DEPTH", 1)
    monkeypatch.setattr(convolution, "LEAST_PRODUCTS", 1)
    module = hlo.parse(written(name))
    hlo.verify(module)
    rewritten = clone_module(module)
    assert algsimp(rewritten, only="convolution-of-holes")
    hlo.verify(rewritten)
    assert all(
        d.base_dilation == 1
        for i in rewritten.entry.instructions
        if i.opcode == "convolution"
        for d in i["window"].dims
    )
    values = made_up_inputs(module, inputs, seed=3)
    with np.errstate(all="ignore"):
        expected, found = hlo.evaluate(module, *values), hlo.evaluate(rewritten, *values)
    assert np.array_equal(expected, found, equal_nan=True)


COUNTS = {  # size, pad and dilation of both dimensions, features: convolutions that stand for it
    (16, "15_15", 16, 128): 1,  # patches: all phases see the same
    (9, "6_6", 4, 128): 4,  # two or three elements, from before the first output on
    (3, "1_2", 2, 128): 4,
    (4, "3_3", 2, 128): 1,
    (4, "2_2", 2, 128): 1,  # one output in 8 is computed for nothing
    (4, "2_2", 2, 512): 4,  # .. which is dear where there are so many products
    (4, "2_2", 2, 3): 1,  # few products, whose phases see two elements each
    (2, "1_1", 2, 3): 1,  # windows that do not overlap
}


@pytest.mark.parametrize("form", COUNTS)
def test_phases_that_see_the_same_are_features_of_one(form: tuple[int, str, int, int]) -> None:
    size, pad, d, features = form
    out = 7 * d + 2 + sum(map(int, pad.split("_"))) - size
    module = hlo.parse(
        f"HloModule m\nENTRY e {{\n  x = f32[2,8,8,{features}] parameter(0)\n"
        f"  w = f32[{size},{size},{features},32] parameter(1)\n  ROOT r = f32[2,{out},{out},32] "
        f"convolution(x, w), window={{size={size}x{size} pad={pad}x{pad} lhs_dilate={d}x{d}}}, "
        f"{PLAIN}\n}}\n"
    )
    hlo.verify(module)
    assert algsimp(module)
    made = [i for i in module.entry.instructions if i.opcode == "convolution"]
    assert len(made) == COUNTS[form]


def test_what_the_rewrite_makes_is_simplified_in_the_same_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reshapes of reshapes lie below what it puts in the convolution's phase."""
    monkeypatch.setattr(convolution, "LEAST_DEPTH", 1)
    monkeypatch.setattr(convolution, "LEAST_PRODUCTS", 1)
    module = hlo.parse(written("two-dims"))
    assert algsimp(module)
    assert not algsimp(clone_module(module))


def holes(size: int, dilation: int, low: int, before: int = 0) -> Holes:
    return Holes(WindowDim(size, 1, low, 3, dilation), 0, 0, 0, 5, 7, before)


@pytest.mark.parametrize("dilation", [1, 2, 3, 5, 8])
def test_groups_are_runs_of_phases_that_see_the_same(dilation: int) -> None:
    for size in range(12):
        for low in range(-6, 9):
            seen = []  # by each phase: how many taps, from which element on, its last tap
            for phase in range(dilation):
                taps = [t for t in range(size) if (phase - low + t) % dilation == 0]
                tap = (low - phase) % dilation
                seen.append((len(taps), (low - phase - tap) // dilation, tap))
            found = holes(size, dilation, low).groups
            assert [(g.taps, g.low) for g in found for _ in range(g.count)] == [s[:2] for s in seen]
            assert [g.tap for g in found] == [seen[g.first + g.count - 1][2] for g in found]
            assert all((a.taps, a.low) != (b.taps, b.low) for a, b in pairwise(found))


def test_groups_of_a_huge_dilation_are_few() -> None:
    d = 10**13
    assert holes(2, d, 0).groups == (Phases(0, 1, 1, 0, 0), Phases(1, d - 2, 0, -1, 2),
                                     Phases(d - 1, 1, 1, -1, 1))  # fmt: skip
