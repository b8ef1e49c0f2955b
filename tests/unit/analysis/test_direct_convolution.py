"""Which convolutions are computed directly, and along what lanes run."""

import pytest

import hlo
from hlo.analysis.direct_convolution import LanesAlong, direct_form

TEXT = """HloModule m
ENTRY e {{
  x = {} parameter(0)
  w = {} parameter(1)
  ROOT r = {} convolution(x, w), {}
}}"""
FEATURES, COLUMNS = "dim_labels=b01f_01io->b01f", "dim_labels=bf01_oi01->bf01"
CASES = {
    "a feature each": (
        "rows", "f32[1,9,9,16]", "f32[3,3,1,16]", "f32[1,9,9,16]",
        f"window={{size=3x3 pad=1_1x1_1}}, {FEATURES}, feature_group_count=16",
    ),
    "groups of four": (
        "rows", "f32[1,9,9,16]", "f32[3,3,4,16]", "f32[1,7,7,16]",
        f"window={{size=3x3}}, {FEATURES}, feature_group_count=4",
    ),
    "groups that fill a product": (
        None, "f32[1,9,9,32]", "f32[3,3,16,32]", "f32[1,7,7,32]",
        f"window={{size=3x3}}, {FEATURES}, feature_group_count=2",
    ),
    "no groups": (
        None, "f32[1,9,9,4]", "f32[3,3,4,16]", "f32[1,7,7,16]", f"window={{size=3x3}}, {FEATURES}",
    ),
    "a kernel whose outputs lie apart": (
        None, "f32[1,9,9,16]", "f32[16,3,3,1]", "f32[1,7,7,16]",
        "window={size=3x3}, dim_labels=b01f_o01i->b01f, feature_group_count=16",
    ),
    "more terms than one chain": (
        None, "f32[1,19,35,16]", "f32[17,16,1,16]", "f32[1,3,20,16]",
        f"window={{size=17x16}}, {FEATURES}, feature_group_count=16",
    ),
    "holes and strides": (
        None, "f32[1,9,9,16]", "f32[3,3,1,16]", "f32[1,8,8,16]",
        f"window={{size=3x3 stride=2x2 lhs_dilate=2x2 pad=0_1x0_1}}, {FEATURES},"
        " feature_group_count=16",
    ),
    "a gradient of the kernel": (
        "taps", "f32[4,9,9,16]", "f32[4,9,9,16]", "f32[3,3,1,16]",
        "window={size=9x9 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf, batch_group_count=16",
    ),
    "rows innermost": (
        "columns", "f32[1,3,9,9]", "f32[3,1,3,3]", "f32[1,3,9,9]",
        f"window={{size=3x3 pad=1_1x1_1}}, {COLUMNS}, feature_group_count=3",
    ),
    "one feature": (
        "columns", "f32[1,1,9,9]", "f32[1,1,3,3]", "f32[1,1,9,9]",
        f"window={{size=3x3 pad=1_1x1_1}}, {COLUMNS}",
    ),
    "a gradient of the kernel, rows innermost": (
        "sums", "f32[4,16,9,9]", "f32[4,16,9,9]", "f32[16,1,3,3]",
        "window={size=9x9 pad=1_1x1_1}, dim_labels=fb01_io01->fb01, batch_group_count=16",
    ),
    "far beside the base": (
        None, "f32[1,1,9,9]", "f32[1,1,3,3]", "f32[1,1,9,47]",
        f"window={{size=3x3 pad=1_1x0_40}}, {COLUMNS}",
    ),
    "rows innermost, more features": (
        None, "f32[1,3,9,9]", "f32[3,3,3,3]", "f32[1,3,9,9]",
        f"window={{size=3x3 pad=1_1x1_1}}, {COLUMNS}",
    ),
    "complex numbers": (
        None, "c64[1,3,9,9]", "c64[3,1,3,3]", "c64[1,3,9,9]",
        f"window={{size=3x3 pad=1_1x1_1}}, {COLUMNS}, feature_group_count=3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_form(name: str) -> None:
    expected, *parts = CASES[name]
    assert len(parts) == 4
    module = hlo.parse(TEXT.format(*parts))
    hlo.verify(module)
    form = direct_form(module.entry.root)
    kind = None
    if form is not None:
        kind = "columns" if form.lanes is LanesAlong.RESULTS else "sums"
        if form.lanes is LanesAlong.FEATURES:
            kind = "taps" if form.is_long else "rows"
    assert kind == expected
