"""sort kernels against the op's own evaluate: equal bytes, whatever the comparator."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from hlo.analysis.sort_orders import recognised
from hlo.backend.kernels.sorting.sort import sort_kernel
from hlo.backend.linking.toolchain import host_target
from hlo.interpreter.evaluate import evaluate
from hlo.ir.module import Module
from hlo.parser.parse import parse
from tests.support.hlo_values import mixed_values, same_values
from tests.support.kernel_jit import kernel_function
from tests.support.lanes_jit import plain_target

# Maps -0 to 0 and every NaN to one, as JAX does.
CANONICAL = """
cmp {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  z = f32[] constant(0)
  n = f32[] constant(nan)
  ea = pred[] compare(a, z), direction=EQ
  sa = f32[] select(ea, z, a)
  na = pred[] compare(a, a), direction=NE
  ca = f32[] select(na, n, sa)
  eb = pred[] compare(b, z), direction=EQ
  sb = f32[] select(eb, z, b)
  nb = pred[] compare(b, b), direction=NE
  cb = f32[] select(nb, n, sb)
  ROOT lt = pred[] compare(ca, cb), direction=LT, type=TOTALORDER
}
"""
# By the first operand, ties by the second, descending.
TWO_KEYS = """
cmp {
  a = s8[] parameter(0)
  b = s8[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  l = pred[] compare(a, b), direction=LT
  e = pred[] compare(a, b), direction=EQ
  g = pred[] compare(c, d), direction=GT, type=TOTALORDER
  h = pred[] and(e, g)
  ROOT o = pred[] or(l, h)
}
"""
# By a sum of both operands: no single operand is the key.
WEIGHED = """
cmp {
  a = s8[] parameter(0)
  b = s8[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  e = s32[] convert(a)
  f = s32[] convert(b)
  g = s32[] convert(c)
  h = s32[] convert(d)
  m = s32[] constant(7)
  i = s32[] and(g, m)
  j = s32[] and(h, m)
  k = s32[] add(e, i)
  l = s32[] add(f, j)
  ROOT o = pred[] compare(k, l), direction=LT
}
"""
NO_ORDER = """
cmp {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] constant(3)
  s = s32[] and(a, c)
  ROOT r = pred[] compare(s, b), direction=LT
}
"""


def plain_comparator(types: tuple[str, ...], key: int, direction: str, kind: str = "") -> str:
    lines = [
        f"  p{k}{side} = {t}[] parameter({2 * k + n})"
        for k, t in enumerate(types)
        for n, side in enumerate("ab")
    ]
    attributes = f"direction={direction}" + (f", type={kind}" if kind else "")
    root = f"  ROOT r = pred[] compare(p{key}a, p{key}b), {attributes}"
    return "\n".join(["cmp {", *lines, root, "}"])


def sort_module(types: tuple[str, ...], dims: tuple[int, ...], along: int, cmp: str) -> Module:
    shapes = [f"{t}[{','.join(map(str, dims))}]" for t in types]
    names = ", ".join(f"x{k}" for k in range(len(types)))
    result = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    parameters = "\n".join(f"  x{k} = {s} parameter({k})" for k, s in enumerate(shapes))
    root = (
        f"  ROOT s = {result} sort({names}), dimensions={{{along}}}, is_stable=true, to_apply=cmp"
    )
    return parse(f"HloModule m\n{cmp}\nENTRY e {{\n{parameters}\n{root}\n}}\n")


def check(module: Module, *, target=host_target) -> None:
    root = module.entry.root
    run = kernel_function(root, sort_kernel(root, target()), 3)
    rng = np.random.default_rng(zlib.crc32(str(root).encode()))
    values = [
        mixed_values(o.shape.dtype, o.shape.size, rng).reshape(o.shape.dims) for o in root.operands
    ]
    wanted = evaluate(module, *values)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, want in zip(run(*values), wanted, strict=True):
        assert same_values(got, np.asarray(want)).all()
        if got.dtype.itemsize > 1:  # signed zeros and NaNs in their places, too
            assert got.tobytes() == np.ascontiguousarray(want).tobytes()


SHAPES = [((5, 7), 1), ((3, 100), 1), ((2, 1500, 2), 1), ((0, 3), 0), ((3, 0), 1), ((1,), 0)]


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize(
    "dtype", ["s32", "u32", "s8", "u8", "s16", "u64", "s64", "pred", "s4", "u2"]
)
def test_integers(dtype: str, direction: str) -> None:
    for dims, along in SHAPES:
        check(sort_module((dtype,), dims, along, plain_comparator((dtype,), 0, direction)))


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize(
    "dtype",
    ["f32", "f64", "f16", "bf16", "f8e5m2", "f8e4m3fn", "f8e4m3fnuz", "f4e2m1fn", "f8e8m0fnu"],
)
def test_floats_by_total_order(dtype: str, direction: str) -> None:
    for dims, along in SHAPES[:3]:
        cmp = plain_comparator((dtype,), 0, direction, "TOTALORDER")
        check(sort_module((dtype,), dims, along, cmp))


def test_canonicalising_comparator_is_an_order_on_one_key() -> None:
    module = sort_module(("f32",), (3, 300), 1, CANONICAL)
    (order,) = recognised(module.entry.root["to_apply"])
    assert order.bits == 32
    check(module)
    check(module, target=plain_target)


@pytest.mark.parametrize("count", [1, 2, 39, 41, 1023, 1025])
def test_other_operands_follow_the_key(count: int) -> None:
    types = ("f32", "s32", "c64", "u8")
    cmp = plain_comparator(types, 1, "GT")
    check(sort_module(types, (2, count), 1, cmp))
    wide = ("s32", "s64", "c128", "bf16")
    check(sort_module(wide, (2, count), 1, plain_comparator(wide, 1, "LT")))


@pytest.mark.parametrize("count", [1, 2, 3, 17, 100, 1000])
def test_any_comparator_is_merged_stably(count: int) -> None:
    for dims in ((3, count), (2, count, 2)):
        module = sort_module(("s8", "f32"), dims, 1, WEIGHED)
        assert not recognised(module.entry.root["to_apply"])
        check(module)


@pytest.mark.parametrize("count", [1, 17, 100, 1500])
def test_ties_are_decided_by_the_next_key(count: int) -> None:
    for dims in ((3, count), (2, count, 2)):
        module = sort_module(("s8", "f32"), dims, 1, TWO_KEYS)
        assert [o.operand for o in recognised(module.entry.root["to_apply"])] == [0, 1]
        check(module)
        check(sort_module(("s8", "f64"), dims, 1, TWO_KEYS.replace("f32", "f64")))


def test_ties_are_decided_by_a_choice_as_well() -> None:
    chosen = TWO_KEYS.replace("h = pred[] and(e, g)\n", "").replace("or(l, h)", "select(e, g, l)")
    module = sort_module(("s8", "f32"), (3, 100), 1, chosen)
    assert [o.operand for o in recognised(module.entry.root["to_apply"])] == [0, 1]
    check(module)


def test_a_comparator_without_order_still_permutes() -> None:
    root = sort_module(("s32",), (2, 300), 1, NO_ORDER).entry.root
    x = np.random.default_rng(0).integers(-50, 50, (2, 300)).astype(np.int32)
    (got,) = kernel_function(root, sort_kernel(root, host_target()))(x)
    np.testing.assert_array_equal(np.sort(got), np.sort(x))


def test_floats_compared_by_value_keep_equal_zeros_in_order() -> None:
    cmp = plain_comparator(("f32", "s32"), 0, "LT")
    root = sort_module(("f32", "s32"), (6,), 0, cmp).entry.root
    x = np.array([0.0, -0.0, -1, 0.0, -0.0, -np.inf], np.float32)
    _, places = kernel_function(root, sort_kernel(root, host_target()))(x, np.arange(6, dtype="i4"))
    assert places.tolist() == [5, 2, 0, 1, 3, 4]
