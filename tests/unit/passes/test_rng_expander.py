"""Random numbers of compiled programs: native, and the interpreter's with seed 0."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.passes.expand.rng_expander import rng_expander
from tests.support.growing_modules import computation
from tests.support.growing_modules import module as program

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
    assert len(Compilation(hlo.optimize(module), passes="", threads=1).program.hosts) == hosts
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


def test_normal_numbers_of_f64_agree_but_for_last_bits() -> None:
    """Two mathematical libraries differ there in log and cos."""
    module = hlo.parse(PAIR.format(t="f64", kind="normal"))
    assert not Compilation(hlo.optimize(module), passes="", threads=1).program.hosts
    given = np.float64(1), np.float64(2)
    pairs = zip(hlo.compile(module, cache=False)(*given), hlo.evaluate(module, *given), strict=True)  # type: ignore[call-overload]  # tuples
    for actual, expected in pairs:
        np.testing.assert_allclose(actual, expected, rtol=1e-14, atol=1e-15)


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


DRAWN = "\n  a = f32[] constant(0)\n  b = f32[] constant(1)\n" \
    "  u = f32[] rng(a, b), distribution=rng_uniform\n"  # fmt: skip
BRANCHES = """HloModule m
yes { x = f32[] parameter(0)
  y = f32[] rng(x, x), distribution=rng_uniform
  u = f32[3] rng(x, y), distribution=rng_uniform
  ROOT r = (f32[3], f32[]) tuple(u, x) }
no { x = f32[] parameter(0)
  y = f32[3] broadcast(x), dimensions={}
  ROOT r = (f32[3], f32[]) tuple(y, x) }
ENTRY e { a = f32[] parameter(0)
  b = f32[] parameter(1)
  n = s32[] parameter(2)
  c = (f32[3], f32[]) conditional(n, a, b, b), branch_computations={yes, no, yes}
  z = f32[] rng(a, b), distribution=rng_uniform
  ROOT r = ((f32[3], f32[]), f32[]) tuple(c, z) }
"""


def test_loops_carry_how_much_they_drew() -> None:
    check(LOOP, np.zeros(4, np.float32))
    more = "v = f32[4] get-tuple-element(w), index=1" + DRAWN
    more += "  ROOT r = (f32[4], f32[]) tuple(v, u)"
    after = LOOP.replace("ROOT r = f32[4] get-tuple-element(w), index=1", more)
    check(after, np.zeros(4, np.float32))


def test_conditions_draw_before_each_iteration() -> None:
    text = LOOP.replace("ROOT r = pred[] compare(i, n), direction=LT", "less = pred[] compare(i, n)"
        ", direction=LT" + DRAWN + "  most = f32[] constant(0.95)\n  low = pred[] compare(u, most)"
        ", direction=LT\n  ROOT r = pred[] and(less, low)")  # fmt: skip
    check(text, np.zeros(4, np.float32))


def test_branches_carry_how_much_they_drew() -> None:
    module = hlo.parse(BRANCHES)
    assert not Compilation(hlo.optimize(module), passes="", threads=1).program.hosts
    run = hlo.compile(module, cache=False)
    for n in range(3):
        given = np.float32(1), np.float32(3), np.int32(n)
        (pair, z), (expected, w) = run(*given), hlo.evaluate(module, *given)  # type: ignore[misc]  # tuples
        for actual, wanted in zip((*pair, z), (*expected, w), strict=True):
            np.testing.assert_array_equal(actual, wanted)


def test_loops_in_loops_that_draw() -> None:
    head, entry = LOOP.split("ENTRY e")
    outer = head.replace("HloModule m", "").replace("c { s", "oc { s").replace("b { s", "ob { s")
    outer = outer.replace("constant(40)", "constant(3)").replace(
        "z = f32[4] add(x, y)",
        "k = s32[] constant(30)\n  q = (s32[], f32[4]) tuple(k, x)\n"
        "  v = (s32[], f32[4]) while(q), condition=c, body=b\n"
        "  o = f32[4] get-tuple-element(v), index=1\n  z = f32[4] add(o, y)",
    )
    entry = entry.replace("condition=c, body=b", "condition=oc, body=ob")
    check(head + outer + "ENTRY e" + entry, np.zeros(4, np.float32))


def test_nothing_waits_for_arithmetic() -> None:
    text = PAIR.format(t="f32", kind="uniform")
    text = text.replace("z = f32[] rng(a, b)", "z = f32[] rng(a, b), control-predecessors={y}")
    check(text, np.float32(0), np.float32(1))


def test_states_in_loops_are_left_to_the_reference() -> None:
    text = LOOP.replace("y = f32[4] rng(low, high), distribution=rng_uniform",
        "t = u64[2] rng-get-and-update-state(), delta=3\n  e = u64[1] slice(t), slice={[0:1]}\n"
        "  g = f32[1] convert(e)\n  h = f32[] reshape(g)\n"
        "  y = f32[4] broadcast(h), dimensions={}")  # fmt: skip
    check(text, np.zeros(4, np.float32), hosts=1)


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


def test_a_widened_conditional_forgets_what_was_said_of_each_element() -> None:
    text = """HloModule m
yes { x = f32[] parameter(0)
  one = f32[] constant(1)
  r = f32[3] rng(x, one), distribution=rng_uniform
  ROOT t = (f32[3], f32[]) tuple(r, x) }
no { x = f32[] parameter(0)
  w = f32[3] broadcast(x), dimensions={}
  ROOT t = (f32[3], f32[]) tuple(w, x) }
ENTRY e { p = pred[] parameter(0)
  a = f32[] parameter(1)
  ROOT c = (f32[3], f32[]) conditional(p, a, a), true_computation=yes,
    false_computation=no, origin={({"v" {0}}, {"w"})}
}"""
    module = hlo.parse(text)
    assert "origin=" in str(module)
    made = hlo.optimize(module, "rng-expander")
    assert "origin=" not in str(made)
    hlo.verify(hlo.parse(str(made)))
    for p in (True, False):
        check(text, np.array(p), np.float32(0.25))


def alternating(depth: int) -> str:
    """Loops of two iterations in branches in loops, which draw before and after what is inside."""
    state = "(s32[], f32[])"
    take = [
        f"p = {state} parameter(0)", "i = s32[] get-tuple-element(p), index=0",
        "x = f32[] get-tuple-element(p), index=1", "one = s32[] constant(1)",
        "zero = s32[] constant(0)", "a = f32[] constant(0)", "b = f32[] constant(1)",
    ]  # fmt: skip
    draw = "{} = f32[] rng(a, b), distribution=rng_uniform".format
    add = "{} = f32[] add({}, {})".format
    two = [*take[:2], "n = s32[] constant(2)", "ROOT r = pred[] compare(i, n), direction=LT"]
    same = [take[0], f"ROOT r = {state} copy(p)"]
    made = [computation("two", two), computation("same", same)]
    inside = f"q = {state} tuple(zero, s)"
    for k in range(depth):
        made.append(
            computation(f"g{k}", [*take, draw("u"), add("s", "x", "u"), inside,
                "y = f32[] get-tuple-element(q), index=1", draw("v"), add("w", "y", "v"),
                "j = s32[] add(i, one)", f"ROOT r = {state} tuple(j, w)"])
        )  # fmt: skip
        inside = f"z = {state} tuple(zero, s)\n  q = {state} "
        inside += f"while(z), condition=two, body=g{k}" if k % 2 else (
            "conditional(zero, z, z), branch_computations={" + f"g{k}, same}}"
        )  # fmt: skip
    entry = [*take[3:], "s = f32[] parameter(0)", inside, draw("u"), f"ROOT r = ({state}, f32[]) "
             "tuple(q, u)"]  # fmt: skip
    return program(entry, *made)


def test_loops_in_branches_in_loops_that_draw() -> None:
    module = hlo.parse(alternating(6))
    assert rng_expander(module)
    hlo.verify(module)
    given = np.float32(2)
    (state, last), (wanted, end) = (  # type: ignore[misc]  # tuples
        hlo.evaluate(module, given), hlo.evaluate(hlo.parse(alternating(6)), given)
    )  # fmt: skip
    np.testing.assert_array_equal([*state, last], [*wanted, end])


def test_draws_are_expanded_at_any_depth() -> None:
    module = hlo.parse(alternating(700))
    assert rng_expander(module)
    assert not any(i.opcode == "rng" for c in module.computations for i in c.instructions)
