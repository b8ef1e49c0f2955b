"""Products of matrices and others, convolutions: programs for `benchmarks.errors`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.error_cases import Case, Shape, Truth, array, module


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
