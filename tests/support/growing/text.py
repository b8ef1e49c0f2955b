"""Text of modules: what families are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def module(entry: Iterable[str], *computations: str, name: str = "m") -> str:
    """A module of computations and of an entry that holds the lines."""
    lines = "\n".join(f"  {line}" for line in entry)
    return "\n".join([f"HloModule {name}", *computations, "ENTRY e {", lines, "}", ""])


def computation(name: str, lines: Iterable[str]) -> str:
    return "\n".join([f"{name} {{", *(f"  {line}" for line in lines), "}"])


def names(prefix: str, n: int) -> str:
    return ", ".join(f"{prefix}{k}" for k in range(n))


def shapes(shape: str, n: int) -> str:
    return "(" + ", ".join([shape] * n) + ")"


ADD = computation(
    "sum", ["a = f32[] parameter(0)", "b = f32[] parameter(1)", "ROOT c = f32[] add(a, b)"]
)


def chain(n: int, first: str, line: Callable[[int, str], str], prefix: str = "v") -> list[str]:
    """n lines, each of which uses the one before; line(k, operand) is the right side."""
    lines, last = [], first
    for k in range(n):
        lines.append(f"{'ROOT ' if k == n - 1 else ''}{prefix}{k} = {line(k, last)}")
        last = f"{prefix}{k}"
    return lines


def reduced(n: int, prefix: str, operation: str) -> list[str]:
    """The n values prefix0, prefix1, ... joined one after the other: `f32[4] add`."""
    return chain(n - 1, f"{prefix}0", lambda k, x: f"{operation}({x}, {prefix}{k + 1})")


def taken(shape: str, n: int, prefix: str = "p", first: int = 0) -> list[str]:
    """n parameters of one shape."""
    return [f"{prefix}{k} = {shape} parameter({first + k})" for k in range(n)]


def packed(shape: str, n: int, prefix: str) -> str:
    """The root that is a tuple of n values."""
    return f"ROOT t = {shapes(shape, n)} tuple({names(prefix, n)})"


def filled(k: int, shape: str, value: object) -> list[str]:
    """bk: an array of one number."""
    return [f"q{k} = f32[] constant({value})", f"b{k} = {shape} broadcast(q{k}), dimensions={{}}"]


def nest(n: int, first: str, line: Callable[[int], list[str]], shape: str = "f32[4]") -> list[str]:
    """fun0 to fun(n-1) of x, the first of which is one op; line(k) may call fun(k-1)."""
    taken = f"x = {shape} parameter(0)"
    made = [computation("fun0", [taken, f"ROOT r = {shape} {first}"])]
    return [*made, *(computation(f"fun{k}", [taken, *line(k)]) for k in range(1, n))]


def called(n: int, call: str = "call(p), to_apply", shape: str = "f32[4]") -> str:
    """The root that calls the last of a nest."""
    return f"ROOT r = {shape} {call}=fun{n - 1}"


STATE = "(s32[], f32[4])"  # of a loop: how many iterations, and a value


def condition(name: str, limit: int, state: str = STATE) -> str:
    """Of a loop with so many iterations."""
    test = [
        f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0",
        f"m = s32[] constant({limit})", "ROOT r = pred[] compare(i, m), direction=LT",
    ]  # fmt: skip
    return computation(name, test)


def body(name: str, lines: Iterable[str], n: int = 1) -> str:
    """Of a loop whose state is a counter and n values: the lines make y0 to y(n-1) of x0 to x(n-1),
    or y of x."""
    mark = names if n > 1 else lambda prefix, _: prefix
    state = f"(s32[], {', '.join(['f32[4]'] * n)})"
    gets = [
        f"{x} = f32[4] get-tuple-element(t), index={k + 1}"
        for k, x in enumerate(mark("x", n).split(", "))
    ]
    head = [f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0", *gets]
    last = ["o = s32[] constant(1)", "j = s32[] add(i, o)"]
    return computation(name, [*head, *lines, *last, f"ROOT r = {state} tuple(j, {mark('y', n)})"])


def loop(made: str, name: str, start: str, value: str, calls: str) -> list[str]:
    """Lines of a loop from a start of the counter; name, made: its state before and after."""
    return [f"{name} = {STATE} tuple({start}, {value})", f"{made} = {STATE} while({name}), {calls}"]
