"""Programs of dynamic sizes that sort, gather, reduce, loop or branch along them, compiled."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hlo
from hlo.backend import padded
from hlo.backend.interpreted import InterpretedExecutable
from hlo.backend.padded import PaddedExecutable

REDUCERS = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
odd { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] multiply(a, b)
  d = f32[] add(a, b)
  ROOT r = f32[] subtract(d, c) }
arg { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE
  v = f32[] select(g, a, b)
  k = s32[] select(g, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k) }
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
more { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE }
less2 { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT }
"""
ENTRY = """ENTRY e { x = f32[6,4] parameter(0)
  n = s32[] parameter(1)
  k = s32[] parameter(2)
  ix = s32[5] parameter(3)
  zero = f32[] constant(0)
  d = f32[<=6,4] set-dimension-size(x, n), dimensions={0}
  c = f32[6,<=4] set-dimension-size(x, k), dimensions={1}
  both = f32[<=6,<=4] set-dimension-size(d, k), dimensions={1}
  z32 = s32[] constant(0)
  one = s32[] constant(1)
  dix = s32[<=5] set-dimension-size(ix, k), dimensions={0}
  """
BRANCHES = """yes { v = f32[<=6,4] parameter(0)
  ROOT q = f32[<=6,4] add(v, v) }
no { v = f32[<=6,4] parameter(0)
  o = s32[] constant(2)
  ROOT q = f32[<=6,4] set-dimension-size(v, o), dimensions={0} }
"""
LOOP = """body { s = (s32[], f32[<=6,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[<=6,4] get-tuple-element(s), index=1
  o = s32[] constant(1)
  j = s32[] add(i, o)
  m = s32[] get-dimension-size(v), dimensions={0}
  l = s32[] subtract(m, o)
  w = f32[6,4] set-dimension-size(v, l), dimensions={0}
  u = f32[<=6,4] set-dimension-size(w, l), dimensions={0}
  q = f32[<=6,4] add(u, u)
  ROOT t = (s32[], f32[<=6,4]) tuple(j, q) }
cond { s = (s32[], f32[<=6,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  c = s32[] constant(3)
  ROOT r = pred[] compare(i, c), direction=LT }
"""
BODIES = {
    "sorted along it": "ROOT r = f32[<=6,4] sort(d), dimensions={0}, to_apply=less",
    "pairs sorted along it": (
        "io = s32[6,4] iota(), iota_dimension=0\n"
        "  iod = s32[<=6,4] set-dimension-size(io, n), dimensions={0}\n"
        "  ROOT r = (f32[<=6,4], s32[<=6,4]) sort(d, iod), dimensions={0}, is_stable=true, "
        "to_apply=less2"
    ),
    "sorted along one of two": "ROOT r = f32[<=6,<=4] sort(both), dimensions={1}, to_apply=less",
    "reduced in pairs": (
        "io = s32[6,4] iota(), iota_dimension=0\n"
        "  iod = s32[<=6,4] set-dimension-size(io, n), dimensions={0}\n"
        "  ninf = f32[] constant(-inf)\n"
        "  ROOT r = (f32[4], s32[4]) reduce(d, iod, ninf, z32), dimensions={0}, "
        "to_apply=arg"
    ),
    "reduced without a unit": "ROOT r = f32[4] reduce(d, zero), dimensions={0}, to_apply=odd",
    "all reduced without a unit": (
        "ROOT r = f32[] reduce(both, zero), dimensions={0,1}, to_apply=odd"
    ),
    "packed": "ROOT r = f32[<=24] reshape(c)",
    "packed in both": "ROOT r = f32[<=24] reshape(both)",
    "packed with another": "ROOT r = f32[2,<=12] reshape(c)",
    "packed under a constant size": (
        "two = s32[] constant(2)\n"
        "  ct = f32[6,<=4] set-dimension-size(x, two), dimensions={1}\n"
        "  ROOT r = f32[<=24] reshape(ct)"
    ),
    "halved": "ROOT r = f32[<=3,8] reshape(d)",
    "sizes multiplied": (
        "s0 = s32[] multiply(n, k)\n  ROOT r = f32[<=24] dynamic-reshape(both, s0)"
    ),
    "a size given": (
        "s0 = s32[] constant(4)\n"
        "  f = f32[<=24] dynamic-reshape(both, s0)\n"
        "  ROOT r = f32[<=24] negate(f)"
    ),
    "sizes exchanged": "ROOT r = f32[<=4,<=6] dynamic-reshape(both, k, n)",
    "rows gathered": (
        "ROOT r = f32[5,4] gather(d, ix), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}"
    ),
    "indices gathered": (
        "ROOT r = f32[<=5,4] gather(x, dix), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}"
    ),
    "both gathered": (
        "ROOT r = f32[<=5,<=4] gather(both, dix), offset_dims={1}, "
        "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,4}"
    ),
    "columns gathered": (
        "ROOT r = f32[<=6,5] gather(d, ix), offset_dims={0}, collapsed_slice_dims={1}, "
        "start_index_map={1}, index_vector_dim=1, slice_sizes={6,1}"
    ),
    "sliced": ("ROOT r = f32[2,<=4] dynamic-slice(both, n, z32), dynamic_slice_sizes={2,4}"),
    "sliced in both": ("ROOT r = f32[2,2] dynamic-slice(both, n, one), dynamic_slice_sizes={2,2}"),
    "updated": (
        "u = f32[2,4] constant({{1,2,3,4},{5,6,7,8}})\n"
        "  ROOT r = f32[<=6,4] dynamic-update-slice(d, u, k, z32)"
    ),
    "updated with some": (
        "u = f32[4,4] slice(x), slice={[1:5],[0:4]}\n"
        "  v = f32[<=4,4] set-dimension-size(u, k), dimensions={0}\n"
        "  ROOT r = f32[6,4] dynamic-update-slice(x, v, one, z32)"
    ),
    "some updated with some": (
        "u = f32[4,4] slice(x), slice={[1:5],[0:4]}\n"
        "  v = f32[<=4,4] set-dimension-size(u, k), dimensions={0}\n"
        "  ROOT r = f32[<=6,4] dynamic-update-slice(d, v, n, z32)"
    ),
    "some scattered": (
        "u = f32[5,4] slice(x), slice={[1:6],[0:4]}\n"
        "  v = f32[<=5,4] set-dimension-size(u, k), dimensions={0}\n"
        "  ROOT r = f32[6,4] scatter(x, dix, v), update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=sum"
    ),
    "scattered into some": (
        "u = f32[5,4] slice(x), slice={[1:6],[0:4]}\n"
        "  ROOT r = f32[<=6,4] scatter(d, ix, u), update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=sum"
    ),
    "some scattered into some": (
        "u = f32[5,4] slice(x), slice={[1:6],[0:4]}\n"
        "  v = f32[<=5,4] set-dimension-size(u, k), dimensions={0}\n"
        "  w = f32[<=5,<=4] set-dimension-size(v, k), dimensions={1}\n"
        "  ROOT r = f32[<=6,<=4] scatter(both, dix, w), update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=sum"
    ),
    "windows": ("ROOT r = f32[<=5,3] reduce-window(d, zero), window={size=2x2}, to_apply=sum"),
    "windows in both": (
        "ROOT r = f32[<=4,<=4] reduce-window(both, zero), "
        "window={size=3x2 stride=2x1 pad=2_1x1_0}, to_apply=sum"
    ),
    "windows with holes": (
        "ROOT r = f32[<=13,4] reduce-window(d, zero), "
        "window={size=2x1 pad=2_1x0_0 lhs_dilate=2x1}, to_apply=sum"
    ),
    "padded inside": "ROOT r = f32[<=14,4] pad(d, zero), padding=1_2_1x0_0",
    "cropped": "ROOT r = f32[<=4,4] pad(d, zero), padding=-1_-1x0_0",
    "counted": ("i = f32[<=6,4] iota(), iota_dimension=0\n  ROOT r = f32[<=6,4] add(i, x)"),
    "spread whole": (
        "b = f32[<=6,4] broadcast(zero), dimensions={}\n  ROOT r = f32[<=6,4] add(b, x)"
    ),
    "nested tuples": (
        "t = (f32[<=6,4], s32[]) tuple(d, n)\n  ROOT r = (s32[], (f32[<=6,4], s32[])) tuple(k, t)"
    ),
    "rows transformed": (
        "cx = c64[<=6,4] convert(d)\n  ROOT r = c64[<=6,4] fft(cx), fft_type=FFT, fft_length={4}"
    ),
    "convolved": (
        "l = f32[1,6,4] reshape(x)\n"
        "  dl = f32[1,<=6,4] set-dimension-size(l, n), dimensions={1}\n"
        "  w1 = f32[2,3] slice(x), slice={[0:2],[0:3]}\n"
        "  ww = f32[2,4,3] broadcast(w1), dimensions={0,2}\n"
        "  ROOT r = f32[1,<=6,3] convolution(dl, ww), window={size=2 pad=1_0}, "
        "dim_labels=b0f_0io->b0f"
    ),
    "windows of pairs": (
        "io = s32[6,4] iota(), iota_dimension=1\n"
        "  iod = s32[<=6,4] set-dimension-size(io, n), dimensions={0}\n"
        "  ninf = f32[] constant(-inf)\n"
        "  ROOT r = (f32[<=6,3], s32[<=6,3]) reduce-window(d, iod, ninf, z32), "
        "window={size=1x2}, to_apply=arg"
    ),
    "chosen": (
        "s = f32[6,2] slice(x), slice={[0:6],[0:2]}\n"
        "  ds = f32[<=6,2] set-dimension-size(s, n), dimensions={0}\n"
        "  ROOT r = f32[<=6,4] select-and-scatter(d, ds, zero), "
        "window={size=1x2 stride=1x2}, select=more, scatter=sum"
    ),
    "the best of rows": "ROOT r = (f32[<=6,2], s32[<=6,2]) topk(d), k=2, largest=true",
    "annotated": (
        'y = f32[<=6,4] custom-call(d), custom_call_target="Sharding"\n'
        "  ROOT r = f32[<=6,4] negate(y)"
    ),
    "convolved in groups": (
        "l = f32[6,1,4] reshape(x)\n"
        "  dl = f32[<=6,1,4] set-dimension-size(l, n), dimensions={0}\n"
        "  two = f32[] constant(2)\n"
        "  w = f32[1,2,4] broadcast(two), dimensions={}\n"
        "  ROOT r = f32[<=6,1,4] convolution(dl, w), window={size=1}, feature_group_count=2, "
        "dim_labels=b0f_0io->b0f"
    ),
    "bits": "ROOT r = s32[<=6,4] bitcast-convert(d)",
    "called": "ROOT r = f32[<=6,4] call(d), to_apply=no",
    "fused": "ROOT r = f32[<=6,4] fusion(d), kind=kLoop, calls=yes",
    "branches": (
        "p = pred[] compare(n, k), direction=GT\n"
        "  ROOT r = f32[<=6,4] conditional(p, d, d), true_computation=yes, "
        "false_computation=no"
    ),
    "several branches": (
        "p = pred[] compare(n, k), direction=GT\n"
        "  q = f32[<=6,4] conditional(k, d, d, x), branch_computations={yes, no, yes}\n"
        "  ROOT r = (f32[<=6,4], s32[]) tuple(q, n)"
    ),
    "a loop that cuts": (
        "t = (s32[], f32[<=6,4]) tuple(z32, d)\n"
        "  w = (s32[], f32[<=6,4]) while(t), condition=cond, body=body\n"
        "  ROOT g = f32[<=6,4] get-tuple-element(w), index=1"
    ),
    "a loop that grows": (
        "t = (s32[], f32[<=6,4]) tuple(z32, d)\n"
        "  ROOT w = (s32[], f32[<=6,4]) while(t), condition=cond, body=body"
    ),
    "a loop from a number": (
        "t = (s32[], f32[<=6,4]) tuple(k, d)\n"
        "  ROOT w = (s32[], f32[<=6,4]) while(t), condition=cond, body=body"
    ),
}
VALID = ((4, 2), (4, 1), (2, 3), (0, 0), (6, 4))


def program(body: str) -> hlo.Module:
    called = LOOP if "while" in body else BRANCHES
    return hlo.parse(REDUCERS + called + ENTRY + body + " }\n")


def arguments(n: int, k: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (6, 4)).astype(np.float32)
    return x, np.array(n, np.int32), np.array(k, np.int32), rng.integers(-2, 8, 5, np.int32)


def assert_same(actual: object, expected: object) -> None:
    if isinstance(expected, tuple):
        for a, b in zip(actual, expected, strict=True):  # type: ignore[call-overload]  # a tuple
            assert_same(a, b)
        return
    assert isinstance(actual, np.ndarray)
    assert isinstance(expected, np.ndarray)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_native_code_works_along_dynamic_sizes(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference's values and errors, and it is asked for sizes only that are refused."""
    module = program(body)
    run, asked = hlo.compile(module, cache=False), []

    def reference(*given: object, timeout: float | None = None) -> object:
        asked.append(given)
        return hlo.evaluate(*given, timeout=timeout)  # type: ignore[arg-type]  # a module and its arguments

    monkeypatch.setattr(padded, "evaluate", reference)
    assert isinstance(run, PaddedExecutable)
    refused = 0
    for n, k in (*VALID, (7, 1), (1, -1)):
        given = arguments(n, k)
        try:
            expected = hlo.evaluate(module, *given)
        except hlo.HloError as error:
            with pytest.raises(hlo.HloError, match=re.escape(str(error).split("\n")[0])):
                run(*given)
            refused += 1
        else:
            assert_same(run(*given), expected)
    assert len(asked) == refused
    assert refused < len(VALID) + 2


def test_windows_of_other_reducers_are_left_to_the_reference() -> None:
    text = "ROOT r = f32[<=5,4] reduce-window(d, zero), window={size=2x1}, to_apply=odd"
    module = program(text)
    run = hlo.compile(module, cache=False)
    assert isinstance(run, InterpretedExecutable)
    given = arguments(4, 1)
    assert_same(run(*given), hlo.evaluate(module, *given))
    assert_same(run.run_guarded(*given), hlo.evaluate(module, *given))


def test_parameters_that_are_tuples() -> None:
    module = hlo.parse("""HloModule m
ENTRY e { t = (f32[<=4,3], (s32[], f32[2,<=5])) parameter(0)
  u = f32[<=4] parameter(1)
  a = f32[<=4,3] get-tuple-element(t), index=0
  b = (s32[], f32[2,<=5]) get-tuple-element(t), index=1
  c = f32[2,<=5] get-tuple-element(b), index=1
  g = s32[] get-dimension-size(c), dimensions={1}
  v = f32[<=4,3] broadcast(u), dimensions={0}
  w = f32[<=4,3] add(a, v)
  ROOT r = (f32[<=4,3], s32[], (s32[], f32[2,<=5])) tuple(w, g, b) }""")
    run = hlo.compile(module, cache=False)
    assert isinstance(run, PaddedExecutable)
    pair = np.ones((3, 3), np.float32), (np.array(4, np.int32), np.ones((2, 4), np.float32))
    given = pair, np.arange(3, dtype=np.float32)
    assert_same(run(*given), hlo.evaluate(module, *given))
