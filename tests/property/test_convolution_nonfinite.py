"""NaN and infinities in bases and kernels: they reach those results that the interpreter says.

Sizes decide how results are repaired; so that small convolutions go every way, the limits between
the ways are drawn too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

import hlo
from hlo.backend.ir.kernel import Kernel
from hlo.backend.kernels.contraction import repaired_convolution
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.convolutions import form as convolution_form
from hlo.backend.kernels.contraction.convolutions import repair_check
from hlo.backend.kernels.contraction.convolutions.form import Form
from hlo.backend.kernels.contraction.convolutions.panel import Panel
from tests.support.contraction_harness import target_of

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


@contextmanager
def limits(seed: int) -> Iterator[None]:
    """Some draws take kernels for large ones, some look at the results before the kernel."""
    rng = np.random.default_rng([seed, 1])
    near, few = rng.choice([0, convolution_form.NEAR_BYTES]), int(rng.choice([1, 3]))
    check = int(rng.choice([0, repair_check.CHECK]))
    large = int(rng.choice([0, repair_check.LARGE_BYTES]))
    with (
        patch.object(convolution_form, "NEAR_BYTES", near),
        patch.object(convolution_form, "FEW_IMAGES", few),
        patch.object(repair_check, "CHECK", check),
        patch.object(repair_check, "LARGE_BYTES", large),
    ):
        yield


def check(seed: int) -> None:
    drawn = Drawn(seed)
    module = hlo.parse(drawn.text)
    with limits(seed):
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


SEEDS = range(48)


@pytest.mark.parametrize("seed", SEEDS)
def test_results_are_what_the_interpreter_has(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(SEEDS), 1000))
def test_results_are_what_the_interpreter_has_at_length(seed: int) -> None:
    """pytest -m slow tests/property/test_convolution_nonfinite.py"""
    check(seed)


def test_the_draws_are_repaired_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: set[str] = set()
    real = repaired_convolution.check_kernel

    def noting(form: Form, sides: tuple[int, ...]) -> Kernel:
        way = "one position in several images" if form.is_uniform else "positions side by side"
        holes = any(s.window.base_dilation > 1 for s in form.spatial)
        ways.update({way, f"{way}, holes" if holes else way, f"{sides} meet zeros"})
        ways.add(
            "kernel first" if repair_check.reads_factors_first(form, sides) else "results first"
        )
        if repair_check.reads_results_alone(form, sides):
            ways.add("no look")
        for side, factor in enumerate(("base", "kernel")):
            panel = Panel.of(form, side)
            if panel is not None:
                stride = form.strides[side][panel.features]
                ways.add(f"{factor} packed{' in squares' * (form.lanes <= stride)}")
        if form.vectors * form.ring.parts > convolution_form.VECTORS:
            ways.add("many features")
        return real(form, sides)

    monkeypatch.setattr(repaired_convolution, "check_kernel", noting)
    for seed in SEEDS:
        with limits(seed):
            contraction_kernels(hlo.parse(Drawn(seed).text).entry.root, target_of("avx512"))
    assert ways == {
        "one position in several images", "one position in several images, holes",
        "positions side by side", "positions side by side, holes",
        "(0,) meet zeros", "(1,) meet zeros", "(0, 1) meet zeros",
        "kernel first", "results first", "no look", "kernel packed in squares", "kernel packed",
        "base packed in squares", "base packed", "many features",
    }  # fmt: skip
