"""Deep programs: computations in computations, and long paths in one fusion, through every verb.

python -m tests.support.deep_programs LIMIT  -> a line for every verb that ends in RecursionError,
or whose results differ; LIMIT is Python's, set anew before each verb.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np

import hlo
from hlo import driver
from tests.support.growing_modules import chain, computation, module

LIMITED = ("limit", "unsupported")  # a depth that is declined says so
INPUT = np.arange(4, dtype=np.float32) + np.float32(0.5)
P = "p = f32[4] parameter(0)"
SCALARS = ["a = f32[] parameter(0)", "b = f32[] parameter(1)"]
FUSION = "fusion(p), kind=kLoop, calls="


def nested(n: int, call: str, last: str = "negate(c)", *, shape: str = "f32[4]") -> list[str]:
    """g0 to g(n-1), each of which calls the one before and does `last` to what it gives."""
    first = computation("g0", [f"p = {shape} parameter(0)", f"ROOT r = {shape} sine(p)"])
    rest = [
        [f"p = {shape} parameter(0)", f"c = {shape} {call}g{k - 1}", f"ROOT r = {shape} {last}"]
        for k in range(1, n)
    ]
    return [first, *(computation(f"g{k}", lines) for k, lines in enumerate(rest, 1))]


def reducers(n: int, call: str) -> list[str]:
    first = computation("g0", [*SCALARS, "ROOT r = f32[] add(a, b)"])
    rest = [
        [*SCALARS, f"c = f32[] {call}g{k - 1}", "ROOT r = f32[] maximum(c, b)"] for k in range(1, n)
    ]
    return [first, *(computation(f"g{k}", lines) for k, lines in enumerate(rest, 1))]


def reduced(n: int, call: str) -> str:
    reduce = f"ROOT r = f32[] reduce(p, z), dimensions={{0}}, to_apply=g{n - 1}"
    return module([P, "z = f32[] constant(0)", reduce], *reducers(n, call))


def fused(lines: list[str]) -> str:
    return module([P, f"ROOT r = f32[4] {FUSION}g"], computation("g", [P, *lines]))


def line(n: int, even: str, odd: str) -> str:
    """A chain in one fusion; the texts hold V for the value before."""
    return fused(chain(n, "p", lambda k, v: "f32[4] " + (odd if k % 2 else even).replace("V", v)))


def conditionals(n: int) -> str:
    first = computation("g0", [P, "ROOT r = f32[4] sine(p)"])
    rest = [
        computation(f"g{k}", [
            P, "h = f32[1] slice(p), slice={[0:1]}", "x = f32[] reshape(h)",
            f"z = f32[] constant({k})", "t = pred[] compare(x, z), direction=NE",
            "ROOT r = f32[4] conditional(t, p, p),"
            f" true_computation=g{k - 1}, false_computation=g0",
        ])
        for k in range(1, n)
    ]  # fmt: skip
    return module([P, f"ROOT r = f32[4] call(p), to_apply=g{n - 1}"], first, *rest)


def whiles(n: int) -> str:
    state = "(s32[], f32[4])"
    taken = [
        f"p = {state} parameter(0)", "i = s32[] get-tuple-element(p), index=0",
        "x = f32[4] get-tuple-element(p), index=1", "l = s32[] constant(1)",
    ]  # fmt: skip
    step = [f"ROOT r = {state} tuple(j, y)"]
    condition = computation("go", [*taken, "ROOT r = pred[] compare(i, l), direction=LT"])
    bodies = [computation("g0", [*taken, "j = s32[] add(i, l)", "y = f32[4] sine(x)", *step])]
    for k in range(1, n):
        inner = [
            "j = s32[] add(i, l)", "z = s32[] constant(0)", f"q = {state} tuple(z, x)",
            f"w = {state} while(q), condition=go, body=g{k - 1}",
            "y = f32[4] get-tuple-element(w), index=1",
        ]  # fmt: skip
        bodies.append(computation(f"g{k}", [*taken, *inner, *step]))
    entry = [
        P, "z = s32[] constant(0)", f"q = {state} tuple(z, p)",
        f"w = {state} while(q), condition=go, body=g{n - 1}",
        "ROOT r = f32[4] get-tuple-element(w), index=1",
    ]  # fmt: skip
    return module(entry, condition, *bodies)


def programs(n: int) -> Iterator[tuple[str, str]]:
    """Name and text. n: more levels than Python's limit leaves for two calls each."""
    fusion, reverse = f"ROOT r = f32[4] {FUSION}g{n - 1}", "reverse(c), dimensions={0}"
    call = f"ROOT r = f32[4] call(p), to_apply=g{n - 1}"
    yield "fusions", module([P, fusion], *nested(n, FUSION))
    yield "moving fusions", module([P, fusion], *nested(n, FUSION, reverse))
    yield "calls", module([P, call], *nested(n, "call(p), to_apply="))
    yield "reducer of calls", reduced(n, "call(a, b), to_apply=")
    yield "reducer of fusions", reduced(n, "fusion(a, b), kind=kLoop, calls=")
    yield "elementwise line", line(n, "sine(V)", "add(V, p)")
    yield "moving line", line(n, "sine(V)", "reverse(V), dimensions={0}")
    yield "copying line", line(n, "copy(V)", "copy(V)")
    gather = (
        "gather(V, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},"
        " index_vector_dim=1, slice_sizes={1}"
    )
    places = "i = s32[4,1] constant({{1},{2},{3},{0}})"
    yield "gathering line", line(n, gather, gather).replace("g {\n", f"g {{\n  {places}\n")
    few = min(n, 110)  # more than loops and branches may nest
    mapped = f"ROOT r = f32[4] map(p), dimensions={{0}}, to_apply=g{few - 1}"
    inner = nested(few, "map(p), dimensions={}, to_apply=", shape="f32[]")
    yield "maps", module([P, mapped], *inner)
    yield "conditionals", conditionals(few)
    yield "whiles", whiles(few)


def outcomes(text: str, limit: int) -> Iterator[str]:
    """What goes wrong with a program."""
    results: dict[str, np.ndarray] = {}

    def value(made: object) -> None:
        results[verb] = np.asarray(made)

    source = hlo.parse(text)
    verbs: dict[str, Callable[[], object]] = {
        "parse": lambda: hlo.parse(text),
        "print": lambda: hlo.parse(driver.to_text(source)),
        "verify": lambda: hlo.verify(source),
        "lint": lambda: driver.lint(source),
        "optimize": lambda: hlo.optimize(source),
        "memory": lambda: driver.memory(source, passes=""),
        "evaluate": lambda: value(hlo.evaluate(source, INPUT)),
        "compile": lambda: value(hlo.compile(source, cache=False)(INPUT)),
        "compile as it is": lambda: value(hlo.compile(source, passes="", cache=False)(INPUT)),
    }
    for verb, act in verbs.items():
        sys.setrecursionlimit(limit)
        try:
            act()
        except hlo.HloError as error:
            if error.code not in LIMITED:
                yield f"{verb}: {error}"
        except RecursionError:
            sys.setrecursionlimit(3 * limit)
            yield f"{verb}: RecursionError"
    first, *others = results.values() or [np.zeros(0)]
    if not all(np.allclose(first, other, rtol=1e-4) for other in others):
        yield f"results differ: {results}"


def main() -> None:
    limit = int(sys.argv[1])
    warm = programs(4)  # what is imported at first use takes a stack of its own
    for name, text in warm:
        assert not list(outcomes(text, 5000)), name
    for name, text in programs(limit):
        for problem in outcomes(text, limit):
            sys.stdout.write(f"{name}: {problem}\n")


if __name__ == "__main__":
    main()
