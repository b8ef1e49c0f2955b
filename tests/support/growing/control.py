"""Modules of many loops and conditionals."""

from __future__ import annotations

from tests.support.growing.family import family
from tests.support.growing.text import (
    body,
    called,
    chain,
    computation,
    condition,
    filled,
    loop,
    module,
    names,
    nest,
    taken,
)


@family(60, base=5, runs=False)
def conditionals_twice(n: int) -> str:
    both = "true_computation=fun{0}, false_computation=fun{0}"
    made = nest(n, "sine(x)", lambda k: [
        "i = s32[] constant(0)", "e = f32[1] slice(x), slice={[0:1]}", "s = f32[] reshape(e)",
        "z = f32[] constant(0.5)", "c = pred[] compare(s, z), direction=GT",
        "y = f32[4] negate(x)", f"ROOT r = f32[4] conditional(c, x, y), {both.format(k - 1)}",
    ])  # fmt: skip
    return module(["p = f32[4] parameter(0)", called(n)], *made)


@family(500, base=32)
def conditionals_in_a_row(n: int) -> str:
    one = computation("one", ["x = f32[4] parameter(0)", "ROOT r = f32[4] sine(x)"])
    two = computation("two", ["x = f32[4] parameter(0)", "ROOT r = f32[4] negate(x)"])
    form = "true_computation=one, false_computation=two"
    lines = chain(n, "p", lambda k, x: f"f32[4] conditional(c, {x}, {x}), {form}")
    return module(["c = pred[] parameter(0)", "p = f32[4] parameter(1)", *lines], one, two)


@family(5_000, base=10)
def branches(n: int) -> str:
    lines = ["x = f32[4] parameter(0)"]
    made = [
        computation(f"b{k}", [*lines, *filled(k, "f32[4]", k), f"ROOT r = f32[4] add(x, b{k})"])
        for k in range(n)
    ]
    root = (
        f"ROOT r = f32[4] conditional(i, {', '.join(['p'] * n)}), "
        f"branch_computations={{{names('b', n)}}}"
    )
    return module(["i = s32[] parameter(0)", "p = f32[4] parameter(1)", root], *made)


@family(80, base=5, runs=False)
def nested_loops(n: int) -> str:
    made = []
    for k in range(n):
        inner = ["y = f32[4] sine(x)"]
        if k:
            calls = f"condition=q{k - 1}, body=b{k - 1}"
            inner = [
                "z = s32[] constant(0)", *loop("w", "u", "z", "x", calls),
                "y = f32[4] get-tuple-element(w), index=1",
            ]  # fmt: skip
        made += [condition(f"q{k}", 2), body(f"b{k}", inner)]
    entry = ["p = f32[4] parameter(0)", "z = s32[] constant(0)"]
    return module(
        [*entry, *loop("ROOT w", "u", "z", "p", f"condition=q{n - 1}, body=b{n - 1}")], *made
    )


@family(60, base=5, runs=False)
def loops_of_loops(n: int) -> str:
    """Each body runs the previous one's loop twice: what is shared must stay shared."""
    made = [condition("c", 2)]
    for k in range(n):
        inner = ["y = f32[4] sine(x)"]
        if k:
            calls = f"condition=c, body=b{k - 1}"
            inner = [
                "z = s32[] constant(0)", *loop("w", "u", "z", "x", calls),
                "g = f32[4] get-tuple-element(w), index=1", *loop("v", "a", "z", "g", calls),
                "y = f32[4] get-tuple-element(v), index=1",
            ]  # fmt: skip
        made.append(body(f"b{k}", inner))
    entry = ["p = f32[4] parameter(0)", "z = s32[] constant(0)"]
    return module([*entry, *loop("ROOT w", "u", "z", "p", f"condition=c, body=b{n - 1}")], *made)


@family(2_000, base=12)
def carried_leaves(n: int) -> str:
    state = f"(s32[], {', '.join(['f32[4]'] * n)})"
    made = [f"y{k} = f32[4] add(x{k}, x{(k + 1) % n})" for k in range(n)]
    lines = [*taken("f32[4]", n), "z = s32[] constant(0)", f"u = {state} tuple(z, {names('p', n)})"]
    root = f"ROOT w = {state} while(u), condition=test, body=body"
    return module([*lines, root], condition("test", 3, state), body("body", made, n))


@family(500, base=8)
def loops_in_a_row(n: int) -> str:
    lines = ["z = s32[] constant(97)", "g0 = f32[4] parameter(0)"]
    for k in range(n):
        lines += loop(f"w{k}", f"h{k}", "z", f"g{k}", "condition=test, body=body")
        lines.append(f"g{k + 1} = f32[4] get-tuple-element(w{k}), index=1")
    made = condition("test", 100), body("body", ["y = f32[4] sine(x)"])
    return module([*lines, f"ROOT r = f32[4] negate(g{n})"], *made)


@family(60, base=10, runs=False)
def known_conditionals_twice(n: int) -> str:
    both = "true_computation=fun{0}, false_computation=fun{0}"
    made = nest(n, "sine(x)", lambda k: [
        "c = pred[] constant(true)", f"y = f32[4] conditional(c, x, x), {both.format(k - 1)}",
        f"ROOT r = f32[4] conditional(c, y, x), {both.format(k - 1)}",
    ])  # fmt: skip
    return module(["p = f32[4] parameter(0)", called(n)], *made)
