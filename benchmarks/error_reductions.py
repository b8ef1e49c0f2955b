"""Sums over dimensions and windows, and what is made of them: programs for `benchmarks.errors`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from benchmarks.error_cases import Case, Shape, Truth, array, module, zero


def reduce(shape: Shape, dims: Shape, dtype: str = "f32") -> Case:
    """A sum over some dimensions."""
    kept = [n for d, n in enumerate(shape) if d not in dims]
    listed = ",".join(map(str, dims))
    text = module(
        [array(dtype, shape)],
        f"z = {dtype}[] constant({zero(dtype)})",
        f"ROOT r = {array(dtype, kept)} reduce(p0, z), dimensions={{{listed}}}, to_apply=add",
        add=f"{dtype}[]",
    )

    def truth(x: np.ndarray) -> Truth:
        return x.sum(dims), abs(x).sum(dims)

    return Case(f"reduce {array(dtype, shape)} over {listed}", text, (shape,), truth, dtype)


REDUCES: tuple[tuple[Shape, Shape], ...] = (
    ((1000,), (0,)), ((10_000,), (0,)), ((100_000,), (0,)), ((1_000_000,), (0,)),
    ((10_000_000,), (0,)), ((9_999_991,), (0,)), ((3000, 3000), (0, 1)),
    ((1000, 1000), (1,)), ((100, 100_000), (1,)), ((5, 1_000_000), (1,)), ((4, 2_500_000), (1,)),
    ((1000, 1000), (0,)), ((100_000, 100), (0,)), ((1_000_000, 5), (0,)), ((2_500_000, 4), (0,)),
    ((10_000, 1000), (0,)), ((1_000_000, 1), (0,)), ((30, 10_000, 30), (1,)),
    ((3, 100_000, 7), (1,)), ((2, 5000, 1000), (1,)), ((100, 30, 100, 30), (0, 2)),
    ((100, 30, 100, 30), (1, 3)), ((50, 60, 70, 80), (0, 1, 3)), ((300_000, 3), (1,)),
    ((100_000, 3, 30), (0, 2)), ((1000, 3, 1000), (0, 2)), ((60, 250), (1,)), ((250, 60), (0,)),
    ((250, 1000), (0,)), ((64, 1000), (0,)), ((20, 100, 60), (1,)), ((40, 250, 60), (1,)),
    ((64, 200, 16), (1,)), ((30, 30, 250), (0, 1)), ((1000, 20), (1,)), ((20, 1000), (0,)),
)  # fmt: skip


def reductions() -> Iterator[Case]:
    """Sums over rows, columns, middle dimensions and all."""
    for shape, dims in REDUCES:
        yield reduce(shape, dims)
    for dtype in ("f16", "bf16", "f64", "c64"):
        for shape, dims in REDUCES:
            if prod(shape) <= 1_000_000:
                yield reduce(shape, dims, dtype)
    for shape, dims in (((1_000_000,), (0,)), ((300, 3000), (1,)), ((3000, 300), (0,))):
        yield products(shape, dims)


def products(shape: Shape, dims: Shape) -> Case:
    """A dot that is written as a product and its sum."""
    kept = [n for d, n in enumerate(shape) if d not in dims]
    given, listed = array("f32", shape), ",".join(map(str, dims))
    text = module(
        [given, given],
        "z = f32[] constant(0)",
        f"m = {given} multiply(p0, p1)",
        f"ROOT r = {array('f32', kept)} reduce(m, z), dimensions={{{listed}}}, to_apply=add",
        add="f32[]",
    )

    def truth(x: np.ndarray, y: np.ndarray) -> Truth:
        return (x * y).sum(dims), abs(x * y).sum(dims)

    return Case(f"reduce of products {given} over {listed}", text, (shape, shape), truth)


def windows(shape: Shape, window: Shape, stride: Shape = (), dilation: Shape = ()) -> Case:
    """Sums of windows, valid ones."""
    stride, dilation = stride or (1,) * len(shape), dilation or (1,) * len(shape)
    reach = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    left = [(n - r) // s + 1 for n, r, s in zip(shape, reach, stride, strict=True)]
    sizes = [
        f"{name}={'x'.join(map(str, each))}"
        for name, each in (("size", window), ("stride", stride), ("rhs_dilate", dilation))
        if name == "size" or set(each) != {1}
    ]
    attributes = f"window={{{' '.join(sizes)}}}, to_apply=add"
    text = module(
        [array("f32", shape)],
        "z = f32[] constant(0)",
        f"ROOT r = {array('f32', left)} reduce-window(p0, z), {attributes}",
        add="f32[]",
    )

    def truth(x: np.ndarray) -> Truth:
        def summed(x: np.ndarray) -> np.ndarray:
            for d, (w, s, gap) in enumerate(zip(window, stride, dilation, strict=True)):
                x = _window_sums(x, d, w, s, gap)
            return x

        return summed(x), summed(abs(x))

    return Case(f"windows {array('f32', shape)} {' '.join(sizes)}", text, (shape,), truth)


def _window_sums(x: np.ndarray, axis: int, window: int, stride: int, gap: int) -> np.ndarray:
    views = np.lib.stride_tricks.sliding_window_view(x, (window - 1) * gap + 1, axis)
    every = [slice(None)] * x.ndim
    every[axis] = slice(None, None, stride)
    return np.asarray(views[(*every, slice(None, None, gap))].sum(-1))


def window_sums() -> Iterator[Case]:
    """Large windows."""
    yield windows((20_000,), (5000,))
    yield windows((20_000,), (6000,), (7,))
    yield windows((100_000,), (1000,), (1000,))
    yield windows((1_000_000,), (100_000,), (100_000,))
    yield windows((4, 20_000), (1, 3000))
    yield windows((20_000, 4), (3000, 1))
    yield windows((256, 256), (64, 64))
    yield windows((512, 512), (256, 256), (32, 32))
    yield windows((3, 112, 112, 8), (1, 56, 56, 1), (1, 7, 7, 1))
    yield windows((3, 8, 112, 112), (1, 1, 56, 56), (1, 1, 7, 7))
    yield windows((20_000,), (2000,), (1,), (3,))
    yield windows((64, 300, 300), (64, 20, 20), (1, 20, 20))


# What is made of sums


def rows_case(
    name: str, shape: Shape, dims: Shape, lines: str, truth: Callable[..., Truth]
) -> Case:
    """lines: over x, n elements a reduction, X the shape, K what reductions leave, S a reduction's
    attributes."""
    kept = [n for d, n in enumerate(shape) if d not in dims]
    places = [str(d) for d in range(len(shape)) if d not in dims]
    words = {
        "X": array("f32", shape),
        "K": array("f32", kept),
        "S": f"dimensions={{{','.join(map(str, dims))}}}, to_apply=add",
        "M": f"dimensions={{{','.join(map(str, dims))}}}, to_apply=max",
        "B": f"dimensions={{{','.join(places)}}}",
        "N": str(prod(n for d, n in enumerate(shape) if d in dims)),
    }
    text = module([array("f32", shape)], *lines.format(**words).split("; "), add="f32[]")
    largest = "max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }\n"
    text = text.replace("ENTRY", largest + "ENTRY")
    listed = ",".join(map(str, dims))
    return Case(f"{name} {words['X']} over {listed}", text, (shape,), lambda x: truth(x, dims))


CENTRED = (
    "z = f32[] constant(0); s = {K} reduce(p0, z), {S}; n = f32[] constant({N}); "
    "ns = {K} broadcast(n), dimensions={{}}; m = {K} divide(s, ns); "
)
VARIANCE = (
    CENTRED + "mb = {X} broadcast(m), {B}; c = {X} subtract(p0, mb); q = {X} multiply(c, c); "
    "t = {K} reduce(q, z), {S}; v = {K} divide(t, ns); "
)
EXPONENTIALS = (
    "z = f32[] constant(0); low = f32[] constant(-inf); m = {K} reduce(p0, low), {M}; "
    "mb = {X} broadcast(m), {B}; c = {X} subtract(p0, mb); e = {X} exponential(c); "
    "s = {K} reduce(e, z), {S}; "
)


def mean(x: np.ndarray, dims: Shape) -> Truth:
    """Of the magnitudes, too."""
    return x.mean(dims), abs(x).mean(dims)


def variance(x: np.ndarray, dims: Shape) -> Truth:
    """Its terms are positive."""
    return x.var(dims), x.var(dims)


def normalised(x: np.ndarray, dims: Shape) -> Truth:
    """(x - mean) / deviation, as layer norms have it."""
    centre, deviation = x.mean(dims, keepdims=True), np.sqrt(x.var(dims, keepdims=True) + 1e-5)
    return (x - centre) / deviation, (abs(x) + abs(x).mean(dims, keepdims=True)) / deviation


def softmax(x: np.ndarray, dims: Shape) -> Truth:
    """Relative to itself."""
    e = np.exp(x - x.max(dims, keepdims=True))
    made = e / e.sum(dims, keepdims=True)
    return made, made


def log_sum(x: np.ndarray, dims: Shape) -> Truth:
    """The logarithm of the sum of exponentials."""
    made = np.log(np.exp(x).sum(dims))
    return made, abs(made)


MADE_OF_SUMS: dict[str, tuple[str, Callable[..., Truth]]] = {
    "mean": (CENTRED + "ROOT r = {K} copy(m)", mean),
    "variance": (VARIANCE + "ROOT r = {K} copy(v)", variance),
    "layer norm": (
        VARIANCE + "g = f32[] constant(1e-5); gb = {K} broadcast(g), dimensions={{}}; "
        "h = {K} add(v, gb); i = {K} rsqrt(h); ib = {X} broadcast(i), {B}; "
        "ROOT r = {X} multiply(c, ib)",
        normalised,
    ),
    "softmax": (
        EXPONENTIALS + "sb = {X} broadcast(s), {B}; ROOT r = {X} divide(e, sb)",
        softmax,
    ),
    "logsumexp": (EXPONENTIALS + "l = {K} log(s); ROOT r = {K} add(l, m)", log_sum),
}
ROWS: tuple[tuple[Shape, Shape], ...] = (
    ((300, 1000), (1,)), ((20, 50_000), (1,)), ((4, 1_000_000), (1,)), ((1000, 300), (0,)),
    ((50_000, 20), (0,)), ((1_000_000, 4), (0,)), ((1_000_000,), (0,)), ((8, 3000, 24), (1,)),
    ((16, 64, 32, 32), (0, 2, 3)), ((16, 32, 32, 64), (0, 1, 2)),
)  # fmt: skip


def made_of_sums() -> Iterator[Case]:
    """Each over rows, columns, middle dimensions and all."""
    for name, (lines, truth) in MADE_OF_SUMS.items():
        for shape, dims in ROWS:
            yield rows_case(name, shape, dims, lines, truth)
