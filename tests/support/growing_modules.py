"""Families of modules that grow by one number: every way in which a program can be large.

A family is a function from a size to a module's text. What a stage costs on a family has to grow as
the size does (tests/unit/test_growth.py counts work; `python -m benchmarks.growth` takes seconds).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """text(size) is the module. large: the size at which each stage still has to end in seconds.

    base: the size of which tests take four and eight times. runs: whether a run's steps grow as the
    text does, so that it may be evaluated. text_growth: how much longer twice the size's text is.
    """

    name: str
    text: Callable[[int], str]
    large: int
    base: int
    runs: bool
    text_growth: float


FAMILIES: dict[str, Family] = {}


def family(
    large: int, *, base: int = 24, runs: bool = True, text_growth: float = 2
) -> Callable[[Callable[[int], str]], Callable[[int], str]]:
    """Enter a function from sizes to texts."""

    def enter(text: Callable[[int], str]) -> Callable[[int], str]:
        name = text.__name__
        FAMILIES[name] = Family(name, text, large, base, runs, text_growth)
        return text

    return enter


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


# -- instructions ----------------------------------------------------------------------------


@family(10_000)
def elementwise_chain(n: int) -> str:
    ops = ("negate", "sine", "abs", "tanh")
    lines = chain(n, "p", lambda k, x: f"f32[64] {ops[k % 4]}({x})")
    return module(["p = f32[64] parameter(0)", *lines])


@family(10_000)
def binary_chain(n: int) -> str:
    ops = ("multiply", "add", "subtract", "maximum")
    lines = chain(n, "p", lambda k, x: f"f32[64] {ops[k % 4]}({x}, q)")
    return module(["p = f32[64] parameter(0)", "q = f32[64] parameter(1)", *lines])


@family(5_000, base=16)
def independent_chains(n: int) -> str:
    lines = ["p = f32[64] parameter(0)"]
    for k in range(n):
        lines += [
            f"q{k} = f32[] constant({k}.5)",
            f"b{k} = f32[64] broadcast(q{k}), dimensions={{}}",
            f"a{k} = f32[64] add(p, b{k})",
            f"r{k} = f32[64] sine(a{k})",
        ]
    return module([*lines, f"ROOT t = {shapes('f32[64]', n)} tuple({names('r', n)})"])


@family(5_000, base=20)
def users_of_a_scalar(n: int) -> str:
    lines = ["s = f32[] parameter(0)", "h = f32[] sine(s)"]
    lines += ["b = f32[64] broadcast(h), dimensions={}"]
    for k in range(n):
        lines += [f"p{k} = f32[64] parameter({k + 1})", f"r{k} = f32[64] add(p{k}, b)"]
    return module([*lines, f"ROOT t = {shapes('f32[64]', n)} tuple({names('r', n)})"])


@family(5_000, base=8)
def readers_of_an_array(n: int) -> str:
    lines = ["p = f32[8,64] parameter(0)", "h = f32[8,64] tanh(p)"]
    for k in range(n):
        lines += [
            f"q{k} = f32[] constant({k}.25)",
            f"b{k} = f32[8,64] broadcast(q{k}), dimensions={{}}",
            f"m{k} = f32[8,64] multiply(h, b{k})",
            f"z{k} = f32[] constant(0)",
            f"r{k} = f32[8] reduce(m{k}, z{k}), dimensions={{1}}, to_apply=sum",
        ]
    root = f"ROOT t = {shapes('f32[8]', n)} tuple({names('r', n)})"
    return module([*lines, root], ADD)


@family(10_000)
def select_chain(n: int) -> str:
    lines = chain(n, "p", lambda k, x: f"f32[64] select(c, {x}, {'q' if k % 2 else 'o'})")
    head = [
        "c = pred[64] parameter(0)", "p = f32[64] parameter(1)", "q = f32[64] parameter(2)",
        "o = f32[64] parameter(3)",
    ]  # fmt: skip
    return module([*head, *lines])


@family(10_000)
def copy_chain(n: int) -> str:
    return module(["p = f32[64] parameter(0)", *chain(n, "p", lambda k, x: f"f32[64] copy({x})")])


@family(10_000)
def reshape_chain(n: int) -> str:
    lines = chain(n, "p", lambda k, x: f"f32[{'8,8' if k % 2 else '64'}] reshape({x})")
    return module(["p = f32[8,8] parameter(0)", *lines])


@family(2_000, base=40)
def pad_chain(n: int) -> str:
    lines = chain(n, "p", lambda k, x: f"f32[{8 + k + 1}] pad({x}, z), padding=1_0")
    return module(["p = f32[8] parameter(0)", "z = f32[] constant(0)", *lines])


@family(2_000)
def update_chain(n: int) -> str:
    line = "f32[4096] dynamic-update-slice({}, u, i{})".format
    lines = ["p = f32[4096] parameter(0)", "u = f32[2] parameter(1)"]
    lines += [f"i{k} = s32[] constant({k % 4000})" for k in range(n)]
    return module([*lines, *chain(n, "p", lambda k, x: line(x, k))])


@family(2_000)
def slice_sums(n: int) -> str:
    lines = [f"p = f32[{n + 8}] parameter(0)"]
    lines += [f"h{k} = f32[8] slice(p), slice={{[{k}:{k + 8}]}}" for k in range(n)]
    return module([*lines, *chain(n - 1, "h0", lambda k, x: f"f32[8] add({x}, h{k + 1})")])


@family(1_000)
def dot_chain(n: int) -> str:
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines = chain(n, "p", lambda k, x: f"f32[8,8] dot({x}, w), {dims}")
    return module(["p = f32[8,8] parameter(0)", "w = f32[8,8] parameter(1)", *lines])


@family(500, base=8)
def layers(n: int) -> str:
    lines = ["x0 = f32[8,16] parameter(0)"]
    for k in range(n):
        lines += [
            f"w{k} = f32[16,16] parameter({k + 1})",
            f"d{k} = f32[8,16] dot(x{k}, w{k}), lhs_contracting_dims={{1}}, "
            "rhs_contracting_dims={0}",
            f"t{k} = f32[8,16] tanh(d{k})",
            f"z{k} = f32[] constant(0)",
            f"m{k} = f32[8] reduce(t{k}, z{k}), dimensions={{1}}, to_apply=sum",
            f"b{k} = f32[8,16] broadcast(m{k}), dimensions={{0}}",
            f"x{k + 1} = f32[8,16] subtract(t{k}, b{k})",
        ]
    return module([*lines, f"ROOT r = f32[8,16] negate(x{n})"], ADD)


@family(1_000, base=10)
def gathers(n: int) -> str:
    form = (
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,8}"
    )
    lines = ["p = f32[32,8] parameter(0)", "i = s32[4,1] parameter(1)"]
    lines += [f"g{k} = f32[4,8] gather(p, j{k}), {form}" for k in range(n)]
    made = [
        line
        for k in range(n)
        for line in (
            f"q{k} = s32[] constant({k % 16})",
            f"b{k} = s32[4,1] broadcast(q{k}), dimensions={{}}",
            f"j{k} = s32[4,1] add(i, b{k})",
        )
    ]
    root = f"ROOT t = {shapes('f32[4,8]', n)} tuple({names('g', n)})"
    return module([*lines[:2], *made, *lines[2:], root])


@family(20_000)
def constants(n: int) -> str:
    lines = [f"q{k} = f32[3] constant({{{k}, {k}.5, 2}})" for k in range(n)]
    return module([*lines, *chain(n - 1, "q0", lambda k, x: f"f32[3] maximum({x}, q{k + 1})")])


@family(2_000)
def metadata(n: int) -> str:
    said = 'op_type="neg" op_name="jit(f)/layer_{0}/neg" source_file="f{0}.py" source_line={0}'
    lines = chain(
        n,
        "p",
        lambda k, x: (
            f"f32[8] add({x}, {x}), metadata={{{said.format(k)}}}, "
            f'frontend_attributes={{a="{k}"}}, backend_config={{"k":{k}}}'
        ),
    )
    return module(["p = f32[8] parameter(0)", *lines])


@family(2_000)
def control_dependences(n: int) -> str:
    lines = ["p = f32[8] parameter(0)", "v0 = f32[8] negate(p)"]
    for k in range(1, n):
        lines.append(f"v{k} = f32[8] sine(p), control-predecessors={{v{k - 1}}}")
    return module([*lines, f"ROOT t = {shapes('f32[8]', n)} tuple({names('v', n)})"])


@family(1_000)
def all_reduces(n: int) -> str:
    form = "replica_groups={{0}}, to_apply=sum"
    lines = chain(n, "p", lambda k, x: f"f32[8] all-reduce({x}), {form}, channel_id={k + 1}")
    return module(["p = f32[8] parameter(0)", *lines], ADD)


@family(500)
def custom_calls(n: int) -> str:
    target = 'custom_call_target="Sharding", custom_call_has_side_effect=false'
    lines = chain(n, "p", lambda k, x: f"f32[8] custom-call({x}), {target}")
    return module(["p = f32[8] parameter(0)", *lines])


# -- operands --------------------------------------------------------------------------------


@family(5_000)
def concatenated_parameters(n: int) -> str:
    lines = [f"p{k} = f32[2] parameter({k})" for k in range(n)]
    root = f"ROOT r = f32[{2 * n}] concatenate({names('p', n)}), dimensions={{0}}"
    return module([*lines, root])


@family(5_000, base=12)
def concatenated_values(n: int) -> str:
    lines = [f"p = f32[{n},2] parameter(0)"]
    for k in range(n):
        lines += [
            f"h{k} = f32[1,2] slice(p), slice={{[{n - 1 - k}:{n - k}], [0:2]}}",
            f"v{k} = f32[1,2] sine(h{k})",
        ]
    root = f"ROOT r = f32[{n},2] concatenate({names('v', n)}), dimensions={{0}}"
    return module([*lines, root])


@family(1_000)
def concatenated_columns(n: int) -> str:
    lines = [f"p{k} = f32[3,{1 + k % 3}] parameter({k})" for k in range(n)]
    width = sum(1 + k % 3 for k in range(n))
    root = f"ROOT r = f32[3,{width}] concatenate({names('p', n)}), dimensions={{1}}"
    return module([*lines, root])


@family(200, base=4)
def variadic_reduce(n: int) -> str:
    a = [f"a{k} = f32[] parameter({k})" for k in range(n)]
    b = [f"b{k} = f32[] parameter({n + k})" for k in range(n)]
    c = [f"q{k} = f32[] add(a{k}, b{k})" for k in range(n)]
    root = f"ROOT t = {shapes('f32[]', n)} tuple({names('q', n)})"
    reducer = computation("fold", [*a, *b, *c, root])
    lines = [f"p{k} = f32[4,8] parameter({k})" for k in range(n)]
    lines += ["z = f32[] constant(0)"]
    call = f"reduce({names('p', n)}, {', '.join(['z'] * n)}), dimensions={{1}}, to_apply=fold"
    return module([*lines, f"ROOT r = {shapes('f32[4]', n)} {call}"], reducer)


@family(200)
def wide_sort(n: int) -> str:
    sides = [f"{s}{k} = f32[] parameter({2 * k + (s == 'b')})" for k in range(n) for s in "ab"]
    order = computation("order", [*sides, "ROOT lt = pred[] compare(a0, b0), direction=LT"])
    lines = [f"p{k} = f32[16] parameter({k})" for k in range(n)]
    root = (
        f"ROOT r = {shapes('f32[16]', n)} sort({names('p', n)}), dimensions={{0}}, to_apply=order"
    )
    return module([*lines, root], order)


@family(1_000)
def large_map(n: int) -> str:
    body = computation(
        "body", ["x = f32[] parameter(0)", *chain(n, "x", lambda k, x: f"f32[] cosine({x})")]
    )
    root = "ROOT r = f32[16] map(p), dimensions={0}, to_apply=body"
    return module(["p = f32[16] parameter(0)", root], body)


@family(500)
def large_scatter(n: int) -> str:
    lines = ["x = f32[] parameter(0)", "y = f32[] parameter(1)", "s = f32[] add(x, y)"]
    body = computation("body", [*lines, *chain(n, "s", lambda k, x: f"f32[] cosine({x})")])
    form = (
        "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=body"
    )
    lines = ["p = f32[16] parameter(0)", "i = s32[4,1] parameter(1)", "u = f32[4] parameter(2)"]
    return module([*lines, f"ROOT r = f32[16] scatter(p, i, u), {form}"], body)


# -- parameters, results, tuples -----------------------------------------------------------------


@family(10_000)
def tuple_parameter(n: int) -> str:
    lines = [f"p = {shapes('f32[4]', n)} parameter(0)"]
    lines += [f"g{k} = f32[4] get-tuple-element(p), index={k}" for k in range(n)]
    return module([*lines, *chain(n - 1, "g0", lambda k, x: f"f32[4] add({x}, g{k + 1})")])


@family(10_000)
def parameters(n: int) -> str:
    lines = [f"p{k} = f32[4] parameter({k})" for k in range(n)]
    return module([*lines, *chain(n - 1, "p0", lambda k, x: f"f32[4] add({x}, p{k + 1})")])


@family(10_000)
def tuple_of_parameters(n: int) -> str:
    lines = [f"p{k} = f32[4] parameter({k})" for k in range(n)]
    return module([*lines, f"ROOT t = {shapes('f32[4]', n)} tuple({names('p', n)})"])


@family(20_000)
def results(n: int) -> str:
    lines = ["p = f32[4] parameter(0)", "r = f32[4] negate(p)"]
    return module([*lines, f"ROOT t = {shapes('f32[4]', n)} tuple({', '.join(['r'] * n)})"])


@family(20_000)
def distinct_results(n: int) -> str:
    lines = ["p = f32[4] parameter(0)"]
    for k in range(n):
        lines += [f"q{k} = f32[4] constant({{{k}, 1, 2, 3}})", f"r{k} = f32[4] add(p, q{k})"]
    return module([*lines, f"ROOT t = {shapes('f32[4]', n)} tuple({names('r', n)})"])


@family(10_000)
def elements_of_one_tuple(n: int) -> str:
    lines = [f"p{k} = f32[4] parameter({k})" for k in range(4)]
    lines += [f"t = {shapes('f32[4]', 4)} tuple({names('p', 4)})"]
    lines += [f"o = {shapes('f32[4]', 4)} opt-barrier(t)"]
    lines += [f"g{k} = f32[4] get-tuple-element(o), index={k % 4}" for k in range(n)]
    return module([*lines, *chain(n - 1, "g0", lambda k, x: f"f32[4] add({x}, g{k + 1})")])


@family(400, base=6, text_growth=4)
def nested_tuples(n: int) -> str:
    inner, lines = "f32[4]", ["p = f32[4] parameter(0)"]
    last = "p"
    for k in range(n):
        inner = f"({inner})"
        lines.append(f"t{k} = {inner} tuple({last})")
        last = f"t{k}"
    for k in range(n):
        inner = inner[1:-1]
        lines.append(f"g{k} = {inner} get-tuple-element({last}), index=0")
        last = f"g{k}"
    return module([*lines, f"ROOT r = f32[4] negate({last})"])


@family(60, base=7)
def dimensions(n: int) -> str:
    dims = ",".join(["1"] * (n - 1) + ["2"]) if n > 1 else "2"
    order = ",".join(str(d) for d in reversed(range(n)))
    turned = ",".join(reversed(dims.split(",")))
    lines = [
        f"p = f32[{dims}] parameter(0)",
        f"t = f32[{turned}] transpose(p), dimensions={{{order}}}",
        f"s = f32[{turned}] sine(t)",
        "z = f32[] constant(0)",
        f"r = f32[] reduce(s, z), dimensions={{{','.join(map(str, range(n)))}}}, to_apply=sum",
        f"b = f32[{turned}] broadcast(r), dimensions={{}}",
        f"ROOT o = f32[{turned}] subtract(s, b)",
    ]
    return module(lines, ADD)


@family(40, base=5)
def window_dimensions(n: int) -> str:
    dims = ",".join(["1"] * (n - 1) + ["8"]) if n > 1 else "8"
    out = ",".join(["1"] * (n - 1) + ["7"]) if n > 1 else "7"
    size = "x".join(["1"] * (n - 1) + ["2"]) if n > 1 else "2"
    lines = [f"p = f32[{dims}] parameter(0)", "z = f32[] constant(0)"]
    root = f"ROOT r = f32[{out}] reduce-window(p, z), window={{size={size}}}, to_apply=sum"
    return module([*lines, root], ADD)


# -- computations ------------------------------------------------------------------------------


def _calls(n: int, body: Callable[[int], list[str]]) -> str:
    first = computation("fun0", ["x = f32[4] parameter(0)", "ROOT r = f32[4] sine(x)"])
    rest = [computation(f"fun{k}", ["x = f32[4] parameter(0)", *body(k)]) for k in range(1, n)]
    entry = ["p = f32[4] parameter(0)", f"ROOT r = f32[4] call(p), to_apply=fun{n - 1}"]
    return module(entry, first, *rest)


@family(2_000, base=16)
def calls_once(n: int) -> str:
    return _calls(
        n,
        lambda k: [f"c = f32[4] call(x), to_apply=fun{k - 1}", "ROOT r = f32[4] negate(c)"],
    )


@family(200, base=5, runs=False)
def calls_twice(n: int) -> str:
    return _calls(
        n,
        lambda k: [
            f"c = f32[4] call(x), to_apply=fun{k - 1}",
            f"d = f32[4] call(c), to_apply=fun{k - 1}",
            "ROOT r = f32[4] add(c, d)",
        ],
    )


@family(60, base=5, runs=False)
def conditionals_twice(n: int) -> str:
    def body(k: int) -> list[str]:
        return [
            "i = s32[] constant(0)",
            "e = f32[1] slice(x), slice={[0:1]}",
            "s = f32[] reshape(e)",
            "z = f32[] constant(0.5)",
            "c = pred[] compare(s, z), direction=GT",
            "y = f32[4] negate(x)",
            f"ROOT r = f32[4] conditional(c, x, y), true_computation=fun{k - 1}, "
            f"false_computation=fun{k - 1}",
        ]

    return _calls(n, body)


@family(500, base=32)
def conditionals_in_a_row(n: int) -> str:
    one = computation("one", ["x = f32[4] parameter(0)", "ROOT r = f32[4] sine(x)"])
    two = computation("two", ["x = f32[4] parameter(0)", "ROOT r = f32[4] negate(x)"])
    form = "true_computation=one, false_computation=two"
    lines = chain(n, "p", lambda k, x: f"f32[4] conditional(c, {x}, {x}), {form}")
    return module(["c = pred[] parameter(0)", "p = f32[4] parameter(1)", *lines], one, two)


@family(1_000, base=10)
def branches(n: int) -> str:
    made = [
        computation(
            f"b{k}",
            ["x = f32[4] parameter(0)", f"c = f32[] constant({k})",
             "d = f32[4] broadcast(c), dimensions={}", "ROOT r = f32[4] add(x, d)"],
        )
        for k in range(n)
    ]  # fmt: skip
    root = (
        f"ROOT r = f32[4] conditional(i, {', '.join(['p'] * n)}), "
        f"branch_computations={{{names('b', n)}}}"
    )
    return module(["i = s32[] parameter(0)", "p = f32[4] parameter(1)", root], *made)


@family(80, base=5, runs=False)
def nested_loops(n: int) -> str:
    state = "(s32[], f32[4])"
    made = []
    for k in range(n):
        made.append(
            computation(
                f"q{k}",
                [f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0",
                 "z = s32[] constant(2)", "ROOT r = pred[] compare(i, z), direction=LT"],
            )
        )  # fmt: skip
        inner = ["y = f32[4] sine(x)"]
        if k:
            inner = [
                "z = s32[] constant(0)",
                f"u = {state} tuple(z, x)",
                f"w = {state} while(u), condition=q{k - 1}, body=b{k - 1}",
                "y = f32[4] get-tuple-element(w), index=1",
            ]
        made.append(
            computation(
                f"b{k}",
                [f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0",
                 "x = f32[4] get-tuple-element(t), index=1", *inner, "o = s32[] constant(1)",
                 "j = s32[] add(i, o)", f"ROOT r = {state} tuple(j, y)"],
            )
        )  # fmt: skip
    entry = ["p = f32[4] parameter(0)", "z = s32[] constant(0)", f"u = {state} tuple(z, p)"]
    root = f"ROOT w = {state} while(u), condition=q{n - 1}, body=b{n - 1}"
    return module([*entry, root], *made)


@family(60, base=5, runs=False)
def loops_of_loops(n: int) -> str:
    """Each body runs the previous one's loop twice: what is shared must stay shared."""
    state = "(s32[], f32[4])"
    test = computation(
        "c",
        [f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0",
         "z = s32[] constant(2)", "ROOT r = pred[] compare(i, z), direction=LT"],
    )  # fmt: skip
    made = [test]
    for k in range(n):
        inner = ["y = f32[4] sine(x)"]
        if k:
            loop = f"condition=c, body=b{k - 1}"
            inner = [
                "z = s32[] constant(0)",
                f"u = {state} tuple(z, x)",
                f"w = {state} while(u), {loop}",
                "g = f32[4] get-tuple-element(w), index=1",
                f"a = {state} tuple(z, g)",
                f"v = {state} while(a), {loop}",
                "y = f32[4] get-tuple-element(v), index=1",
            ]
        made.append(
            computation(
                f"b{k}",
                [f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0",
                 "x = f32[4] get-tuple-element(t), index=1", *inner, "o = s32[] constant(1)",
                 "j = s32[] add(i, o)", f"ROOT r = {state} tuple(j, y)"],
            )
        )  # fmt: skip
    entry = ["p = f32[4] parameter(0)", "z = s32[] constant(0)", f"u = {state} tuple(z, p)"]
    root = f"ROOT w = {state} while(u), condition=c, body=b{n - 1}"
    return module([*entry, root], *made)


@family(2_000, base=12)
def carried_leaves(n: int) -> str:
    state = f"(s32[], {', '.join(['f32[4]'] * n)})"
    gets = [f"x{k} = f32[4] get-tuple-element(t), index={k + 1}" for k in range(n)]
    made = [f"y{k} = f32[4] add(x{k}, x{(k + 1) % n})" for k in range(n)]
    body = computation(
        "body",
        [f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0", *gets, *made,
         "o = s32[] constant(1)", "j = s32[] add(i, o)",
         f"ROOT r = {state} tuple(j, {names('y', n)})"],
    )  # fmt: skip
    test = computation(
        "test",
        [f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0",
         "m = s32[] constant(3)", "ROOT r = pred[] compare(i, m), direction=LT"],
    )  # fmt: skip
    lines = [f"p{k} = f32[4] parameter({k})" for k in range(n)]
    lines += ["z = s32[] constant(0)", f"u = {state} tuple(z, {names('p', n)})"]
    return module([*lines, f"ROOT w = {state} while(u), condition=test, body=body"], test, body)


@family(500, base=8)
def loops_in_a_row(n: int) -> str:
    state = "(s32[], f32[4])"
    test = computation(
        "test",
        [f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0",
         "m = s32[] constant(100)", "ROOT r = pred[] compare(i, m), direction=LT"],
    )  # fmt: skip
    body = computation(
        "body",
        [f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0",
         "x = f32[4] get-tuple-element(t), index=1", "y = f32[4] sine(x)",
         "o = s32[] constant(1)", "j = s32[] add(i, o)", f"ROOT r = {state} tuple(j, y)"],
    )  # fmt: skip
    lines = ["z = s32[] constant(97)", "g0 = f32[4] parameter(0)"]
    for k in range(n):
        lines += [
            f"h{k} = {state} tuple(z, g{k})",
            f"w{k} = {state} while(h{k}), condition=test, body=body",
            f"g{k + 1} = f32[4] get-tuple-element(w{k}), index=1",
        ]
    return module([*lines, f"ROOT r = f32[4] negate(g{n})"], test, body)


@family(500, base=10)
def nested_fusions(n: int) -> str:
    made = [computation("fun0", ["x = f32[4] parameter(0)", "ROOT r = f32[4] sine(x)"])]
    for k in range(1, n):
        call = f"ROOT r = f32[4] fusion(y), kind=kLoop, calls=fun{k - 1}"
        made.append(
            computation(f"fun{k}", ["x = f32[4] parameter(0)", "y = f32[4] negate(x)", call])
        )
    root = f"ROOT r = f32[4] fusion(p), kind=kLoop, calls=fun{n - 1}"
    return module(["p = f32[4] parameter(0)", root], *made)


@family(500, base=10)
def fusions(n: int) -> str:
    made, lines = [], []
    for k in range(n):
        made.append(
            computation(
                f"fun{k}",
                ["x = f32[4] parameter(0)", f"c = f32[] constant({k})",
                 "d = f32[4] broadcast(c), dimensions={}", "ROOT r = f32[4] power(x, d)"],
            )
        )  # fmt: skip
    lines = chain(n, "p", lambda k, x: f"f32[4] fusion({x}), kind=kLoop, calls=fun{k}")
    return module(["p = f32[4] parameter(0)", *lines], *made)


@family(1_000, base=15)
def reducers(n: int) -> str:
    made = [
        computation(
            f"r{k}",
            ["a = f32[] parameter(0)", "b = f32[] parameter(1)", "ROOT c = f32[] add(a, b)"],
        )
        for k in range(n)
    ]
    lines = ["p = f32[4,4] parameter(0)", "z = f32[] constant(0)"]
    for k in range(n):
        lines += [
            f"x{k} = f32[] constant({k})",
            f"y{k} = f32[4,4] broadcast(x{k}), dimensions={{}}",
            f"m{k} = f32[4,4] power(p, y{k})",
            f"h{k} = f32[4] reduce(m{k}, z), dimensions={{0}}, to_apply=r{k}",
        ]
    return module([*lines, f"ROOT t = {shapes('f32[4]', n)} tuple({names('h', n)})"], *made)


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


@family(60, base=10, runs=False)
def known_conditionals_twice(n: int) -> str:
    form = "true_computation=fun{0}, false_computation=fun{0}"

    def body(k: int) -> list[str]:
        return [
            "c = pred[] constant(true)",
            f"y = f32[4] conditional(c, x, x), {form.format(k - 1)}",
            f"ROOT r = f32[4] conditional(c, y, x), {form.format(k - 1)}",
        ]

    return _calls(n, body)


@family(60, base=5, runs=False)
def fusions_twice(n: int) -> str:
    made = [computation("fun0", ["x = f32[4] parameter(0)", "ROOT r = f32[4] sine(x)"])]
    for k in range(1, n):
        lines = [
            "x = f32[4] parameter(0)",
            f"y = f32[4] fusion(x), kind=kLoop, calls=fun{k - 1}",
            f"ROOT r = f32[4] fusion(y), kind=kLoop, calls=fun{k - 1}",
        ]
        made.append(computation(f"fun{k}", lines))
    root = f"ROOT r = f32[4] fusion(p), kind=kLoop, calls=fun{n - 1}"
    return module(["p = f32[4] parameter(0)", root], *made)


@family(60, base=5, runs=False)
def selections_twice(n: int) -> str:
    """What a map applies chooses between two branches that choose in their turn."""
    made = [computation("fun0", ["x = f32[] parameter(0)", "ROOT r = f32[] sine(x)"])]
    for k in range(1, n):
        lines = [
            "x = f32[] parameter(0)",
            f"z = f32[] constant({k})",
            "c = pred[] compare(x, z), direction=LT",
            "y = f32[] negate(x)",
            f"ROOT r = f32[] conditional(c, x, y), true_computation=fun{k - 1}, "
            f"false_computation=fun{k - 1}",
        ]
        made.append(computation(f"fun{k}", lines))
    root = f"ROOT r = f32[16] map(p), dimensions={{0}}, to_apply=fun{n - 1}"
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
