"""NaN and infinities in bases and kernels: they reach those results that the interpreter says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import hlo

LABELS = {
    1: ("b0f_0io->b0f", "bf0_oi0->bf0", "f0b_i0o->fb0", "b0f_0oi->b0f"),
    2: ("b01f_01io->b01f", "bf01_oi01->bf01", "b01f_01oi->bf01", "fb01_io01->01bf"),
}
KINDS = ("plain", "groups", "depthwise", "batch groups")
DTYPES = ("f32", "f32", "f32", "f64", "bf16", "c64")
NUMBERS = (np.inf, -np.inf, np.nan)


class Drawn:
    """A convolution of random sizes, window and layout; what its kind asks for is in it."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rng, self.kind, self.dtype = rng, KINDS[seed % 4], DTYPES[seed % len(DTYPES)]
        rank = 1 + seed // 4 % 2
        groups = int(rng.integers(2, 4)) if self.kind in ("groups", "batch groups") else 1
        inputs, per_group = (int(v) for v in rng.choice([1, 2, 3, 4, 9, 17], 2))
        if self.kind == "depthwise":
            groups, inputs, per_group = int(rng.choice([3, 8, 19])), 1, int(rng.choice([1, 1, 2]))
        outputs, batch = per_group * groups, int(rng.integers(1, 4))
        features = inputs if self.kind == "batch groups" else inputs * groups
        batch *= groups if self.kind == "batch groups" else 1
        base, window = rng.integers(1, 9, rank), rng.integers(1, 5, rank)
        stride, holes, spread = (np.where(rng.random(rank) < 0.3, 2, 1) for _ in range(3))
        reach = (window - 1) * spread + 1
        low, high = (rng.integers(-1, reach + 1) for _ in range(2))
        dilated = (base - 1) * holes + 1
        high = np.maximum(high, reach - dilated - low)
        left = (dilated + low + high - reach) // stride + 1
        flipped = (rng.random(rank) < 0.3).astype(int)

        def joined(values: Sequence[int] | np.ndarray) -> str:
            return "x".join(str(v) for v in values)

        pads = joined([f"{a}_{b}" for a, b in zip(low, high, strict=True)])  # type: ignore[arg-type]  # text is as good
        labels = str(rng.choice(LABELS[rank]))
        sizes = {
            "lhs": {"b": batch, "f": features} | dict(zip("01", base, strict=False)),
            "rhs": {"i": inputs, "o": outputs} | dict(zip("01", window, strict=False)),
            "out": {"b": batch // (groups if self.kind == "batch groups" else 1), "f": outputs}
            | dict(zip("01", left, strict=False)),
        }
        factors, out = labels.split("->")
        lhs, rhs = factors.split("_")
        shapes = [
            f"{self.dtype}[{','.join(str(sizes[side][c]) for c in order)}]"
            for side, order in (("lhs", lhs), ("rhs", rhs), ("out", out))
        ]
        count = "batch_group_count" if self.kind == "batch groups" else "feature_group_count"
        self.text = (
            f"HloModule m\nENTRY e {{\n  a = {shapes[0]} parameter(0)\n"
            f"  b = {shapes[1]} parameter(1)\n  ROOT r = {shapes[2]} convolution(a, b), "
            f"window={{size={joined(window)} stride={joined(stride)} pad={pads} "
            f"lhs_dilate={joined(holes)} rhs_dilate={joined(spread)} "
            f"rhs_reversal={joined(flipped)}}}, dim_labels={labels}, {count}={groups}\n}}"
        )

    def planted(self, array: np.ndarray, how: str) -> np.ndarray:
        """The array with some of its first, last or any elements, a slice or all of it replaced."""
        array = array.copy()
        flat, value = array.reshape(-1), self.rng.choice(NUMBERS)
        if how == "ends":
            flat[0], flat[-1] = value, self.rng.choice(NUMBERS)
        elif how == "some":
            places = self.rng.integers(0, flat.size, 1 + flat.size // 6)
            flat[places] = self.rng.choice(NUMBERS, len(places))
        elif how == "slice":
            np.moveaxis(array, int(self.rng.integers(array.ndim)), 0)[0] = value
        elif how == "all":
            array[...] = value
        return array


PLANTED = [
    ("ends", "none"), ("some", "none"), ("slice", "none"), ("none", "ends"), ("none", "some"),
    ("none", "slice"), ("none", "all"), ("some", "some"), ("slice", "slice"), ("all", "all"),
]  # fmt: skip


def check(seed: int) -> None:
    drawn = Drawn(seed)
    module = hlo.parse(drawn.text)
    compiled = hlo.compile(module, cache=False)
    clean = []
    for parameter in module.entry.parameters:
        shape = parameter.shape
        values = drawn.rng.uniform(1, 2, shape.dims) * drawn.rng.choice([-1, 1], shape.dims)
        clean.append(values.astype(shape.dtype.numpy))
    for ways in PLANTED:
        factors = [drawn.planted(x, way) for x, way in zip(clean, ways, strict=True)]
        with np.errstate(all="ignore"):
            want = wide(hlo.evaluate(module, *factors))
        found = wide(compiled(*factors))
        # A complex product that is not finite may be so in either part.
        tests = (np.isfinite,) if drawn.dtype == "c64" else (np.isnan, np.isposinf, np.isneginf)
        for test in tests:
            np.testing.assert_array_equal(test(found), test(want), err_msg=f"{ways} {drawn.text}")
        finite = np.isfinite(want)
        rtol = 0.05 if drawn.dtype == "bf16" else 1e-4
        np.testing.assert_allclose(found[finite], want[finite], rtol, rtol, err_msg=drawn.text)


def wide(array: object) -> np.ndarray:
    values = np.asarray(array)
    return values if values.dtype.kind == "c" else values.astype(float)


@pytest.mark.parametrize("seed", range(36))
def test_results_are_what_the_interpreter_has(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(36, 1000))
def test_results_are_what_the_interpreter_has_at_length(seed: int) -> None:
    """pytest -m slow tests/property/test_convolution_nonfinite.py"""
    check(seed)
