"""Modules of wide instructions: operands, parameters, results, tuples, dimensions."""

from __future__ import annotations

from tests.support.growing.family import family
from tests.support.growing.text import (
    ADD,
    chain,
    computation,
    module,
    names,
    packed,
    reduced,
    shapes,
    taken,
)


@family(5_000)
def concatenated_parameters(n: int) -> str:
    lines = taken("f32[2]", n)
    root = f"ROOT r = f32[{2 * n}] concatenate({names('p', n)}), dimensions={{0}}"
    return module([*lines, root])


@family(5_000, base=17)
def concatenated_values(n: int) -> str:
    lines = [f"p = f32[{n},2] parameter(0)"]
    for k in range(n):
        lines += [
            f"h{k} = f32[1,2] slice(p), slice={{[{n - 1 - k}:{n - k}], [0:2]}}",
            f"v{k} = f32[1,2] sine(h{k})",
        ]
    root = f"ROOT r = f32[{n},2] concatenate({names('v', n)}), dimensions={{0}}"
    return module([*lines, root])


@family(5_000, base=20)
def concatenated_in_a_fusion(n: int) -> str:
    made = [f"v{k} = f32[2] sine(p{k})" for k in range(n)]
    root = f"ROOT r = f32[{2 * n}] concatenate({names('v', n)}), dimensions={{0}}"
    fused = computation("fused", [*taken("f32[2]", n), *made, root])
    call = f"f = f32[{2 * n}] fusion({names('p', n)}), kind=kLoop, calls=fused"
    return module([*taken("f32[2]", n), call, f"ROOT r = f32[{2 * n}] negate(f)"], fused)


@family(1_000)
def concatenated_columns(n: int) -> str:
    lines = [f"p{k} = f32[3,{1 + k % 3}] parameter({k})" for k in range(n)]
    width = sum(1 + k % 3 for k in range(n))
    root = f"ROOT r = f32[3,{width}] concatenate({names('p', n)}), dimensions={{1}}"
    return module([*lines, root])


@family(500, base=6)
def variadic_reduce(n: int) -> str:
    a = taken("f32[]", n, "a")
    b = [f"b{k} = f32[] parameter({n + k})" for k in range(n)]
    c = [f"q{k} = f32[] add(a{k}, b{k})" for k in range(n)]
    root = packed("f32[]", n, "q")
    reducer = computation("fold", [*a, *b, *c, root])
    lines = taken("f32[4,8]", n)
    lines += ["z = f32[] constant(0)"]
    call = f"reduce({names('p', n)}, {', '.join(['z'] * n)}), dimensions={{1}}, to_apply=fold"
    return module([*lines, f"ROOT r = {shapes('f32[4]', n)} {call}"], reducer)


@family(500, base=64)
def wide_sort(n: int) -> str:
    sides = [f"{s}{k} = f32[] parameter({2 * k + (s == 'b')})" for k in range(n) for s in "ab"]
    order = computation("order", [*sides, "ROOT lt = pred[] compare(a0, b0), direction=LT"])
    lines = taken("f32[16]", n)
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


@family(10_000)
def tuple_parameter(n: int) -> str:
    lines = [f"p = {shapes('f32[4]', n)} parameter(0)"]
    lines += [f"g{k} = f32[4] get-tuple-element(p), index={k}" for k in range(n)]
    return module([*lines, *reduced(n, "g", "f32[4] add")])


@family(10_000)
def parameters(n: int) -> str:
    lines = taken("f32[4]", n)
    return module([*lines, *reduced(n, "p", "f32[4] add")])


@family(10_000)
def tuple_of_parameters(n: int) -> str:
    lines = taken("f32[4]", n)
    return module([*lines, packed("f32[4]", n, "p")])


@family(20_000)
def results(n: int) -> str:
    lines = ["p = f32[4] parameter(0)", "r = f32[4] negate(p)"]
    return module([*lines, f"ROOT t = {shapes('f32[4]', n)} tuple({', '.join(['r'] * n)})"])


@family(20_000)
def distinct_results(n: int) -> str:
    lines = ["p = f32[4] parameter(0)"]
    for k in range(n):
        lines += [f"q{k} = f32[4] constant({{{k}, 1, 2, 3}})", f"r{k} = f32[4] add(p, q{k})"]
    return module([*lines, packed("f32[4]", n, "r")])


@family(10_000)
def elements_of_one_tuple(n: int) -> str:
    lines = taken("f32[4]", 4)
    lines += [f"t = {shapes('f32[4]', 4)} tuple({names('p', 4)})"]
    lines += [f"o = {shapes('f32[4]', 4)} opt-barrier(t)"]
    lines += [f"g{k} = f32[4] get-tuple-element(o), index={k % 4}" for k in range(n)]
    return module([*lines, *reduced(n, "g", "f32[4] add")])


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


@family(20_000)
def equal_values(n: int) -> str:
    lines = ["p = f32[4] parameter(0)", *(f"r{k} = f32[4] sine(p)" for k in range(n))]
    return module([*lines, f"ROOT r = f32[{4 * n}] concatenate({names('r', n)}), dimensions={{0}}"])


@family(20_000)
def known_values(n: int) -> str:
    lines = [f"a{k} = f32[] constant({k})" for k in range(n)]
    lines += [f"r{k} = f32[] negate(a{k})" for k in range(n)]
    return module([*lines, packed("f32[]", n, "r")])


@family(20_000)
def simple_values(n: int) -> str:
    lines = [*taken("s32[4]", n), "y = s32[] constant(0)", "z = s32[4] broadcast(y), dimensions={}"]
    lines += [f"r{k} = s32[4] add(p{k}, z)" for k in range(n)]
    return module([*lines, f"ROOT r = s32[{4 * n}] concatenate({names('r', n)}), dimensions={{0}}"])


@family(500, base=8)
def variadic_scatter(n: int) -> str:
    sides = [*taken("f32[]", n, "a"), *taken("f32[]", n, "b", n)]
    sums = [f"q{k} = f32[] add(a{k}, b{k})" for k in range(n)]
    update = computation("update", [*sides, *sums, packed("f32[]", n, "q")])
    form = (
        "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=update"
    )
    lines = [*taken("f32[16]", n), *taken("f32[4]", n, "w", n), f"i = s32[4,1] parameter({2 * n})"]
    call = f"scatter({names('p', n)}, i, {names('w', n)}), {form}"
    return module([*lines, f"ROOT r = {shapes('f32[16]', n)} {call}"], update)


@family(5_000)
def elements_of_huge_tuples(n: int) -> str:
    """Of a tuple in a tuple each, both of which go through several ops."""
    inner = shapes("f32[4]", n)
    lines = [
        f"p = ({inner}, f32[4]) parameter(0)",
        f"o = ({inner}, f32[4]) opt-barrier(p)",
        f"i = {inner} get-tuple-element(o), index=0",
        f"j = {inner} opt-barrier(i)",
        *(f"g{k} = f32[4] get-tuple-element(j), index={n - 1 - k}" for k in range(n)),
        f"t = {inner} tuple({names('g', n)})",
        *(f"h{k} = f32[4] get-tuple-element(t), index={k}" for k in range(n)),
    ]
    return module([*lines, *reduced(n, "h", "f32[4] add")])


@family(1_000)
def tuples_of_tuples(n: int) -> str:
    """As deep as a number has digits."""
    lines, level = [*taken("f32[2]", n)], [(f"p{k}", "f32[2]") for k in range(n)]
    while len(level) > 1:
        made = []
        for k in range(0, len(level), 2):
            pair = level[k : k + 2]
            shape = f"({', '.join(s for _, s in pair)})"
            name = f"t{len(lines)}"
            lines.append(f"{name} = {shape} tuple({', '.join(v for v, _ in pair)})")
            made.append((name, shape))
        level = made
    return module([*lines, f"ROOT r = {level[0][1]} opt-barrier({level[0][0]})"])


@family(2_000)
def parameters_with_layouts(n: int) -> str:
    lines = taken("f32[2,3]{0,1}", n)
    added = reduced(n, "p", "f32[2,3]{0,1} add")
    layouts = ", ".join(["f32[2,3]{0,1}"] * n)
    head = f"m, entry_computation_layout={{({layouts})->f32[2,3]{{0,1}}}}"
    return module([*lines, *added], name=head)


@family(100_000, base=200)
def long_names(n: int) -> str:
    """Names, and what is said of an instruction, of so many letters."""
    name = "x" * n
    said = f'metadata={{op_name="{name}" source_file="{name}"}}, backend_config="{name}"'
    other = f'frontend_attributes={{{name}="{name}"}}'
    lines = [f"{name} = f32[8] parameter(0)", f"y{name} = f32[8] sine({name}), {said}, {other}"]
    return module([*lines, f"ROOT r{name} = f32[8] negate(y{name}), {said}"], name=name)


@family(2_000)
def counted_in_words_twice(n: int) -> str:
    """Integers of 64 bits that stay within 32, each of which the next one reads twice."""
    lines = ["p = s16[64] parameter(0)", "w = s64[64] convert(p)", "c = s64[] constant(1000)"]
    lines += ["b = s64[64] broadcast(c), dimensions={}", "n0 = s64[64] iota(), iota_dimension=0"]
    lines += ["v0 = s64[64] minimum(n0, w)"]
    for k in range(n):
        lines += [
            f"r{k} = s64[64] reverse(v{k}), dimensions={{0}}",
            f"a{k} = s64[64] add(v{k}, r{k})",
            f"v{k + 1} = s64[64] remainder(a{k}, b)",
        ]
    return module([*lines, f"f = f32[64] convert(v{n})", "ROOT r = f32[64] negate(f)"])
