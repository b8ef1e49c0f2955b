"""Streams: reductions over columns that walk through memory row by row."""

import ml_dtypes
import numpy as np
import pytest

from hlo import driver
from tests.support.covering import covering

PROGRAM = """HloModule m
sum {{ a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  ROOT c = {type}[] add(a, b) }}
greatest {{ a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  ROOT c = {type}[] maximum(a, b) }}
ENTRY e {{
  x = {type}[{dims}] parameter(0)
  zero = {type}[] constant(0)
  one = {type}[] constant(1)
  s = {type}[{kept}] reduce(x, one), dimensions={{{axes}}}, to_apply=sum
  m = {type}[{kept}] reduce(x, zero), dimensions={{{axes}}}, to_apply=greatest
  ROOT t = ({type}[{kept}], {type}[{kept}]) tuple(s, m)
}}"""
CASES = [
    ((521, 1025), (0,)),
    ((299, 1500), (0,)),
    ((6, 70, 1300), (0, 1)),
    ((6, 70, 1300), (1,)),
    ((5, 70, 3, 1300), (0, 2)),
    ((33, 16400), (0,)),
]
TYPES = {
    "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "s32": np.int32,
    "s8": np.int8,
}  # fmt: skip


def reduced(type: str, dims: tuple[int, ...], axes: tuple[int, ...]) -> str:
    kept = [n for d, n in enumerate(dims) if d not in axes]
    texts = {k: ",".join(map(str, v)) for k, v in (("dims", dims), ("kept", kept), ("axes", axes))}
    return PROGRAM.format(type=type, **texts)


@pytest.mark.parametrize(("dims", "axes", "type"), covering(CASES, TYPES, strength=1, several=(0,)))
def test_streams_reduction_columns(type: str, dims: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = (np.random.default_rng(0).standard_normal(dims) * 3).astype(TYPES[type])
    if type[0] != "s":
        x[(1,) * (len(dims) - 1)][:3] = np.array([np.nan, np.inf, -0.0], TYPES[type])
    module = driver.parse(reduced(type, dims, axes))
    sums, greatest = driver.compile(module, threads=1, cache=False)(x)
    again = driver.compile(module, threads=3, cache=False)(x)
    assert (sums.tobytes(), greatest.tobytes()) == tuple(a.tobytes() for a in again)
    wide = x.astype(np.float64)
    wanted = wide.sum(axes) + 1
    if type[0] == "s":
        assert np.array_equal(sums, wanted.astype(np.int64).astype(TYPES[type]))
    else:
        eps = float(ml_dtypes.finfo(TYPES[type]).eps)
        most = 4e-6 * np.sqrt(np.abs(wide).sum(axes)) if type != "f64" else 1e-11
        off = np.abs(sums.astype(np.float64)[..., 3:] - wanted[..., 3:])
        assert (off <= (most + eps * np.abs(wanted))[..., 3:]).all()
        where = np.isfinite(wanted)
        assert np.array_equal(np.isfinite(sums.astype(np.float64)), where)
    with np.errstate(invalid="ignore"):
        most = np.maximum(wide.max(axes), 0)
    assert np.array_equal(greatest.astype(np.float64), most, equal_nan=True)
    assert not np.signbit(greatest.astype(np.float64)[~np.isnan(most) & (most == 0)]).any()


def test_variances_are_streams_that_need_each_other() -> None:
    text = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[700,1100] parameter(0)
  zero = f32[] constant(0)
  share = f32[] constant(0.00142857142)
  shares = f32[1100] broadcast(share), dimensions={}
  s = f32[1100] reduce(x, zero), dimensions={0}, to_apply=sum
  mean = f32[1100] multiply(s, shares)
  means = f32[700,1100] broadcast(mean), dimensions={1}
  d = f32[700,1100] subtract(x, means)
  q = f32[700,1100] multiply(d, d)
  sq = f32[1100] reduce(q, zero), dimensions={0}, to_apply=sum
  ROOT var = f32[1100] multiply(sq, shares)
}"""
    x = np.random.default_rng(0).standard_normal((700, 1100)).astype(np.float32) + 5
    found = driver.compile(driver.parse(text), cache=False)(x)
    assert np.allclose(found, x.astype(np.float64).var(0), rtol=2e-6)


@pytest.mark.parametrize("type", ["f32", "bf16", "s8"])
def test_parts_of_rows_reduction_what_the_whole_does(type: str) -> None:
    x = (np.random.default_rng(0).standard_normal((4096, 1100)) * 3).astype(TYPES[type])
    module = driver.parse(reduced(type, (4096, 1100), (0,)))
    found = [driver.compile(module, threads=k, cache=False)(x) for k in (1, 3)]
    assert [a.tobytes() for a in found[0]] == [a.tobytes() for a in found[1]]
    wanted = x.astype(np.float64).sum(0) + 1
    if type == "s8":
        assert np.array_equal(found[0][0], wanted.astype(np.int64).astype(np.int8))
    else:
        eps = float(ml_dtypes.finfo(TYPES[type]).eps)
        rounded = wanted.astype(TYPES[type]).astype(np.float64)
        most = eps * np.abs(rounded) + 1e-4
        assert (np.abs(found[0][0].astype(np.float64) - rounded) <= most).all()
    assert np.array_equal(found[0][1], np.maximum(x.max(0), 0))


@pytest.mark.parametrize(("n", "m"), [(1030, 1100), (331, 3500), (4096, 300)])
@pytest.mark.parametrize("type", ["f32", "bf16", "s32"])
def test_streams_pick_the_first_of_equal_elements(type: str, n: int, m: int) -> None:
    text = f"""HloModule m
pick {{ a = {type}[] parameter(0)
  i = s32[] parameter(1)
  b = {type}[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  same = pred[] compare(a, b), direction=EQ
  first = pred[] compare(i, j), direction=LT
  both = pred[] and(same, first)
  keep = pred[] or(more, both)
  v = {type}[] select(keep, a, b)
  k = s32[] select(keep, i, j)
  ROOT t = ({type}[], s32[]) tuple(v, k) }}
ENTRY e {{
  x = {type}[{n},{m}] parameter(0)
  i = s32[{n},{m}] iota(), iota_dimension=0
  z = {type}[] constant(-100)
  zero = s32[] constant(0)
  ROOT r = ({type}[{m}], s32[{m}]) reduce(x, i, z, zero), dimensions={{0}}, to_apply=pick
}}"""
    x = np.random.default_rng(0).integers(-50, 50, (n, m)).astype(TYPES[type])
    for threads in (1, 3):
        greatest, where = driver.compile(driver.parse(text), threads=threads, cache=False)(x)
        assert np.array_equal(greatest, x.max(0))
        assert np.array_equal(where, x.astype(np.float64).argmax(0))


@pytest.mark.parametrize(("m", "type"), covering([2, 7, 13, 32], TYPES, strength=1))
def test_rows_of_few_columns_are_taken_side_by_side(type: str, m: int) -> None:
    x = (np.random.default_rng(0).standard_normal((1 << 16, m)) * 3).astype(TYPES[type])
    module = driver.parse(reduced(type, x.shape, (0,)))
    found = [driver.compile(module, threads=k, cache=False)(x) for k in (1, 3)]
    assert [a.tobytes() for a in found[0]] == [a.tobytes() for a in found[1]]
    wanted = x.astype(np.float64).sum(0) + 1
    if type[0] == "s":
        assert np.array_equal(found[0][0], wanted.astype(np.int64).astype(TYPES[type]))
    else:
        eps = float(ml_dtypes.finfo(TYPES[type]).eps)
        assert (np.abs(found[0][0].astype(np.float64) - wanted) <= eps * abs(wanted) + 3e-3).all()
    assert np.array_equal(found[0][1], np.maximum(x.max(0), 0))
