"""Programs whose sizes change at run time, compiled: the interpreter's values and errors."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.padded import PaddedExecutable

HEAD = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
most { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
ENTRY e { x = f32[6,4] parameter(0)
  n = s32[] parameter(1)
  k = s32[] parameter(2)
  zero = f32[] constant(10)
  d = f32[<=6,4] set-dimension-size(x, n), dimensions={0}
  c = f32[6,<=4] set-dimension-size(x, k), dimensions={1}
  both = f32[<=6,<=4] set-dimension-size(d, k), dimensions={1}
"""
BODIES = {
    "reduced": "ROOT r = f32[4] reduce(d, zero), dimensions={0}, to_apply=sum",
    "kept": "ROOT r = f32[<=6] reduce(d, zero), dimensions={1}, to_apply=most",
    "all": "ROOT r = f32[] reduce(both, zero), dimensions={0,1}, to_apply=most",
    "size": "ROOT r = s32[] get-dimension-size(both), dimensions={1}",
    "elementwise": "e1 = f32[<=6,4] exponential(d)\n  ROOT r = f32[<=6,4] multiply(e1, d)",
    "transposed": "ROOT r = f32[<=4,<=6] transpose(both), dimensions={1,0}",
    "turned": "ROOT r = f32[<=6,<=4] reverse(both), dimensions={0,1}",
    "flat": "ROOT r = f32[<=24] reshape(d)",
    "joined": "ROOT r = f32[<=18,4] concatenate(d, x, d), dimensions={0}",
    "beside": "ROOT r = f32[<=6,8] concatenate(d, d), dimensions={1}",
    "padded": "ROOT r = f32[<=9,4] pad(d, zero), padding=1_2x0_0",
    "cut": "ROOT r = f32[<=6,2] slice(d), slice={[0:6],[1:3]}",
    "part": "ROOT r = f32[2,4] slice(d), slice={[0:2],[0:4]}",
    "inner": "ROOT r = f32[6,6] dot(c, c), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "outer": "ROOT r = f32[<=6,<=6] dot(d, d), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "grown": "ROOT r = f32[6,4] set-dimension-size(d, n6), dimensions={0}",
    "ordered": "ROOT r = f32[<=6,4] sort(d), dimensions={1}, to_apply=less",
    "spread": "y = f32[<=6] reduce(d, zero), dimensions={1}, to_apply=sum\n"
    "  ROOT r = f32[3,<=6] broadcast(y), dimensions={1}",
    "nothing": "y = s32[<=6,4] convert(d)\n  ROOT r = s32[<=6,4] subtract(y, y)",
    "alike": "ROOT r = pred[<=6,<=4] compare(both, both), direction=EQ, type=TOTALORDER",
    "beside another": "y = f32[<=6,4] parameter(3)\n"
    "  ROOT r = f32[<=6,8] concatenate(d, y), dimensions={1}",
    "with another": "y = f32[<=6,4] parameter(3)\n"
    "  ROOT r = f32[4,4] dot(d, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "several": "s = s32[] get-dimension-size(d), dimensions={0}\n"
    "  ROOT r = (f32[<=6,4], s32[], f32[6,4]) tuple(d, s, x)",
}
LESS = "less { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n" \
    "  ROOT r = pred[] compare(a, b), direction=LT }\n"  # fmt: skip


def program(body: str) -> hlo.Module:
    head = HEAD.replace("ENTRY e", LESS + "ENTRY e")
    return hlo.parse(head + "  n6 = s32[] constant(6)\n  " + body + " }\n")


def assert_same(actual: object, expected: object) -> None:
    if isinstance(expected, tuple):
        for a, b in zip(actual, expected, strict=True):  # type: ignore[call-overload]  # a tuple
            assert_same(a, b)
        return
    assert isinstance(actual, np.ndarray)
    assert isinstance(expected, np.ndarray)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_sizes_are_scalars_beside_padded_arrays(body: str) -> None:
    module = program(body)
    run = hlo.compile(module, cache=False)
    assert isinstance(run, PaddedExecutable)
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    x[5, :], x[:, 3] = np.inf, np.nan
    for n, k in ((3, 2), (5, 3), (2, 0), (5, 1)):
        given = (x, np.int32(n), np.int32(k), x[:4])[: len(module.entry.parameters)]
        expected = hlo.evaluate(module, *given)
        assert_same(run(*given), expected)
        assert_same(run.run_guarded(*given), expected)


@pytest.mark.parametrize("passes", ["", "dynamic_padder", "default"])
def test_a_size_of_one_may_vanish(passes: str) -> None:
    """The reference judges what is left of it."""
    text = "HloModule m\nENTRY e { x = s32[<=3,<=1] parameter(0)\n ROOT r = s32[<=3] reshape(x) }"
    module = hlo.parse(text)
    run = hlo.compile(module, passes=passes, cache=False)
    x = np.array([[4], [5]], np.int32)
    assert_same(run(x), hlo.evaluate(module, x))


def test_sizes_that_differ_leave_the_smaller_one() -> None:
    text = (
        "HloModule m\nENTRY e { x = s32[<=4] parameter(0)\n y = s32[<=4] parameter(1)\n"
        " p = s32[] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
        " a = s32[1,<=4] reshape(x)\n b = s32[1,<=4] reshape(y)\n"
        " c = s32[2,<=4] concatenate(a, b), dimensions={0}\n"
        " ROOT r = (s32[], s32[2,<=4]) tuple(p, c) }"
    )
    module = hlo.parse(text)
    x, y = np.array([1, 2, 3], np.int32), np.array([4, 5], np.int32)
    expected = np.array(14, np.int32), np.array([[1, 2], [4, 5]], np.int32)
    assert_same(hlo.evaluate(module, x, y), expected)
    assert_same(hlo.compile(module, cache=False)(x, y), expected)


@pytest.mark.parametrize("n", [-1, 7])
def test_sizes_beyond_the_bound_are_refused(n: int) -> None:
    run = hlo.compile(program(BODIES["kept"]), cache=False)
    with pytest.raises(hlo.HloError, match="at most 6"):
        run(np.zeros((6, 4), np.float32), np.int32(n), np.int32(1))


PARAMETERS = """HloModule m
ENTRY e { x = f32[<=6,4] parameter(0)
  y = f32[<=6,4] parameter(1)
  ROOT r = f32[<=6,4] add(x, y) }
"""


def test_parameters_of_dynamic_sizes() -> None:
    module = hlo.parse(PARAMETERS)
    run = hlo.compile(module, cache=False)
    assert isinstance(run, PaddedExecutable)
    for n in (0, 1, 5, 6):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        assert_same(run(x, 2 * x), hlo.evaluate(module, x, 2 * x))


def test_sizes_that_differ_are_the_references_to_judge() -> None:
    module = hlo.parse(PARAMETERS)
    x, y = np.ones((2, 4), np.float32), np.ones((3, 4), np.float32)
    assert_same(hlo.compile(module, cache=False)(x, y), hlo.evaluate(module, x, y))


def test_static_sizes_at_the_boundary() -> None:
    module = hlo.parse(
        "HloModule m\nENTRY e { x = f32[6] parameter(0)\n  n = s32[] parameter(1)\n"
        '  d = f32[<=6] custom-call(x, n), custom_call_target="SliceToDynamic"\n'
        "  t = f32[<=6] negate(d)\n"
        '  ROOT r = (f32[6], s32[]) custom-call(t), custom_call_target="PadToStatic" }'
    )
    run = hlo.compile(module, cache=False)
    for n in (0, 4, 6):
        given = (np.arange(6, dtype=np.float32), np.int32(n))
        assert_same(run(*given), hlo.evaluate(module, *given))


def test_results_lie_as_the_header_says() -> None:
    module = hlo.parse(
        "HloModule m, entry_computation_layout={(f32[<=6], f32[2,3]{1,0})->"
        """(f32[], f32[3,2]{0,1})}
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  p = f32[<=6] parameter(0)
  q = f32[2,3] parameter(1)
  zero = f32[] constant(0)
  s = f32[] reduce(p, zero), dimensions={0}, to_apply=sum
  t = f32[3,2] transpose(q), dimensions={1,0}
  ROOT r = (f32[], f32[3,2]) tuple(s, t)
}"""
    )
    q = np.arange(6, dtype=np.float32).reshape(2, 3)
    total, turned = hlo.compile(module, cache=False)(np.ones(4, np.float32), q)  # type: ignore[misc]
    assert total == 4
    np.testing.assert_array_equal(turned, q.T)
