"""Programs that sum, each with its exact results: what `benchmarks.errors` measures.

    Case: HLO text, shapes of the arguments, wide arguments -> (exact results, magnitudes)

Magnitudes are what errors are counted against, times eps: sums of abs(a * b) for sums of a * b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import ml_dtypes
import numpy as np

TYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "c64": np.complex64, "c128": np.complex128,
}  # fmt: skip
WIDE = {"f64": np.longdouble, "c64": np.complex128, "c128": np.clongdouble}
Truth = tuple[np.ndarray, np.ndarray]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """dtype: of the arguments; out: of the results."""

    name: str
    text: str
    shapes: tuple[Shape, ...]
    truth: Callable[..., Truth]
    dtype: str = "f32"
    out: str = ""

    @property
    def eps(self) -> float:
        return float(ml_dtypes.finfo(TYPES[self.out or self.dtype]).eps)

    def arguments(self, kind: str) -> list[np.ndarray]:
        """kind: "mixed" signs, or "positive", where errors add up most."""
        rng = np.random.default_rng(len(self.text))

        def part(shape: Shape) -> np.ndarray:
            return rng.random(shape) if kind == "positive" else rng.standard_normal(shape)

        complex_ = self.dtype[0] == "c"
        made = (part(s) + 1j * part(s) if complex_ else part(s) for s in self.shapes)
        return [np.asarray(a).astype(TYPES[self.dtype]) for a in made]

    def exact(self, arguments: Sequence[np.ndarray]) -> Truth:
        """The results in more digits, and what errors are counted against."""
        wide = WIDE.get(self.dtype, np.float64)
        return self.truth(*(a.astype(wide) for a in arguments))


def array(dtype: str, shape: Sequence[int]) -> str:
    """A shape in HLO's spelling."""
    return f"{dtype}[{','.join(map(str, shape))}]"


def module(parameters: Sequence[str], *lines: str, add: str = "") -> str:
    """A module of these lines over p0, p1, ..; add: the type of its computation `add`."""
    heads = [f"p{n} = {p} parameter({n})" for n, p in enumerate(parameters)]
    reducer = f"add {{ a = {add} parameter(0) b = {add} parameter(1) ROOT r = {add} add(a, b) }}\n"
    body = "\n  ".join([*heads, *lines])
    return f"HloModule m\n{reducer if add else ''}ENTRY e {{\n  {body}\n}}\n"


# Contractions


def dot(spec: str, sizes: dict[str, int], dtype: str = "f32", out: str = "") -> Case:
    """spec: as einsum's, results in HLO's order: batch, rows, columns."""
    out = out or dtype
    factors, result = spec.split("->")
    lhs, rhs = factors.split(",")
    batch = [c for c in lhs if c in rhs and c in result]
    depth = [c for c in lhs if c in rhs and c not in result]
    shapes = tuple(tuple(sizes[c] for c in side) for side in (lhs, rhs))
    attributes = ", ".join(
        f"{side}_{what}_dims={{{','.join(str(names.index(c)) for c in letters)}}}"
        for what, letters in (("batch", batch), ("contracting", depth))
        if letters
        for side, names in (("lhs", lhs), ("rhs", rhs))
    )
    made = array(out, [sizes[c] for c in result])
    text = module([array(dtype, s) for s in shapes], f"ROOT r = {made} dot(p0, p1), {attributes}")

    def truth(a: np.ndarray, b: np.ndarray) -> Truth:
        slow = a.dtype in (np.longdouble, np.clongdouble)
        exact, magnitudes = (
            np.einsum(spec, x, y, optimize=not slow) for x, y in ((a, b), (abs(a), abs(b)))
        )
        return exact, magnitudes

    label = " ".join(f"{c}{n}" for c, n in sizes.items())
    types = dtype if out == dtype else f"{dtype}->{out}"
    return Case(f"dot {types} {spec} {label}", text, shapes, truth, dtype, out)


FORMS = {"nn": "mk,kn->mn", "nt": "mk,nk->mn", "tn": "km,kn->mn", "tt": "km,nk->mn"}
DEPTHS = (100, 1000, 6000, 100_000, 1_000_000)
LARGEST = 24_000_000  # elements of a factor
MOST_PRODUCTS = 2_000_000_000


def dots() -> Iterator[Case]:
    """Products of two matrices: all types, forms and depths."""
    types = [("f32", "f32"), ("bf16", "f32"), ("f16", "f32"), ("f16", "f16"), ("bf16", "bf16")]
    types += [("f64", "f64"), ("c64", "c64"), ("c128", "c128")]
    sizes = [(1, 1), (1, 300), (4, 4), (4, 64), (64, 4), (64, 64), (300, 1), (300, 300)]
    for (dtype, out), (m, n), k in ((t, s, k) for t in types for s in sizes for k in DEPTHS):
        most = MOST_PRODUCTS if dtype == "f32" else MOST_PRODUCTS // 16
        if dtype in ("f64", "c128"):  # the exact results take long
            most //= 10
        if max(m, n) * k > LARGEST or m * n * k > most:
            continue
        for number, (form, spec) in enumerate(FORMS.items()):
            # of the narrower and wider types one form for each size, turn by turn
            if dtype == "f32" or number == (m + n + k // 100) % 4 or form == "nt":
                yield dot(spec, {"m": m, "n": n, "k": k}, dtype, out)


def general_dots() -> Iterator[Case]:
    """Batches, several contracting dimensions, vectors."""
    for dtype, out in (("f32", "f32"), ("bf16", "f32"), ("c64", "c64")):
        for b, m, n, k in ((3, 64, 64, 6000), (16, 1, 64, 2000), (8, 5, 7, 100_000)):
            for spec in ("bmk,bkn->bmn", "bmk,bnk->bmn", "bkm,bkn->bmn", "mbk,kbn->bmn"):
                yield dot(spec, {"b": b, "m": m, "n": n, "k": k}, dtype, out)
        yield dot("mjk,kjn->mn", {"m": 40, "n": 30, "j": 70, "k": 90}, dtype, out)
        yield dot("jmk,jkn->mn", {"m": 64, "n": 64, "j": 300, "k": 33}, dtype, out)
        yield dot("mijk,kijn->mn", {"m": 9, "n": 50, "i": 20, "j": 30, "k": 40}, dtype, out)
        yield dot("jk,kj->", {"j": 1000, "k": 700}, dtype, out)
        yield dot("bk,bk->b", {"b": 40, "k": 20_000}, dtype, out)
        yield dot("kb,kb->b", {"b": 40, "k": 20_000}, dtype, out)
        yield dot("mk,k->m", {"m": 30, "k": 60_000}, dtype, out)
        yield dot("k,kn->n", {"n": 30, "k": 60_000}, dtype, out)
        yield dot("k,kn->n", {"n": 3000, "k": 6000}, dtype, out)
    yield dot("mk,nk->mn", {"m": 300, "n": 7, "k": 2049}, "c64")
    yield dot("mk,nk->mn", {"m": 300, "n": 300, "k": 2049}, "c64")


def convolution(
    size: Shape, features: int, made: int, window: Shape, groups: int = 1, stride: int = 1
) -> Case:
    """A valid convolution of one image."""
    letters = "012"[: len(size)]
    left = [(s - w) // stride + 1 for s, w in zip(size, window, strict=True)]
    given = (1, *size, features)
    kernel = (*window, features // groups, made)
    result = array("f32", (1, *left, made))
    attributes = f"window={{size={'x'.join(map(str, window))}"
    attributes += f" stride={'x'.join(str(stride) for _ in size)}}}" if stride > 1 else "}"
    attributes += f", dim_labels=b{letters}f_{letters}io->b{letters}f"
    attributes += f", feature_group_count={groups}" if groups > 1 else ""
    text = module(
        [array("f32", given), array("f32", kernel)],
        f"ROOT r = {result} convolution(p0, p1), {attributes}",
    )

    def truth(x: np.ndarray, w: np.ndarray) -> Truth:
        def summed(x: np.ndarray, w: np.ndarray) -> np.ndarray:
            axes = tuple(range(1, 1 + len(size)))
            views = np.lib.stride_tricks.sliding_window_view(x, window, axes)  # [1, .., f, window]
            views = views[(slice(None), *(slice(None, None, stride) for _ in size))]
            if groups == 1:
                depth = [*range(2 + len(size), 2 + 2 * len(size)), 1 + len(size)]
                return np.tensordot(views, w, (depth, list(range(len(size) + 1))))
            return np.einsum("...fw,wf->...f", _flat(views, len(size)), w.reshape(-1, made))

        return summed(x, w), summed(abs(x), abs(w))

    shown = "x".join(map(str, size)), "x".join(map(str, window))
    name = f"convolution {shown[0]}x{features} by {shown[1]} to {made}"
    name += f" groups {groups}" * (groups > 1) + f" stride {stride}" * (stride > 1)
    return Case(name, text, (given, kernel), truth)


def _flat(views: np.ndarray, dims: int) -> np.ndarray:
    """The windows' dimensions as one."""
    return views.reshape(*views.shape[:-dims], -1)


def convolutions() -> Iterator[Case]:
    """Large windows, many features, groups."""
    yield convolution((2700,), 16, 16, (2500,), groups=16)
    yield convolution((700,), 24, 24, (500,))
    yield convolution((6000,), 1, 1, (5000,))
    yield convolution((6000,), 1, 8, (3000,))
    yield convolution((90,), 300, 300, (3,))
    yield convolution((16, 16), 512, 64, (3, 3))
    yield convolution((14, 14), 256, 128, (7, 7))
    yield convolution((40, 40), 64, 8, (31, 31))
    yield convolution((56, 56), 12, 12, (51, 51), groups=12)
    yield convolution((7, 7), 1024, 100, (7, 7))
    yield convolution((40, 40), 128, 64, (5, 5), stride=2)
    yield convolution((9, 10, 11), 96, 48, (5, 5, 5))


# Folds


def reduce(shape: Shape, dims: Shape, dtype: str = "f32") -> Case:
    """A sum over some dimensions."""
    kept = [n for d, n in enumerate(shape) if d not in dims]
    listed = ",".join(map(str, dims))
    text = module(
        [array(dtype, shape)],
        f"z = {dtype}[] constant({_zero(dtype)})",
        f"ROOT r = {array(dtype, kept)} reduce(p0, z), dimensions={{{listed}}}, to_apply=add",
        add=f"{dtype}[]",
    )

    def truth(x: np.ndarray) -> Truth:
        return x.sum(dims), abs(x).sum(dims)

    return Case(f"reduce {array(dtype, shape)} over {listed}", text, (shape,), truth, dtype)


def _zero(dtype: str) -> str:
    return "(0, 0)" if dtype[0] == "c" else "0"


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


def folds() -> Iterator[Case]:
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


def running(shape: Shape, dim: int, dtype: str = "f32", *, reverse: bool = False) -> Case:
    """Running sums as jnp.cumsum writes them."""
    length, ones = shape[dim], ["1"] * len(shape)
    sizes, pads = [*ones], ["0_0"] * len(shape)
    sizes[dim] = str(length)
    pads[dim] = f"0_{length - 1}" if reverse else f"{length - 1}_0"
    text = module(
        [array(dtype, shape)],
        f"z = {dtype}[] constant({_zero(dtype)})",
        f"ROOT r = {array(dtype, shape)} reduce-window(p0, z), "
        f"window={{size={'x'.join(sizes)} pad={'x'.join(pads)}}}, to_apply=add",
        add=f"{dtype}[]",
    )

    def truth(x: np.ndarray) -> Truth:
        return _running(x, dim, reverse=reverse), _running(abs(x), dim, reverse=reverse)

    name = f"running {array(dtype, shape)} along {dim}" + " backwards" * reverse
    return Case(name, text, (shape,), truth, dtype)


def _running(x: np.ndarray, dim: int, *, reverse: bool = False) -> np.ndarray:
    """In blocks of 1000: exact enough for long doubles too."""
    x = np.moveaxis(x, dim, -1)
    x = x[..., ::-1] if reverse else x
    padded = np.concatenate([x, np.zeros((*x.shape[:-1], -x.shape[-1] % 1000), x.dtype)], -1)
    inside = np.cumsum(padded.reshape(*x.shape[:-1], -1, 1000), -1)
    before = np.cumsum(inside[..., -1], -1) - inside[..., -1]
    sums = (inside + before[..., None]).reshape(padded.shape)[..., : x.shape[-1]]
    return np.moveaxis(sums[..., ::-1] if reverse else sums, -1, dim)


def scanned(shape: Shape) -> Case:
    """Running sums along the first dimension as lax.associative_scan writes them."""
    lines: list[str] = []
    inner = shape[1:]

    def line(length: int, of: str) -> str:
        lines.append(f"v{len(lines)} = {array('f32', (length, *inner))} {of}")
        return f"v{len(lines) - 1}"

    def part(x: str, first: int, end: int, step: int) -> str:
        rest = "".join(f", [0:{n}]" for n in inner)
        length = -(-(end - first) // step)
        return line(length, f"slice({x}), slice={{[{first}:{end}:{step}]{rest}}}")

    def spread(x: str, length: int, low: int, high: int) -> str:
        zeros = "".join("x0_0_0" for _ in inner)
        return line(length, f"pad({x}, z), padding={low}_{high}_1{zeros}")

    def scan(x: str, n: int) -> str:
        if n < 2:
            return x
        pairs = line(n // 2, f"add({part(x, 0, n - 1, 2)}, {part(x, 1, n, 2)})")
        odd = scan(pairs, n // 2)
        even = part(x, 0, 1, 1)
        if n > 2:
            rest = (n - 1) // 2
            first = odd if rest == n // 2 else part(odd, 0, rest, 1)
            later = line(rest, f"add({first}, {part(x, 2, n, 2)})")
            even = line(rest + 1, f"concatenate({even}, {later}), dimensions={{0}}")
        high = n % 2
        return line(n, f"add({spread(even, n, 0, 1 - high)}, {spread(odd, n, 1, high)})")

    last = scan("p0", shape[0])
    text = module(
        [array("f32", shape)],
        "z = f32[] constant(0)",
        *lines,
        f"ROOT r = {array('f32', shape)} copy({last})",
    )

    def truth(x: np.ndarray) -> Truth:
        return _running(x, 0), _running(abs(x), 0)

    return Case(f"associative scan {array('f32', shape)}", text, (shape,), truth)


def running_sums() -> Iterator[Case]:
    """Running sums in both forms."""
    for length in (1000, 5000, 100_000, 1_000_000):
        yield running((length,), 0)
        yield running((length,), 0, reverse=True)
    for shape, dim in (
        ((3, 30_000), 1), ((30_000, 5), 0), ((100_000, 8), 0), ((1_000_000, 4), 0),
        ((4, 1_000_000), 1), ((3000, 300), 0), ((300, 3000), 1), ((4, 5000, 40), 1),
        ((2, 100_000, 3), 1),
    ):  # fmt: skip
        yield running(shape, dim)
    for dtype in ("f16", "bf16", "f64", "c64"):
        for shape, dim in (((1000,), 0), ((5000, 8), 0), ((8, 5000), 1), ((100_000,), 0)):
            yield running(shape, dim, dtype)
    for shape in ((1000,), (100_000,), (5000, 8)):
        yield scanned(shape)


# What is made of sums


def rows_case(
    name: str, shape: Shape, dims: Shape, lines: str, truth: Callable[..., Truth]
) -> Case:
    """lines: over x, n elements a fold, X the shape, K what folds leave, S a fold's attributes."""
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


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "dots": dots,
    "general": general_dots,
    "convolutions": convolutions,
    "folds": folds,
    "windows": window_sums,
    "running": running_sums,
    "made": made_of_sums,
}
