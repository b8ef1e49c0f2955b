"""How far the sums of contractions are from the exact ones: within what their plans say.

Errors are counted in eps * (sum of abs(a) * abs(b)). "constant" data are what long chains of
additions are worst at: each rounds in the same direction.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from benchmarks.error_cases import Case
from benchmarks.error_contractions import dot as einsum
from benchmarks.errors import errors_of
from hlo import driver
from hlo.backend.ir.kernel import Sums
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.ir import dtype as dt
from tests.support.contraction_harness import target_of
from tests.support.xla_child import run_in_child

TYPES = {
    "f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16,
}  # fmt: skip
KINDS = ("normal", "positive", "cancelling", "constant")
PLANS = {
    "dots", "axpys", "tiles", "groups", "tiles, depth first", "groups, depth first", "diagonal",
    "diagonal, depth blocks", "parts: tiles", "parts: groups", "parts: axpys",
}  # fmt: skip


@dataclass(frozen=True)
class Dot:
    """[m,k] x [k,n]; form: which factors are given transposed."""

    m: int
    n: int
    k: int
    form: str = "nn"
    dtype: str = "f32"
    out: str = ""

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        lhs, rhs = (self.m, self.k), (self.k, self.n)
        return (
            lhs if self.form[0] == "n" else lhs[::-1],
            rhs if self.form[1] == "n" else rhs[::-1],
        )

    def instruction(self, name: str, a: str, b: str) -> str:
        contracting = (int(self.form[0] == "n"), int(self.form[1] == "t"))
        return (
            f"{name} = {self.out or self.dtype}[{self.m},{self.n}] dot({a}, {b}), "
            f"lhs_contracting_dims={{{contracting[0]}}}, rhs_contracting_dims={{{contracting[1]}}}"
        )

    @property
    def text(self) -> str:
        (a, b), (c, d) = self.shapes
        return (
            f"HloModule d\nENTRY e {{ a = {self.dtype}[{a},{b}] parameter(0) "
            f"b = {self.dtype}[{c},{d}] parameter(1) ROOT {self.instruction('r', 'a', 'b')} }}"
        )

    def factors(self, kind: str) -> list[np.ndarray]:
        rng = np.random.default_rng(self.k)
        lhs, rhs = (drawn(rng, shape, self.dtype, kind) for shape in self.products)
        if kind == "cancelling":  # each half of depth undoes the other
            half = self.k // 2
            lhs[:, half : 2 * half], rhs[half : 2 * half] = -lhs[:, :half], rhs[:half]
        if kind == "constant":
            lhs[:] = lhs[:, :1]
            rhs[:] = rhs[:1]
        return [
            np.ascontiguousarray(x.T if way == "t" else x)
            for x, way in zip((lhs, rhs), self.form, strict=True)
        ]

    @property
    def products(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.m, self.k), (self.k, self.n)

    def exact(self, factors: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The sums, and those of magnitudes, in more digits."""
        single = self.dtype in ("f64", "c128")
        kind = np.clongdouble if single else np.complex128
        wide = [x.astype(kind if self.dtype[0] == "c" else kind(0).real.dtype) for x in factors]
        a, b = (x.T if way == "t" else x for x, way in zip(wide, self.form, strict=True))
        return a @ b, abs(a) @ abs(b)

    @property
    def eps(self) -> float:
        dtype = self.out or self.dtype
        return float(np.finfo(TYPES[dtype]).eps)


def drawn(rng: np.random.Generator, shape: tuple[int, int], dtype: str, kind: str) -> np.ndarray:
    def part() -> np.ndarray:
        normal = rng.standard_normal(shape)
        return abs(normal) + 0.1 if kind in ("positive", "constant") else normal

    return np.asarray(part() + 1j * part() if dtype[0] == "c" else part()).astype(TYPES[dtype])


def sums_of(text: str) -> Sums:
    root = driver.parse(text).entry.root
    sums = contraction_kernels(root, target_of()).sums
    assert sums is not None
    return sums


def units(dot: Dot, result: np.ndarray, factors: list[np.ndarray]) -> np.ndarray:
    exact, magnitudes = dot.exact(factors)
    return np.asarray(abs(result.astype(exact.dtype) - exact) / (dot.eps * magnitudes), float)


FAST = [
    Dot(m, n, k, form)
    for k in (100, 1000, 6000)
    for m, n, form in ((1, 1, "nn"), (5, 7, "nn"), (3, 60, "nt"), (33, 44, "tn"), (50, 9, "tt"))
] + [Dot(1, 1, 20000), Dot(5, 7, 20000, "tt"), Dot(3, 20, 20000, "nt"), Dot(21, 24, 20000)]
LARGE = [
    Dot(1, 4800, 2001),
    Dot(1, 2000, 6000, "tn"),
    Dot(40, 300, 3000),
    Dot(60, 200, 6001, "tn"),
]
TYPED = [
    Dot(17, 24, 3000, form, dtype, out)
    for dtype, out in (("f64", ""), ("c64", ""), ("c128", ""), ("f16", "f32"), ("bf16", "f32"))
    for form in ("nn", "nt")
] + [Dot(2, 9, 7000, "nt", "c64"), Dot(1, 1100, 1000, "nn", "c64")]
SLOW = [
    Dot(m, n, k, form)
    for k in (100_000, 1_000_000)
    for m, n, form in ((1, 1, "nn"), (3, 40, "nn"), (20, 28, "nt"), (16, 24, "tn"), (30, 4, "nn"))
]


def allowed(sums: Sums, dtype: str) -> float:
    """A rounding is off by half of eps; so is each part of a complex number. And the result's."""
    return sums.chain / 2 * (2**0.5 if dtype[0] == "c" else 1) + 1


def check(dot: Dot, kinds: tuple[str, ...] = KINDS) -> None:
    sums, executable = sums_of(dot.text), driver.compile(driver.parse(dot.text))
    for kind in kinds:
        factors = dot.factors(kind)
        worst = units(dot, np.asarray(executable(*factors)), factors).max()
        assert worst <= allowed(sums, dot.dtype), f"{kind}: {sums.plan}"


@pytest.mark.parametrize("dot", [*FAST, *LARGE, *TYPED], ids=str)
def test_errors_stay_within_what_the_plan_says(dot: Dot) -> None:
    check(dot, KINDS if dot.m * dot.n * dot.k < 1 << 20 else ("constant",))


@pytest.mark.slow
@pytest.mark.parametrize("dot", [*FAST, *LARGE, *TYPED], ids=str)
def test_errors_on_all_kinds_of_data(dot: Dot) -> None:
    """pytest -m slow tests/property/test_sum_errors.py"""
    check(dot)


@pytest.mark.slow
@pytest.mark.parametrize("dot", SLOW, ids=str)
def test_errors_of_very_long_sums(dot: Dot) -> None:
    """pytest -m slow tests/property/test_sum_errors.py"""
    check(dot)


@pytest.mark.parametrize("dot", [*FAST, *LARGE, *TYPED, *SLOW], ids=str)
def test_chains_are_blocks(dot: Dot) -> None:
    parts = 2 if dot.dtype[0] == "c" else 1
    assert sums_of(dot.text).chain <= min(parts * dot.k, 512 * parts) + dot.k // 256 + 8


def test_chains_of_narrow_products_are_short() -> None:
    """Tiles of one vector of columns: a block is about twice the root of the depth."""
    lanes = target_of().lanes(dt.F32)
    assert [sums_of(Dot(20, lanes, k).text).chain for k in (48, 64, 100, 256)] == [
        20, 21, 26, 41
    ]  # fmt: skip


DIAGONAL = [
    einsum("kb,kb->b", {"b": 40, "k": 20_000}),
    einsum("kb,kb->b", {"b": 9, "k": 99_991}),
    einsum("kb,kb->b", {"b": 40, "k": 20_000}, "c64"),
    einsum("kb,kb->b", {"b": 40, "k": 20_000}, "bf16", "f32"),
    einsum("jkb,kjb->b", {"j": 700, "k": 30, "b": 20}),
    einsum("jkb,kjb->b", {"j": 300, "k": 300, "b": 12}),
    einsum("bkm,kb->bm", {"k": 20_000, "b": 9, "m": 3}),
]


@pytest.mark.parametrize("case", DIAGONAL, ids=lambda case: case.name)
def test_a_column_s_own_sums_are_blocks_of_blocks(case: Case) -> None:
    sums, executable = sums_of(case.text), driver.compile(driver.parse(case.text))
    assert sums.chain <= 300
    for kind in ("mixed", "positive"):
        arguments = case.arguments(kind)
        errors = errors_of(case, np.asarray(executable(*arguments)), *case.exact(arguments))
        assert errors.worst <= 2, kind


def convolution(size: int, features: int, window: int, groups: int) -> tuple[str, Dot]:
    """A valid convolution of one row; as a Dot its depth and types."""
    left = size - window + 1
    text = (
        f"HloModule c\nENTRY e {{ a = f32[1,{size},{features}] parameter(0) "
        f"b = f32[{window},{features // groups},{features}] parameter(1) "
        f"ROOT r = f32[1,{left},{features}] convolution(a, b), window={{size={window}}}, "
        f"dim_labels=b0f_0io->b0f, feature_group_count={groups} }}"
    )
    return text, Dot(left, features, window * (features // groups))


CONVOLUTIONS = [
    (2700, 16, 2500, 16),
    (700, 24, 500, 24),
    (60, 16, 40, 1),
    (700, 24, 500, 1),
    (90, 300, 3, 1),
]


@pytest.mark.parametrize("kind", ["positive", "constant"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_errors_of_convolutions(case: tuple[int, int, int, int], kind: str) -> None:
    size, features, window, groups = case
    text, dot = convolution(*case)
    rng = np.random.default_rng(size)
    x = drawn(rng, (size, features), "f32", kind)
    kernel = drawn(rng, (window * (features // groups), features), "f32", kind)
    if kind == "constant":
        x[:], kernel[:] = x[:1], kernel[:1]
    kernel = kernel.reshape(window, features // groups, features)
    result = np.asarray(driver.compile(driver.parse(text))(x[None], kernel))[0]
    views = np.lib.stride_tricks.sliding_window_view(x.astype(float), window, axis=0)
    if groups == 1:
        exact = np.einsum("yiw,wio->yo", views, kernel.astype(float), optimize=True)
    else:
        exact = np.einsum("yiw,wi->yi", views, kernel[:, 0].astype(float), optimize=True)
    worst = (abs(result - exact) / (dot.eps * exact)).max()
    assert worst <= allowed(sums_of(text), "f32")


def test_all_plans_are_covered() -> None:
    texts = [d.text for d in (*FAST, *LARGE, *TYPED, *SLOW)]
    texts += [convolution(*case)[0] for case in CONVOLUTIONS]
    assert {sums_of(text).plan for text in texts} - {"matrix units"} >= PLANS


@pytest.mark.oracle
@pytest.mark.parametrize(("k", "kind"), [(300, "positive"), (1000, "normal"), (6000, "positive")])
def test_errors_are_at_most_twice_those_of_xla(k: int, kind: str) -> None:
    shapes = ((40, 40, "nn"), (40, 40, "nt"), (40, 40, "tn"), (3, 200, "nn"), (200, 3, "tn"))
    dots = [Dot(m, n, k, form) for m, n, form in shapes]
    lines, arrays = [], []
    for number, dot in enumerate(dots):
        for side, (rows, columns) in enumerate(dot.shapes):
            lines.append(
                f"p{number}.{side} = f32[{rows},{columns}] parameter({len(arrays) + side})"
            )
        lines.append(dot.instruction(f"r{number}", f"p{number}.0", f"p{number}.1"))
        arrays += dot.factors(kind)
    results = ", ".join(f"f32[{d.m},{d.n}]" for d in dots)
    lines.append(f"ROOT t = ({results}) tuple({', '.join(f'r{n}' for n in range(len(dots)))})")
    text = "HloModule d\nENTRY e {\n" + "\n".join(lines) + "\n}"
    ours, theirs = driver.compile(driver.parse(text))(*arrays), run_in_child(text, arrays)
    for number, (dot, x, y) in enumerate(zip(dots, ours, theirs, strict=True)):
        factors = arrays[2 * number : 2 * number + 2]
        mine, other = (units(dot, np.asarray(r), factors) for r in (x, y))
        assert np.median(mine) <= 2 * np.median(other), dot
        assert mine.max() <= 2 * other.max(), dot
