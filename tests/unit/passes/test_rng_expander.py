"""Random numbers of compiled programs: native, and the interpreter's with seed 0."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend import backend

TYPES = ("f64", "f32", "bf16", "f16", "f8e5m2", "f8e4m3fn", "f4e2m1fn", "s4", "u4", "s8", "u8",
         "s16", "u16", "s32", "u32", "s64", "u64")  # fmt: skip
PAIR = """HloModule m
ENTRY e {{ a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  x = {t}[3,7,5] rng(a, b), distribution=rng_{kind}
  y = {t}[11] rng(b, a), distribution=rng_{kind}
  z = {t}[] rng(a, b), distribution=rng_{kind}
  ROOT r = ({t}[3,7,5], {t}[11], {t}[]) tuple(x, y, z) }}
"""


def bits(x: np.ndarray) -> bytes:
    """The bits that mean something: of s4 and u4 the lower half of a byte."""
    return (x.view(np.uint8) & 15).tobytes() if x.dtype.name in ("int4", "uint4") else x.tobytes()


def check(text: str, *arguments: object, hosts: int = 0) -> object:
    module = hlo.parse(text)
    assert len(backend.build_program(hlo.optimize(module)).hosts) == hosts
    expected = hlo.evaluate(module, *arguments)
    actual = hlo.compile(module, cache=False, threads=2)(*arguments)
    pairs = zip(*((x if isinstance(x, tuple) else (x,)) for x in (actual, expected)), strict=True)
    for a, b in pairs:
        assert a.dtype == b.dtype
        assert bits(a) == bits(b)
    return expected


@pytest.mark.parametrize("t", TYPES)
def test_uniform_numbers_have_the_interpreters_bits(t: str) -> None:
    module = hlo.parse(PAIR.format(t=t, kind="uniform"))
    dtype = module.entry.parameters[0].shape.dtype.numpy
    low, high = (0, 6) if t.startswith("u") else (-3, 4)
    check(
        PAIR.format(t=t, kind="uniform"), np.array(low).astype(dtype), np.array(high).astype(dtype)
    )


def test_uniform_numbers_of_one_value_and_of_wide_ranges() -> None:
    text = PAIR.format(t="s8", kind="uniform")
    check(text, np.array(5, np.int8), np.array(5, np.int8))
    check(text, np.array(-128, np.int8), np.array(127, np.int8))
    check(PAIR.format(t="f32", kind="uniform"), np.float32(1), np.float32(np.inf))


@pytest.mark.parametrize("a", [True, False])
@pytest.mark.parametrize("b", [True, False])
def test_random_predicates(*, a: bool, b: bool) -> None:
    found = check(PAIR.format(t="pred", kind="uniform"), np.array(a), np.array(b))
    assert found[0].any() == (a or b)  # type: ignore[index]  # a tuple


@pytest.mark.parametrize("t", ["f32", "bf16", "f16", "f8e4m3fn"])
def test_normal_numbers_have_the_interpreters_bits(t: str) -> None:
    module = hlo.parse(PAIR.format(t=t, kind="normal"))
    dtype = module.entry.parameters[0].shape.dtype.numpy
    found = check(
        PAIR.format(t=t, kind="normal"), np.array(1).astype(dtype), np.array(2).astype(dtype)
    )
    assert len(np.unique(found[0])) > 10  # type: ignore[index]  # a tuple


def test_normal_numbers_of_f64_are_left_to_the_reference() -> None:
    check(PAIR.format(t="f64", kind="normal"), np.float64(1), np.float64(2), hosts=3)


def test_states_and_seeds_are_constants() -> None:
    check(
        "HloModule m\nENTRY e { a = u64[2] rng-get-and-update-state(), delta=5\n"
        "  b = u64[2] rng-get-and-update-state(), delta=7\n"
        '  s = u64[] custom-call(), custom_call_target="GetRngSeed"\n'
        "  ROOT t = (u64[2], u64[2], u64[]) tuple(a, b, s) }"
    )


LOOP = """HloModule m
c { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(40)
  ROOT r = pred[] compare(i, n), direction=LT }
b { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  low = f32[] constant(0)
  high = f32[] constant(1)
  y = f32[4] rng(low, high), distribution=rng_uniform
  z = f32[4] add(x, y)
  ROOT r = (s32[], f32[4]) tuple(j, z) }
ENTRY e { x = f32[4] parameter(0)
  i = s32[] constant(0)
  s = (s32[], f32[4]) tuple(i, x)
  w = (s32[], f32[4]) while(s), condition=c, body=b
  ROOT r = f32[4] get-tuple-element(w), index=1 }
"""


def test_numbers_drawn_in_loops_are_left_to_the_reference() -> None:
    check(LOOP, np.zeros(4, np.float32), hosts=1)


def test_unused_numbers_count() -> None:
    text = (
        PAIR.format(t="f32", kind="uniform")
        .replace("tuple(x, y, z)", "tuple(x, y, z0)")
        .replace(
            "  z = f32[] rng",
            "  unused = f32[77] rng(a, b), distribution=rng_uniform\n  z0 = f32[] rng",
        )
    )
    check(text, np.float32(0), np.float32(1))
