"""Modules of many computations: calls, fusions, reducers."""

from __future__ import annotations

from tests.support.growing.family import family
from tests.support.growing.text import ADD, called, chain, computation, filled, module, nest, packed

FUSION = "fusion({}), kind=kLoop, calls"


@family(2_000, base=16)
def calls_once(n: int) -> str:
    made = nest(n, "sine(x)", lambda k: [
        f"c = f32[4] call(x), to_apply=fun{k - 1}", "ROOT r = f32[4] negate(c)",
    ])  # fmt: skip
    return module(["p = f32[4] parameter(0)", called(n)], *made)


@family(200, base=5, runs=False)
def calls_twice(n: int) -> str:
    made = nest(n, "sine(x)", lambda k: [
        f"c = f32[4] call(x), to_apply=fun{k - 1}", f"d = f32[4] call(c), to_apply=fun{k - 1}",
        "ROOT r = f32[4] add(c, d)",
    ])  # fmt: skip
    return module(["p = f32[4] parameter(0)", called(n)], *made)


@family(500, base=10)
def nested_fusions(n: int) -> str:
    made = nest(n, "sine(x)", lambda k: [
        "y = f32[4] negate(x)", f"ROOT r = f32[4] {FUSION.format('y')}=fun{k - 1}",
    ])  # fmt: skip
    return module(["p = f32[4] parameter(0)", called(n, FUSION.format("p"))], *made)


@family(500, base=10)
def fusions(n: int) -> str:
    made = [
        computation(f"fun{k}", [
            "x = f32[4] parameter(0)", *filled(k, "f32[4]", k), f"ROOT r = f32[4] power(x, b{k})",
        ])
        for k in range(n)
    ]  # fmt: skip
    lines = chain(n, "p", lambda k, x: f"f32[4] {FUSION.format(x)}=fun{k}")
    return module(["p = f32[4] parameter(0)", *lines], *made)


@family(1_000, base=15)
def reducers(n: int) -> str:
    made = [ADD.replace("sum", f"r{k}") for k in range(n)]
    lines = ["p = f32[4,4] parameter(0)", "z = f32[] constant(0)"]
    for k in range(n):
        lines += [
            *filled(k, "f32[4,4]", k),
            f"m{k} = f32[4,4] power(p, b{k})",
            f"h{k} = f32[4] reduce(m{k}, z), dimensions={{0}}, to_apply=r{k}",
        ]
    return module([*lines, packed("f32[4]", n, "h")], *made)


@family(500, base=12)
def asynchronous(n: int) -> str:
    made, lines, last = [], ["p = f32[4] parameter(0)"], "p"
    for k in range(n):
        made.append(computation(f"w{k}", ["x = f32[4] parameter(0)", "ROOT r = f32[4] sine(x)"]))
        kind = "((f32[4]), f32[4], s32[])"
        lines += [
            f"h{k} = {kind} async-start({last}), calls=w{k}",
            f"d{k} = f32[4] async-done(h{k})",
        ]
        last = f"d{k}"
    return module([*lines, f"ROOT r = f32[4] negate({last})"], *made)


@family(60, base=5, runs=False)
def fusions_twice(n: int) -> str:
    made = nest(n, "sine(x)", lambda k: [
        f"y = f32[4] {FUSION.format('x')}=fun{k - 1}",
        f"ROOT r = f32[4] {FUSION.format('y')}=fun{k - 1}",
    ])  # fmt: skip
    return module(["p = f32[4] parameter(0)", called(n, FUSION.format("p"))], *made)


@family(60, base=5, runs=False)
def selections_twice(n: int) -> str:
    """What a map applies chooses between two branches that choose in their turn."""
    both = "true_computation=fun{0}, false_computation=fun{0}"
    made = nest(n, "sine(x)", lambda k: [
        f"z = f32[] constant({k})", "c = pred[] compare(x, z), direction=LT",
        "y = f32[] negate(x)", f"ROOT r = f32[] conditional(c, x, y), {both.format(k - 1)}",
    ], "f32[]")  # fmt: skip
    root = called(n, "map(p), dimensions={0}, to_apply", "f32[16]")
    return module(["p = f32[16] parameter(0)", root], *made)


@family(60, base=5, runs=False)
def reducer_calls_twice(n: int) -> str:
    """What a reduction applies calls what calls the next twice."""
    two = ["x = f32[] parameter(0)", "y = f32[] parameter(1)"]
    made = [computation("fun0", [*two, "ROOT r = f32[] add(x, y)"])]
    for k in range(1, n):
        lines = [
            *two,
            f"a = f32[] call(x, y), to_apply=fun{k - 1}",
            f"ROOT r = f32[] call(a, y), to_apply=fun{k - 1}",
        ]
        made.append(computation(f"fun{k}", lines))
    root = f"ROOT r = f32[4] reduce(p, z), dimensions={{1}}, to_apply=fun{n - 1}"
    return module(["p = f32[4,8] parameter(0)", "z = f32[] constant(0)", root], *made)


@family(1_000, base=10)
def fusions_around_a_product(n: int) -> str:
    """What cannot stay in one kernel is written out of all fusions around it."""
    two = ["x = f32[8,8] parameter(0)", "w = f32[8,8] parameter(1)"]
    inner = "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    made = []
    for k in range(n):
        lines = ["y = f32[8,8] negate(x)", f"h = f32[8,8] {inner.replace('(x', '(y')}"]
        made.append(computation(f"fun{k}", [*two, *lines, "ROOT r = f32[8,8] sine(h)"]))
        inner = f"fusion(x, w), kind=kLoop, calls=fun{k}"
    return module([*two, f"ROOT r = f32[8,8] {inner}"], *made)


@family(1_000)
def fusions_around_a_draw(n: int) -> str:
    """What a pass expands is written out of all fusions around it."""
    two = ["x = f32[] parameter(0)", "w = f32[] parameter(1)"]
    inner = "rng(x, w), distribution=rng_uniform"
    made = []
    for k in range(n):
        made.append(
            computation(f"fun{k}", [*two, f"h = f32[4] {inner}", "ROOT r = f32[4] sine(h)"])
        )
        inner = f"fusion(x, w), kind=kLoop, calls=fun{k}"
    return module([*two, f"ROOT r = f32[4] {inner}"], *made)


@family(5_000)
def computations(n: int) -> str:
    """Each called once, from the entry, by ops of several kinds."""
    made = [
        computation(
            f"fun{k}",
            ["x = f32[4] parameter(0)", *filled(k, "f32[4]", k), f"ROOT r = f32[4] add(x, b{k})"],
        )
        for k in range(n)
    ]
    lines = chain(n, "p", lambda k, x: f"f32[4] call({x}), to_apply=fun{k}")
    return module(["p = f32[4] parameter(0)", *lines], *made)


@family(5_000)
def computations_that_nobody_calls(n: int) -> str:
    made = [ADD.replace("sum", f"r{k}") for k in range(n)]
    return module(["p = f32[4] parameter(0)", "ROOT r = f32[4] sine(p)"], *made)
