"""TOTALORDER: floats by their codes, signalling NaN and payloads too, however they are reached."""

import ml_dtypes  # noqa: F401  # names of small types
import numpy as np
import pytest

import hlo
from hlo.interpreter.evaluate import evaluate
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

SMALL = [t for t in vars(dt).values() if isinstance(t, DType) and t.is_float and t.bits <= 8]
WIDE = [dt.F16, dt.BF16, dt.F32, dt.F64]
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def codes_of(dtype: DType) -> np.ndarray:
    """Every code of a small type; of others zeros, ones, limits and NaN of both kinds."""
    integer = np.dtype(f"u{dtype.item_bytes}")
    if dtype.bits <= 8:
        return np.arange(1 << dtype.bits).astype(integer)
    form = dtype.float_format
    infinity = ((1 << form.exponent) - 1) << form.mantissa
    quiet = 1 << (form.mantissa - 1)
    sizes = [0, 1, 2, 1 << form.mantissa, infinity - 1, infinity, infinity + 1, infinity + 2,
             infinity + quiet - 1, infinity + quiet, infinity + quiet + 1, infinity * 2,
             form.bias << form.mantissa]  # fmt: skip
    sizes[11] = (1 << (dtype.bits - 1)) - 1
    both = sizes + [s | (1 << (dtype.bits - 1)) for s in sizes]
    return np.array(both, np.uint64).astype(integer)


def ordered(dtype: DType, codes: np.ndarray) -> np.ndarray:
    """Python integers in the order wanted."""
    top = 1 << (dtype.bits - 1)
    if not dtype.float_format.has_sign:
        return np.array([int(c) for c in codes], object)
    return np.array([-1 - (int(c) ^ top) if int(c) & top else int(c) for c in codes], object)


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    codes = codes_of(dtype)
    a, b = (v.ravel() for v in np.meshgrid(codes, codes))
    return a, b


# How the operands of the comparison are reached from parameters x and y.
WAYS = {
    "parameters": ("x", "y", ""),
    "reversed": ("r", "s", "r = {t}[{n}] reverse(x), dimensions={{0}}\n"
                 "s = {t}[{n}] reverse(y), dimensions={{0}}\n"),
    "selected": ("r", "s", "i = s32[{n}] iota(), iota_dimension=0\nz = s32[] constant(0)\n"
                 "zs = s32[{n}] broadcast(z), dimensions={{}}\n"
                 "g = pred[{n}] compare(i, zs), direction=GE\n"
                 "r = {t}[{n}] select(g, x, y)\ns = {t}[{n}] select(g, y, x)\n"),
    "sliced": ("r", "s", "k = {t}[{n2}] concatenate(x, y), dimensions={{0}}\n"
               "r = {t}[{n}] slice(k), slice={{[0:{n}]}}\n"
               "s = {t}[{n}] slice(k), slice={{[{n}:{n2}]}}\n"),
    "bits": ("r", "s", "xi = {u}[{n}] bitcast-convert(x)\nyi = {u}[{n}] bitcast-convert(y)\n"
             "r = {t}[{n}] bitcast-convert(xi)\ns = {t}[{n}] bitcast-convert(yi)\n"),
}  # fmt: skip


def program(dtype: DType, way: str, count: int) -> str:
    left, right, lines = WAYS[way]
    lines = lines.format(t=dtype.name, u=f"u{dtype.bits}", n=count, n2=2 * count)
    results = "".join(
        f"c{d} = pred[{count}] compare({left}, {right}), direction={d}, type=TOTALORDER\n"
        for d in DIRECTIONS
    )
    names = ", ".join(f"c{d}" for d in DIRECTIONS)
    shapes = ", ".join([f"pred[{count}]"] * len(DIRECTIONS))
    head = f"x = {dtype.name}[{count}] parameter(0)\ny = {dtype.name}[{count}] parameter(1)\n"
    return (
        f"HloModule m\nENTRY e {{\n{head}{lines}{results}ROOT t = ({shapes}) tuple({names})\n}}\n"
    )


CASES = [(t, "parameters") for t in SMALL + WIDE]
CASES += [(t, way) for t in (dt.F16, dt.BF16, dt.F8E5M2, dt.F8E4M3) for way in WAYS]


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize(("dtype", "way"), dict.fromkeys(CASES), ids=str)
def test_codes_decide(dtype: DType, way: str, engine: str) -> None:
    a, b = pairs(dtype)
    x, y = a.view(dtype.numpy), b.view(dtype.numpy)
    module = hlo.parse(program(dtype, way, a.size))
    run = hlo.compile(module, cache=False) if engine == "compiled" else None
    found = run(x, y) if run else evaluate(module, x, y)
    found = [np.asarray(f)[::-1] if way == "reversed" else np.asarray(f) for f in found]
    left, right = ordered(dtype, a), ordered(dtype, b)
    wanted = (left == right, left != right, left < right, left <= right, left > right,
              left >= right)  # fmt: skip
    for direction, got, want in zip(DIRECTIONS, found, wanted, strict=True):
        wrong = np.flatnonzero(got != want.astype(bool))
        first = [(hex(a[i]), hex(b[i])) for i in wrong[:4]]
        assert not wrong.size, f"{direction}: {wrong.size} pairs differ, as {first}"


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("carried", ["", "index"])
@pytest.mark.parametrize("dtype", SMALL + WIDE, ids=lambda t: t.name)
def test_sorts_are_by_code(dtype: DType, carried: str, direction: str, engine: str) -> None:
    codes = np.random.default_rng(1).permutation(codes_of(dtype))
    n, kind = codes.size, dtype.name
    more = ["s32"] if carried else []
    shapes = [f"{t}[{n}]" for t in [kind, *more]]
    parameters = [f"{'abcd'[k]} = {t}[] parameter({k})" for k, t in
                  enumerate(u for u in [kind, *more] for _ in range(2))]  # fmt: skip
    result = f"({', '.join(shapes)})" if carried else shapes[0]
    text = f"""HloModule m
c {{
  {chr(10).join(parameters)}
  ROOT r = pred[] compare(a, b), direction={direction}, type=TOTALORDER
}}
ENTRY e {{
  x = {shapes[0]} parameter(0)
  {f"i = {shapes[1]} iota(), iota_dimension=0" if carried else ""}
  ROOT s = {result} sort(x{", i" if carried else ""}), dimensions={{0}}, to_apply=c
}}
"""
    module, x = hlo.parse(text), codes.view(dtype.numpy)
    found = hlo.compile(module, cache=False)(x) if engine == "compiled" else evaluate(module, x)
    keys = np.asarray(found[0] if carried else found)
    order = np.argsort(ordered(dtype, codes))
    order = order if direction == "LT" else order[::-1]
    np.testing.assert_array_equal(keys.view(codes.dtype), codes[order])
    if carried:
        np.testing.assert_array_equal(np.asarray(found[1]), order)
