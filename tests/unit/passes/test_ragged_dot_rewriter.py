"""Ragged and scaled dots as dots and loops: the values of the reference, and no host call."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.covering import covering

SIZES = {
    "usual": [3, 0, 40, 7],
    "less than rows": [1, 2, 3, 0],
    "more than rows": [30, 30, 30, 30],
    "all in one": [0, 0, 70, 0],
    "nothing": [0, 0, 0, 0],
}
FREE = """HloModule m
ENTRY e {{ x = {t}[{m},5] parameter(0)
  y = {t}[4,5,6] parameter(1)
  g = {s}[4] parameter(2)
  ROOT r = {o}[{m},6] ragged-dot(x, y, g), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}},
    lhs_ragged_dims={{0}}, rhs_group_dims={{0}} }}
"""
BATCHED = """HloModule m
ENTRY e {{ x = {t}[3,2,{m},5] parameter(0)
  y = {t}[5,6,4,3] parameter(1)
  g = {s}[4] parameter(2)
  ROOT r = {o}[3,2,{m},6] ragged-dot(x, y, g), lhs_batch_dims={{0}}, lhs_contracting_dims={{3}},
    rhs_batch_dims={{3}}, rhs_contracting_dims={{0}}, lhs_ragged_dims={{2}}, rhs_group_dims={{2}} }}
"""
CONTRACTED = """HloModule m
ENTRY e {{ x = {t}[{m},5] parameter(0)
  y = {t}[6,{m}] parameter(1)
  g = {s}[4] parameter(2)
  ROOT r = {o}[4,5,6] ragged-dot(x, y, g), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}},
    lhs_ragged_dims={{0}} }}
"""
BATCHES = """HloModule m
ENTRY e {{ x = {t}[{m},2,5] parameter(0)
  y = {t}[{m},5,3] parameter(1)
  g = {s}[4] parameter(2)
  ROOT r = {o}[{m},2,3] ragged-dot(x, y, g), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}, lhs_ragged_dims={{0}} }}
"""
FORMS = {"free": FREE, "batched": BATCHED, "contracted": CONTRACTED, "batches": BATCHES}


def check(module: hlo.Module, arguments: list[object], tolerance: float) -> None:
    assert not Compilation(hlo.optimize(module), passes="", threads=1).program.hosts
    expected = hlo.evaluate(module, *arguments)
    actual = hlo.compile(module, cache=False, threads=3)(*arguments)
    assert actual.dtype == expected.dtype
    a, b = (np.asarray(x).astype(np.complex128) for x in (actual, expected))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("form", "sizes"), covering(FORMS, SIZES.values(), strength=1))
def test_ragged_dots_of_any_group_sizes(form: str, sizes: list[int]) -> None:
    module = hlo.parse(FORMS[form].format(t="f32", o="f32", s="s32", m=70))
    x, y, _ = made_up_inputs(module, "normal", 3)
    check(module, [x, y, np.array(sizes, np.int32)], 1e-5)


@pytest.mark.parametrize(
    ("form", "t", "o", "s", "tolerance"),
    covering(
        FORMS,
        [
            ("bf16", "bf16", "s64", 1e-2),
            ("f16", "f32", "u8", 1e-5),
            ("f64", "f64", "s32", 1e-13),
            ("c64", "c64", "s32", 1e-4),
            ("s8", "s32", "s32", 0),
            ("f8e4m3fn", "f32", "s32", 1e-5),
        ],
        strength=1,
        several=(1,),
    ),
)
def test_ragged_dots_of_any_type(form: str, t: str, o: str, s: str, tolerance: float) -> None:
    for m in (1, 33):
        module = hlo.parse(FORMS[form].format(t=t, o=o, s=s, m=m))
        x, y, g = made_up_inputs(module, "ints", 3)
        check(module, [x, y, np.array([m // 3, 0, 1, m // 2], g.dtype)], tolerance)


TRUTHS = """HloModule m
ENTRY e {{ x = {t}[9,{k}] parameter(0)
  y = {t}[3,{k},5] parameter(1)
  g = s32[3] parameter(2)
  ROOT r = {t}[9,5] ragged-dot(x, y, g), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}},
    lhs_ragged_dims={{0}}, rhs_group_dims={{0}} }}
"""


@pytest.mark.parametrize(("t", "k"), [("pred", 4), ("f32", 0)])
def test_truth_values_and_nothing_are_summed(t: str, k: int) -> None:
    module = hlo.parse(TRUTHS.format(t=t, k=k))
    rng = np.random.default_rng(0)
    dtype = module.entry.parameters[0].shape.dtype.numpy
    arrays: list[object] = [
        rng.integers(0, 2, p.shape.dims).astype(dtype) for p in module.entry.parameters[:2]
    ]
    check(module, [*arrays, np.array([2, 3, 3], np.int32)], 0.0)


def test_rows_of_other_groups_do_not_reach_a_sum() -> None:
    module = hlo.parse(CONTRACTED.format(t="f32", o="f32", s="s32", m=40))
    x, y, _ = made_up_inputs(module, "normal", 3)
    y[:, 30:] = np.inf
    x[31, 0] = np.nan
    check(module, [x, y, np.array([9, 0, 20, 0], np.int32)], 1e-5)


CONTRACTED_TWICE = """HloModule m
ENTRY e { x = f32[3,20,2,5] parameter(0)
  y = f32[20,6,3,2] parameter(1)
  g = s32[3,2,4] parameter(2)
  ROOT r = f32[4,3,5,6] ragged-dot(x, y, g), lhs_batch_dims={0}, rhs_batch_dims={2},
    lhs_contracting_dims={2,1}, rhs_contracting_dims={3,0}, lhs_ragged_dims={1} }
"""
DIFFERING = (
    BATCHED.format(t="f32", o="f32", s="s32", m=20).replace("s32[4]", "s32[3,2,4]"),
    BATCHES.format(t="f32", o="f32", s="s32", m=7)
    .replace("f32[7,2,5]", "f32[3,7,2,5]").replace("f32[7,5,3]", "f32[3,7,5,3]")
    .replace("f32[7,2,3]", "f32[3,7,2,3]").replace("s32[4]", "s32[3,4]")
    .replace("_dims={2}", "_dims={3}").replace("_dims={1}", "_dims={2}")
    .replace("batch_dims={0}", "batch_dims={0,1}").replace("ragged_dims={0}", "ragged_dims={1}"),
    CONTRACTED_TWICE,
)  # fmt: skip


@pytest.mark.parametrize("text", DIFFERING, ids=["rows", "batches", "contracted"])
def test_group_sizes_that_differ_along_other_dimensions(text: str) -> None:
    module = hlo.parse(text)
    x, y, g = made_up_inputs(module, "normal", 3)
    check(module, [x, y, np.arange(g.size, dtype=np.int32).reshape(g.shape) % 6], 1e-5)


SCALED = """HloModule m
ENTRY e {{ x = {t}[6,8] parameter(0)
  y = {t}[8,4] parameter(1)
  s = {s}[{left}] parameter(2)
  t = {s}[{right}] parameter(3)
  ROOT r = {o}[6,4] scaled-dot(x, y, s, t), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{0}} }}
"""


@pytest.mark.parametrize(
    ("left", "right"), [("6,2", "4,4"), ("1,1", "8,1"), ("", "2,2"), ("3,8", "")]
)
@pytest.mark.parametrize(
    ("t", "s", "o", "tolerance"),
    [("f32", "f32", "f32", 1e-5), ("f64", "f64", "f64", 1e-13),
     ("f8e4m3fn", "f8e8m0fnu", "f32", 1e-5),
     ("bf16", "bf16", "bf16", 1e-2), ("f4e2m1fn", "f8e8m0fnu", "bf16", 1e-2)],
)  # fmt: skip
def test_scaled_dots(left: str, right: str, t: str, s: str, o: str, tolerance: float) -> None:
    module = hlo.parse(SCALED.format(left=left, right=right, t=t, s=s, o=o))
    x, y, *scales = made_up_inputs(module, "ints", 3)
    powers = [2.0 ** np.random.default_rng(1).integers(-2, 3, a.shape) for a in scales]
    given = [p.astype(a.dtype) for p, a in zip(powers, scales, strict=True)]
    check(module, [x, y, *given], tolerance)
