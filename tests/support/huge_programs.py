"""Programs of huge geometry: sizes, windows, paddings, ranks that no machine can work through.

    programs() -> name, text, whether every array of it is small

Each op that can make something huge out of something small, at several sizes, its value used in
several ways. A tool answers each with a result or an error, soon.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from msgspec import Struct

COMPUTATIONS = """
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
odd { a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = f32[] multiply(a, b)
 ROOT r = f32[] subtract(a, c) }
pair { a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = f32[] parameter(2)
 d = f32[] parameter(3)
 s = f32[] add(a, c)
 m = f32[] maximum(b, d)
 ROOT r = (f32[], f32[]) tuple(s, m) }
less { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = pred[] compare(a, b), direction=LT }
greater { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = pred[] compare(a, b), direction=GE }
"""
HUGE = (2**31 + 1, 2**38, 2**45 + 3, 2**59)
EXTREMES = (2**31, 2**40, 2**62, 2**63 - 1)


class HugeProgram(Struct, frozen=True):
    """small: every array is; only windows, paddings, dilations or ranks are not."""

    name: str
    text: str
    small: bool


def _module(body: str, computations: str = "") -> str:
    rows = "\n ".join(body.strip().splitlines())
    return f"HloModule huge\n{COMPUTATIONS}{computations}\nENTRY e {{\n {rows}\n}}\n"


# The value x of n elements that no operand has. {n}: the size, {m}: n - 1, {h}: n // 2.
MAKERS = {
    "broadcast": "x = f32[{n}] broadcast(z), dimensions={{}}",
    "broadcast-dim": "x2 = f32[{n},8] broadcast(p), dimensions={{1}}\nx = f32[{n}] slice(x2), slice={{[0:{n}], [3:4]}}",  # noqa: E501
    "iota": "x = f32[{n}] iota(), iota_dimension=0",
    "pad": "x = f32[{n}] pad(p, z), padding=0_{m8}",
    "pad-interior": "i2 = f32[2] slice(p), slice={{[0:2]}}\nx = f32[{n}] pad(i2, z), padding=0_0_{m2}",  # noqa: E501
    "rng": "o = f32[] constant(1)\nx = f32[{n}] rng(z, o), distribution=rng_uniform",
    "rng-bits": "s = u64[2] constant({{1, 2}})\ng = (u64[2], u32[{n}]) rng-bit-generator(s), algorithm=rng_threefry\ny = u32[{n}] get-tuple-element(g), index=1\nx = f32[{n}] convert(y)",  # noqa: E501
    "reduce-window-pad": "x = f32[{n}] reduce-window(p, z), window={{size=8 pad={h}_{r}}}, to_apply=add",  # noqa: E501
    "concatenate": "b = f32[{h}] broadcast(z), dimensions={{}}\nc = f32[{g}] broadcast(z), dimensions={{}}\nx = f32[{n}] concatenate(b, c), dimensions={{0}}",  # noqa: E501
    "gather": "i = s32[{n},1] broadcast(k), dimensions={{}}\nx = f32[{n}] gather(p, i), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1}}",  # noqa: E501
    "scatter": "b = f32[{n}] broadcast(z), dimensions={{}}\ni = s32[8,1] iota(), iota_dimension=0\nx = f32[{n}] scatter(b, i, p), update_window_dims={{}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add",  # noqa: E501
    "update": "b = f32[{n}] iota(), iota_dimension=0\nx = f32[{n}] dynamic-update-slice(b, p, k)",
    "outer": "a2 = f32[{n}] broadcast(z), dimensions={{}}\nd = f32[{n},8] dot(a2, p), lhs_contracting_dims={{}}, rhs_contracting_dims={{}}\nx = f32[{n}] reduce(d, z), dimensions={{1}}, to_apply=add",  # noqa: E501
    "convolution": "a3 = f32[1,1,8] reshape(p)\nc3 = f32[1,1,{n}] convolution(a3, a3), window={{size=8 pad={h}_{r}}}, dim_labels=bf0_oi0->bf0\nx = f32[{n}] reshape(c3)",  # noqa: E501
    "select-and-scatter": "b = f32[{n}] broadcast(z), dimensions={{}}\nx = f32[{n}] select-and-scatter(b, b, z), window={{size=1}}, select=greater, scatter=add",  # noqa: E501
}

# What becomes of it: the root.
USES = {
    "result": "ROOT r = f32[{n}] negate(x)",
    "tuple": "ROOT r = (f32[{n}], f32[8]) tuple(x, p)",
    "sum": "ROOT r = f32[] reduce(x, z), dimensions={{0}}, to_apply=add",
    "odd fold": "ROOT r = f32[] reduce(x, z), dimensions={{0}}, to_apply=odd",
    "slice": "ROOT r = f32[2] slice(x), slice={{[7:9]}}",
    "sort": "s0 = f32[{n}] sort(x), dimensions={{0}}, to_apply=less\nROOT r = f32[1] slice(s0), slice={{[0:1]}}",  # noqa: E501
    "cumulative": "s0 = f32[{n}] reduce-window(x, z), window={{size={n} pad={m}_0}}, to_apply=add\nROOT r = f32[1] slice(s0), slice={{[0:1]}}",  # noqa: E501
    "reverse": "v = f32[{n}] reverse(x), dimensions={{0}}\nROOT r = f32[1] dynamic-slice(v, k), dynamic_slice_sizes={{1}}",  # noqa: E501
    "dot": "ROOT r = f32[] dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}",
    "fft": "c0 = c64[{n}] convert(x)\nf = c64[{n}] fft(c0), fft_type=FFT, fft_length={{{n}}}\nROOT r = c64[1] slice(f), slice={{[0:1]}}",  # noqa: E501
    "call": "c0 = f32[{n}] call(x), to_apply=other\nROOT r = f32[1] slice(c0), slice={{[0:1]}}",
    "map": "ROOT r = f32[{n}] map(x, x), dimensions={{0}}, to_apply=odd",
    "while": "t = (s32[], f32[{n}]) tuple(k, x)\nw = (s32[], f32[{n}]) while(t), condition=go, body=step\ny9 = f32[{n}] get-tuple-element(w), index=1\nROOT r = f32[1] slice(y9), slice={{[0:1]}}",  # noqa: E501
    "topk": "t = (f32[2], s32[2]) topk(x), k=2, largest=true\nROOT r = f32[2] get-tuple-element(t), index=0",  # noqa: E501
}
CALLED = """
other {{ a = f32[{n}] parameter(0)
 ROOT r = f32[{n}] exponential(a) }}
go {{ t = (s32[], f32[{n}]) parameter(0)
 k = s32[] get-tuple-element(t), index=0
 l = s32[] constant(3)
 ROOT r = pred[] compare(k, l), direction=LT }}
step {{ t = (s32[], f32[{n}]) parameter(0)
 k = s32[] get-tuple-element(t), index=0
 o = s32[] constant(1)
 k2 = s32[] add(k, o)
 x = f32[{n}] get-tuple-element(t), index=1
 y = f32[{n}] tanh(x)
 ROOT r = (s32[], f32[{n}]) tuple(k2, y) }}
"""


def _large(maker: str, use: str, n: int) -> HugeProgram:
    numbers = {
        "n": n, "m": n - 1, "m2": n - 2, "m8": n - 8, "h": n // 2, "g": n - n // 2,
        "r": n - 1 - n // 2,
    }  # fmt: skip
    rows = ("p = f32[8] parameter(0)\nk = s32[] parameter(1)\nz = f32[] constant(0)\n"
            f"{MAKERS[maker]}\n{USES[use]}")  # fmt: skip
    called = CALLED if use in ("call", "while") else ""
    text = _module(rows.format(**numbers), called.format(**numbers))
    return HugeProgram(f"{maker} of {n}, {use}", text, small=False)


def large_programs() -> Iterator[HugeProgram]:
    """Values of many elements: every maker with every use, the sizes taken in turn."""
    sizes = itertools.cycle(HUGE)
    for maker, use in itertools.product(MAKERS, USES):
        yield _large(maker, use, next(sizes))


def window_programs() -> Iterator[HugeProgram]:
    """Small arrays, and windows that are not: everything that slides one."""
    for n in EXTREMES:
        low, high = n // 2, n - n // 2 - 1
        fields = {
            "whole": f"size={n} pad={low}_{high}",
            "long": f"size={n} pad={n - 8}_0 stride={n}",
            "window dilation": f"size=2 pad={n // 2 + 1}_0 rhs_dilate={n // 2}",
            "wide dilation": f"size=3 pad={low}_{low} rhs_dilate={n // 4}",
            "base dilation": f"size=2 lhs_dilate={max(1, n // 16)} stride={max(1, n // 16)}",
            "stride": f"size=2 stride={n}",
            "crop": f"size=1 pad=-{n // 2}_{n // 2}",
        }
        for kind, window in fields.items():
            for reducer in ("add", "odd"):
                yield _window_program(f"reduce-window {reducer}, {kind} {n}", window, reducer)
            yield _convolution(f"convolution, {kind} {n}", window)
        pads = {"edges": f"-{n}_{n}", "interior": f"0_-{min(7 * n, 2**63 - 1)}_{n}"}
        for kind, padding in pads.items():
            size = 8 if kind == "edges" else 8 + 7 * n - min(7 * n, 2**63 - 1)
            body = (f"p = f32[8] parameter(0)\nz = f32[] constant(0)\n"
                    f"ROOT r = f32[{size}] pad(p, z), padding={padding}")  # fmt: skip
            yield HugeProgram(f"pad, {kind} {n}", _module(body), small=size < 100)


def _sizes_of(window: str) -> tuple[int, int]:
    """The padded length of eight elements under a window, and how many windows there are."""
    fields = dict(field.split("=") for field in window.split())
    low, high = (int(v) for v in fields.get("pad", "0_0").replace("_", " ").split())
    padded = 7 * int(fields.get("lhs_dilate", 1)) + 1 + low + high
    reach = (int(fields["size"]) - 1) * int(fields.get("rhs_dilate", 1)) + 1
    count = 0 if reach > padded else (padded - reach) // int(fields.get("stride", 1)) + 1
    return padded, max(0, count)


def _window_program(name: str, window: str, reducer: str) -> HugeProgram:
    _, count = _sizes_of(window)
    body = f"""p = f32[8] parameter(0)
z = f32[] constant(1)
ROOT r = f32[{count}] reduce-window(p, z), window={{{window}}}, to_apply={reducer}"""
    return HugeProgram(name, _module(body), small=count < 100)


def _convolution(name: str, window: str) -> HugeProgram:
    """The kernel is as long as the window, so it is huge where that is."""
    size = int(window.split()[0].removeprefix("size="))
    _, count = _sizes_of(window)
    body = f"""p = f32[1,1,8] parameter(0)
z = f32[] constant(1)
w = f32[1,1,{size}] broadcast(z), dimensions={{}}
ROOT r = f32[1,1,{count}] convolution(p, w), window={{{window}}}, dim_labels=bf0_oi0->bf0"""
    return HugeProgram(name, _module(body), small=max(count, size) < 100)


def rank_programs() -> Iterator[HugeProgram]:
    """More dimensions than NumPy has, inside and outside."""
    for rank in (63, 64, 65, 70, 300):
        wide = f"f32[{','.join(['1'] * (rank - 1) + ['8'])}]"
        last = ",".join(map(str, range(rank)))
        zeros = "[0:1], " * (rank - 1)
        bodies = {
            "parameter": f"p = {wide} parameter(0)\nROOT r = f32[8] reshape(p)",
            "result": f"p = f32[8] parameter(0)\nROOT r = {wide} reshape(p)",
            "in a tuple": f"p = f32[8] parameter(0)\nw = {wide} reshape(p)\nROOT r = (f32[8], {wide}) tuple(p, w)",  # noqa: E501
            "inside": f"p = f32[8] parameter(0)\nw = {wide} reshape(p)\nn = {wide} negate(w)\nROOT r = f32[8] reshape(n)",  # noqa: E501
            "broadcast inside": f"p = f32[8] parameter(0)\nw = {wide} broadcast(p), dimensions={{{rank - 1}}}\ne = {wide} exponential(w)\nROOT r = f32[8] reshape(e)",  # noqa: E501
            "transposed": f"p = f32[8] parameter(0)\nw = {wide} reshape(p)\nt = {wide} transpose(w), dimensions={{{last}}}\nv = {wide} slice(t), slice={{{zeros}[0:8]}}\nROOT r = f32[8] reshape(v)",  # noqa: E501
            "constant": f"c = f32[] constant(2)\nw = {wide} broadcast(c), dimensions={{}}\nROOT r = f32[8] reshape(w)",  # noqa: E501
            "elided constant": f"w = {wide} constant({{...}})\nROOT r = f32[8] reshape(w)",
        }
        for kind, body in bodies.items():
            yield HugeProgram(f"rank {rank}, {kind}", _module(body), small=True)


def operand_programs() -> Iterator[HugeProgram]:
    """Parameters and elided constants that no machine holds."""
    for n in (*HUGE, 2**61, 2**63, 10**25):
        yield HugeProgram(
            f"parameter of {n}",
            _module(f"p = f32[{n}] parameter(0)\nROOT r = f32[1] slice(p), slice={{[0:1]}}"),
            small=False,
        )
        yield HugeProgram(
            f"elided constant of {n}",
            _module(f"p = u8[{n}] constant({{...}})\nROOT r = u8[1] slice(p), slice={{[0:1]}}"),
            small=False,
        )
    for dims in ("65536,65536,65536", "4294967296,4294967296", "0,9223372036854775807", "1000,0"):
        body = f"z = f32[] constant(1)\nROOT r = f32[{dims}] broadcast(z), dimensions={{}}"
        yield HugeProgram(f"broadcast to {dims}", _module(body), small=False)


def programs() -> list[HugeProgram]:
    """All of them."""
    return [
        *large_programs(), *window_programs(), *rank_programs(), *operand_programs(),
    ]  # fmt: skip
