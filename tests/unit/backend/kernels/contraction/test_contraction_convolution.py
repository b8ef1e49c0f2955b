"""Convolutions with every attribute against a loop over the window in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.window import Window, WindowDim
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from tests.support.contraction_harness import Compiled, levels, target_of
from tests.support.covering import covering
from tests.unit.backend.kernels.contraction.test_contraction_dot import check, convert, values


def labels_of(text: str) -> DimLabels:
    inputs, out = text.split("->")
    lhs, rhs = inputs.split("_")

    def part(word: str, a: str, b: str) -> tuple[int, int, tuple[int, ...]]:
        spatial = tuple(word.index(str(d)) for d in range(len(word) - 2))
        return word.index(a), word.index(b), spatial

    return DimLabels(*part(lhs, "b", "f"), *part(rhs, "i", "o"), *part(out, "b", "f"))


def convolution(
    text: str,
    sizes: dict[str, int],
    spatial: tuple[int, ...],
    dims: tuple[WindowDim, ...],
    types: tuple[dt.DType, dt.DType, dt.DType] = (dt.F32, dt.F32, dt.F32),
    groups: tuple[int, int] = (1, 1),
) -> Instruction:
    """sizes: b, f (of lhs), o; the rest follows."""
    n = labels_of(text)
    feature_groups, batch_groups = groups
    shapes = [[0] * (len(spatial) + 2) for _ in range(3)]
    shapes[0][n.lhs_batch], shapes[0][n.lhs_feature] = sizes["b"], sizes["f"]
    shapes[1][n.rhs_input_feature] = sizes["f"] // feature_groups
    shapes[1][n.rhs_output_feature] = sizes["o"]
    shapes[2][n.out_batch], shapes[2][n.out_feature] = sizes["b"] // batch_groups, sizes["o"]
    for d, (size, w) in enumerate(zip(spatial, dims, strict=True)):
        shapes[0][n.lhs_spatial[d]], shapes[1][n.rhs_spatial[d]] = size, w.size
        base = (size - 1) * w.base_dilation + 1 if size else 0
        base += w.pad_low + w.pad_high
        reach = (w.size - 1) * w.window_dilation + 1
        shapes[2][n.out_spatial[d]] = (base - reach) // w.stride + 1 if 0 < reach <= base else 0
    operands = tuple(
        Instruction(name, "parameter", Shape.array(t, s))
        for name, t, s in zip("lr", types, shapes, strict=False)
    )
    attributes = {
        "window": Window(dims), "dim_labels": n,
        "feature_group_count": feature_groups, "batch_group_count": batch_groups,
    }  # fmt: skip
    return Instruction("c", "convolution", Shape.array(types[2], shapes[2]), operands, attributes)


def reference(c: Instruction, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    n, window = c["dim_labels"], c["window"]
    groups, batch_groups = c["feature_group_count"], c["batch_group_count"]
    out = c.shape.dtype
    wide = object if out.is_integral else np.complex128 if out.component is not out else np.float64
    x = np.transpose(convert(lhs, out), (n.lhs_batch, n.lhs_feature, *n.lhs_spatial)).astype(wide)
    k = np.transpose(convert(rhs, out), (n.rhs_output_feature, n.rhs_input_feature, *n.rhs_spatial))
    k = k.astype(wide)
    sizes = [c.shape.dims[d] for d in n.out_spatial]
    images, outputs = x.shape[0] // batch_groups, k.shape[0]
    result = np.zeros((images, outputs, *sizes), wide)
    features = k.shape[1]
    for tap in itertools.product(*(range(w.size) for w in window.dims)):
        for y in itertools.product(*(range(s) for s in sizes)):
            p = []
            for w, t, i, size in zip(window.dims, tap, y, x.shape[2:], strict=True):
                q, rest = divmod(i * w.stride - w.pad_low + t * w.window_dilation, w.base_dilation)
                p.append(q if rest == 0 and 0 <= q < size else -1)
            if min(p, default=0) < 0:
                continue
            pairs = zip(window.dims, tap, strict=True)
            at = tuple(w.size - 1 - t if w.reversed else t for w, t in pairs)
            for o in range(outputs):
                g, h = o // (outputs // groups), o // (outputs // batch_groups)
                a = x[h * images : (h + 1) * images, g * features : (g + 1) * features]
                read, weights = a[(slice(None), slice(None), *p)], k[(o, slice(None), *at)]
                result[(slice(None), o, *y)] += read @ weights
    inverse = [0] * c.shape.rank
    for place, d in enumerate((n.out_batch, n.out_feature, *n.out_spatial)):
        inverse[d] = place
    return np.transpose(result, inverse)


def run(c: Instruction, seed: int = 0, level: str = "host") -> None:
    rng = np.random.default_rng(seed)
    operands = [values(rng, o.shape) for o in c.operands]
    compiled = Compiled(contraction_kernels(c, target_of(level)), level)
    results = []
    for pieces in (1, 3):
        guarded = np.full(c.shape.size_bytes + 128, 0x55, np.uint8)
        inner = guarded[64:-64].view(c.shape.dtype.numpy)
        results.append(compiled(operands, inner.reshape(c.shape.dims), pieces))
        assert (guarded[:64] == 0x55).all()
        assert (guarded[-64:] == 0x55).all()
    assert results[0].tobytes() == results[1].tobytes()
    n = c["dim_labels"]
    k = int(np.prod([c.operands[1].shape.dims[d] for d in (n.rhs_input_feature, *n.rhs_spatial)]))
    check(c, results[0], reference(c, *operands), k)


def shuffled(rng: np.random.Generator, letters: str) -> str:
    return "".join(rng.permutation(list(letters)))


def random_convolution(rng: np.random.Generator, types: tuple[dt.DType, ...]) -> Instruction:
    rank = int(rng.choice([0, 1, 1, 2, 2, 2, 3]))
    digits = "".join(str(d) for d in range(rank))
    lhs, rhs, out = (shuffled(rng, letters + digits) for letters in ("bf", "io", "bf"))
    text = f"{lhs}_{rhs}->{out}"
    dims, spatial = [], []
    for _ in range(rank):
        size = int(rng.integers(1, 4))
        dims.append(
            WindowDim(
                size,
                stride=int(rng.integers(1, 3)),
                pad_low=int(rng.integers(-1, 3)),
                pad_high=int(rng.integers(-1, 3)),
                base_dilation=int(rng.choice([1, 1, 2, 3])),
                window_dilation=int(rng.choice([1, 1, 2])),
                reversed=bool(rng.random() < 0.3),
            )
        )
        spatial.append(int(rng.choice([1, 3, 6, 9, 20] if rank < 3 else [1, 2, 4])))
    groups = [(1, 1), (1, 1), (2, 1), (3, 1), (1, 2)][int(rng.integers(5))]
    feature, batch = groups
    sizes = {
        "b": batch * int(rng.integers(1, 3)),
        "f": feature * int(rng.choice([1, 1, 2, 5, 17])),
        "o": feature * batch * int(rng.choice([1, 2, 3, 18])),
    }
    return convolution(text, sizes, tuple(spatial), tuple(dims), types, groups)  # type: ignore[arg-type]  # three types, two groups


@pytest.mark.parametrize("seed", range(40))
def test_random_f32_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    run(random_convolution(rng, (dt.F32, dt.F32, dt.F32)), seed)


TYPES = [
    (dt.S8, dt.S8, dt.S8), (dt.S8, dt.S8, dt.S32), (dt.S32, dt.S32, dt.S32), (dt.F64,) * 3,
    (dt.BF16,) * 3, (dt.BF16, dt.BF16, dt.F32), (dt.F16,) * 3, (dt.C64,) * 3, (dt.PRED,) * 3,
]  # fmt: skip


@pytest.mark.parametrize("types", TYPES, ids=lambda t: "-".join(x.name for x in t))
def test_random_convolution_of_type(types: tuple[dt.DType, ...]) -> None:
    for seed in range(3):
        run(random_convolution(np.random.default_rng(seed), types), seed)


@pytest.mark.parametrize("level", levels())
def test_random_convolution_on_level(level: str) -> None:
    for seed in range(3):
        run(random_convolution(np.random.default_rng(seed), (dt.F32,) * 3), seed, level)


SAME = WindowDim(3, pad_low=1, pad_high=1)
COMMON = {
    "1x1": ("b01f_01io->b01f", {"b": 1, "f": 33, "o": 40}, (7, 9), (WindowDim(1),) * 2, (1, 1)),
    "3x3": ("b01f_01io->b01f", {"b": 2, "f": 19, "o": 36}, (7, 8), (SAME,) * 2, (1, 1)),
    "3x3-stride": ("b01f_01io->b01f", {"b": 1, "f": 16, "o": 20}, (9, 9),
                   (WindowDim(3, 2, 1, 0),) * 2, (1, 1)),
    "nchw": ("bf01_oi01->bf01", {"b": 2, "f": 5, "o": 17}, (9, 20), (SAME,) * 2, (1, 1)),
    "nchw-wide": ("bf01_oi01->bf01", {"b": 1, "f": 3, "o": 4}, (5, 37), (SAME,) * 2, (1, 1)),
    "patches": ("b01f_01io->b01f", {"b": 2, "f": 3, "o": 24}, (16, 16),
                (WindowDim(8, 8),) * 2, (1, 1)),
    "depthwise": ("b01f_01io->b01f", {"b": 2, "f": 35, "o": 35}, (6, 7), (SAME,) * 2, (35, 1)),
    "depthwise-2": ("b01f_01io->b01f", {"b": 1, "f": 9, "o": 18}, (6, 7), (SAME,) * 2, (9, 1)),
    "depthwise-nchw": ("bf01_oi01->bf01", {"b": 2, "f": 6, "o": 6}, (9, 21), (SAME,) * 2, (6, 1)),
    "weights": ("f01b_i01o->01bf", {"b": 6, "f": 2, "o": 17}, (8, 8),
                (WindowDim(6, pad_low=1, pad_high=1),) * 2, (1, 1)),
}  # fmt: skip


@pytest.mark.parametrize(("name", "type"), covering(COMMON, [dt.F32, dt.BF16], strength=1))
def test_common_convolution(name: str, type: dt.DType) -> None:
    text, sizes, spatial, dims, groups = COMMON[name]
    run(convolution(text, sizes, spatial, dims, (type,) * 3, groups))
