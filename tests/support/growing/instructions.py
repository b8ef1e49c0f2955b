"""Modules of many instructions."""

from __future__ import annotations

from tests.support.growing.family import family
from tests.support.growing.text import ADD, chain, filled, module, packed, reduced


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
            *filled(k, "f32[64]", f"{k}.5"),
            f"a{k} = f32[64] add(p, b{k})",
            f"r{k} = f32[64] sine(a{k})",
        ]
    return module([*lines, packed("f32[64]", n, "r")])


@family(5_000, base=20)
def users_of_a_scalar(n: int) -> str:
    lines = ["s = f32[] parameter(0)", "h = f32[] sine(s)"]
    lines += ["b = f32[64] broadcast(h), dimensions={}"]
    for k in range(n):
        lines += [f"p{k} = f32[64] parameter({k + 1})", f"r{k} = f32[64] add(p{k}, b)"]
    return module([*lines, packed("f32[64]", n, "r")])


@family(5_000, base=8)
def readers_of_an_array(n: int) -> str:
    lines = ["p = f32[8,64] parameter(0)", "h = f32[8,64] tanh(p)"]
    for k in range(n):
        lines += [
            *filled(k, "f32[8,64]", f"{k}.25"),
            f"m{k} = f32[8,64] multiply(h, b{k})",
            f"z{k} = f32[] constant(0)",
            f"r{k} = f32[8] reduce(m{k}, z{k}), dimensions={{1}}, to_apply=sum",
        ]
    root = packed("f32[8]", n, "r")
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


@family(200, base=6)
def reversed_halves(n: int) -> str:
    """Gates on neighbours of ten bits: the half in which the first one is set has the second one
    turned over, then the bits move on by one.
    """
    bits, half = 10, ",".join(["2"] * 9)
    whole, rows = f"f32[2,{half}]", f"f32[1,{half}]"
    rest = ", ".join(["[0:2]"] * (bits - 1))
    order = ",".join(str((d + 1) % bits) for d in range(bits))
    lines, last = [f"p = {whole} parameter(0)"], "p"
    for k in range(n):
        lines += [
            f"a{k} = {rows} slice({last}), slice={{[0:1], {rest}}}",
            f"b{k} = {rows} slice({last}), slice={{[1:2], {rest}}}",
            f"r{k} = {rows} reverse(b{k}), dimensions={{1}}",
            f"j{k} = {whole} concatenate(a{k}, r{k}), dimensions={{0}}",
            f"t{k} = {whole} transpose(j{k}), dimensions={{{order}}}",
        ]
        last = f"t{k}"
    return module([*lines, f"ROOT r = {whole} copy({last})"])


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
    return module([*lines, *reduced(n, "h", "f32[8] add")])


@family(1_000)
def dot_chain(n: int) -> str:
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines = chain(n, "p", lambda k, x: f"f32[8,8] dot({x}, w), {dims}")
    return module(["p = f32[8,8] parameter(0)", "w = f32[8,8] parameter(1)", *lines])


@family(5_000)
def large_dot_chain(n: int) -> str:
    """Each dot's array is in use until the next one is made."""
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines = chain(n, "p", lambda k, x: f"f32[32,32] dot({x}, w), {dims}")
    return module(["p = f32[32,32] parameter(0)", "w = f32[32,32] parameter(1)", *lines])


@family(5_000, base=20)
def large_kept_dots(n: int) -> str:
    """Each dot's array is in use until its counterpart reads it, the last one's first."""
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines = ["p = f32[32,32] parameter(0)", "w = f32[32,32] parameter(1)"]
    lines.append(f"v0 = f32[32,32] dot(p, w), {dims}")
    lines += [f"v{k} = f32[32,32] dot(v{k - 1}, w), {dims}" for k in range(1, n)]
    lines.append(f"g{n - 1} = f32[32,32] dot(w, v{n - 1}), {dims}")
    lines += [f"g{k} = f32[32,32] dot(g{k + 1}, v{k}), {dims}" for k in reversed(range(n - 1))]
    return module([*lines, "ROOT r = f32[32,32] negate(g0)"])


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
    root = packed("f32[4,8]", n, "g")
    return module([*lines[:2], *made, *lines[2:], root])


@family(20_000)
def constants(n: int) -> str:
    lines = [f"q{k} = f32[3] constant({{{k}, {k}.5, 2}})" for k in range(n)]
    return module([*lines, *reduced(n, "q", "f32[3] maximum")])


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
    return module([*lines, packed("f32[8]", n, "v")])


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


@family(2_000, base=16)
def regions_between_transposes(n: int) -> str:
    lines = ["p = f32[4,8] parameter(0)", "t = f32[8,4] transpose(p), dimensions={1,0}"]
    lines += ["b = f32[4,8] exponential(p)"]
    for k in range(n):
        before = f"y{k - 1}" if k else "b"
        lines += [
            f"w{k} = f32[4,8] sine({before})",
            f"t{k} = f32[8,4] transpose(w{k}), dimensions={{1,0}}",
            f"m{k} = f32[8,4] multiply(t{k}, t)",
            f"v{k} = f32[8,4] cosine(m{k})",
            f"y{k} = f32[4,8] transpose(v{k}), dimensions={{1,0}}",
        ]
    return module(lines)
