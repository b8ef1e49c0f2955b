"""Products on words of two elements: any types, orders of dimensions, sizes and machines."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.convolutions.convolution import convolution_contraction
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.products.planning import planned_small
from hlo.backend.kernels.contraction.words.words import in_words
from hlo.driver import emit_stage
from hlo.machine import NAMED
from tests.support.by_threads import for_threads
from tests.support.contraction_harness import Compiled, target_of
from tests.support.covering import covering
from tests.support.machines_here import runs_here

PAIRS = [("s8", "s8", "s32"), ("u8", "s8", "s32"), ("u8", "u8", "u32"), ("s16", "s16", "s32"),
         ("s16", "u8", "s8"), ("s4", "u4", "s32"), ("u8", "s4", "s32"), ("s2", "s8", "s32"),
         ("u2", "s16", "s32"), ("s2", "u4", "u32")]  # fmt: skip
SIZES = [
    (64, 64, 64),
    (33, 61, 47),
    (7, 301, 90),
    (130, 301, 9),
]  # the last: columns of a part of a vector
LEVELS = [
    level for level in ("sse", "avx2", "avx512", "host")
    if runs_here(target_of(level).machine)
]  # fmt: skip


def text(types: tuple[str, str, str], dims: tuple[int, int, int], lhs: int, rhs: int) -> str:
    """A product of m x k and k x n. lhs, rhs: the dimension that is contracted."""
    (m, k, n), (left, right, out) = dims, types
    x, y = ([m, k], [k, n])
    x, y = (x if lhs else x[::-1]), (y[::-1] if rhs else y)
    return f"""HloModule m
    ENTRY e {{ x = {left}[{x[0]},{x[1]}] parameter(0)
      y = {right}[{y[0]},{y[1]}] parameter(1)
      ROOT r = {out}[{m},{n}] dot(x, y), lhs_contracting_dims={{{lhs}}},
        rhs_contracting_dims={{{rhs}}} }}"""


def extremes(module: hlo.ir.module.Module) -> list[np.ndarray]:
    """Numbers of all sizes, the least and the greatest ones in rows of their own."""
    rng = np.random.default_rng(0)
    made = []
    for parameter in module.entry.parameters:
        dtype = parameter.shape.dtype
        low, high = dtype.int_range
        array = rng.integers(low, high + 1, parameter.shape.dims)
        array[0], array[:, 1], array[1] = low, low, high
        made.append(array.astype(dtype.numpy))
    return made


@pytest.mark.parametrize(("level", "types", "number"), covering(LEVELS, PAIRS, range(len(SIZES))))
def test_integers_wrap_and_never_saturate(
    types: tuple[str, str, str], level: str, number: int
) -> None:
    module = hlo.parse(text(types, SIZES[number], number % 2, number // 2))
    root, values = module.entry.root, extremes(module)
    made = in_words(*_normal(root, level))
    assert made is not None
    result = np.zeros(root.shape.dims, root.shape.dtype.numpy)
    Compiled(contraction_kernels(root, target_of(level)), level)(values, result, 3)
    np.testing.assert_array_equal(result, hlo.evaluate(module, *values))


def _normal(root: hlo.ir.instruction.Instruction, level: str):  # type: ignore[no-untyped-def]  # a contraction and its ring
    ring = ring_of(root.shape.dtype, target_of(level))
    return normal(dot_contraction(root), ring.lanes), ring


BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize("out", ["f32", "bf16"])
@pytest.mark.parametrize("orders", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_bf16_within_the_bound_of_its_sums(orders: tuple[int, int], out: str) -> None:
    rng = np.random.default_rng(1)
    for dims in SIZES:
        module = hlo.parse(text(("bf16", "bf16", out), dims, *orders))
        values = [rng.standard_normal(p.shape.dims).astype(BF16) for p in module.entry.parameters]
        exact = hlo.evaluate(hlo.parse(text(("f64", "f64", "f64"), dims, *orders)),
                             *(v.astype(np.float64) for v in values))  # fmt: skip
        weight = hlo.evaluate(hlo.parse(text(("f64", "f64", "f64"), dims, *orders)),
                              *(np.abs(v.astype(np.float64)) for v in values))  # fmt: skip
        result = hlo.compile(module, cache=False).run_guarded(*values).astype(np.float64)
        unit = 2.0**-8 if out == "bf16" else 0.0
        assert (np.abs(result - exact) <= 2.0**-20 * weight + unit * np.abs(exact)).all()


@pytest.mark.parametrize("orders", [(0, 0), (1, 0), (1, 1)])
def test_subnormal_factors_count(orders: tuple[int, int]) -> None:
    for side in range(2):
        module = hlo.parse(text(("bf16", "bf16", "f32"), (33, 61, 47), *orders))
        values = [np.ones(p.shape.dims, BF16) for p in module.entry.parameters]
        values[1 - side][:] = 1e30
        values[side][:] = 0
        values[side][-1, -1] = -1e-39
        np.testing.assert_allclose(
            hlo.compile(module, cache=False)(*values), hlo.evaluate(module, *values), rtol=1e-6
        )
        values[1 - side][2, 3] = np.inf
        values[1 - side][3, 2] = np.nan
        np.testing.assert_allclose(
            hlo.compile(module, cache=False)(*values), hlo.evaluate(module, *values), rtol=1e-6
        )


@pytest.mark.parametrize(("name", "types", "instruction"), [
    ("x86-64", ("s8", "s8", "s32"), "pmaddwd"), ("x86-64-v3", ("u8", "s8", "s32"), "vpmaddwd"),
    ("x86-64-v4", ("s16", "s16", "s32"), "vpmaddwd"),
    ("x86-64-v4", ("s8", "s8", "s32"), "vpmaddwd"),
    ("znver4", ("s16", "s8", "s32"), "vpdpwssd"), ("znver4", ("s8", "s8", "s32"), "vpdpbusd"),
    ("cooperlake", ("bf16", "bf16", "f32"), "vdpbf16ps"),
])  # fmt: skip
def test_the_machines_instruction(name: str, types: tuple[str, str, str], instruction: str) -> None:
    module = hlo.parse(text(types, (64, 64, 64), 1, 0))
    machine = NAMED[name]
    assert instruction in hlo.driver.emit_stage(module, "asm", machine=machine)


def test_windows_that_overlap_are_not_copied() -> None:
    module = hlo.parse("""HloModule m
    ENTRY e { x = s8[1,40,40,3] parameter(0)
      k = s8[7,7,3,64] parameter(1)
      ROOT r = s32[1,34,34,64] convolution(x, k), window={size=7x7},
        dim_labels=b01f_01io->b01f }""")
    root = module.entry.root
    ring = ring_of(root.shape.dtype, target_of())
    assert in_words(normal(convolution_contraction(root)[0], ring.lanes), ring) is None


# Even depths; columns that vectors and panels do not divide, and rows of one and of many tiles.
JOINED = [(40, 62, 75), (33, 302, 90), (130, 20, 131), (12, 1030, 65), (200, 302, 11)]


@pytest.mark.parametrize(("level", "types", "dims"), covering(LEVELS, PAIRS, JOINED))
def test_columns_become_words_where_they_are_packed(
    types: tuple[str, str, str], level: str, dims: tuple[int, int, int]
) -> None:
    module = hlo.parse(text(types, dims, 1, 0))
    root, values = module.entry.root, extremes(module)
    result = np.zeros(root.shape.dims, root.shape.dtype.numpy)
    Compiled(contraction_kernels(root, target_of(level)), level)(values, result, 3)
    np.testing.assert_array_equal(result, hlo.evaluate(module, *values))


def shown(types: tuple[str, str, str], dims: tuple[int, int, int], rhs: int) -> str:
    module = hlo.parse(text(types, dims, 1, rhs))
    return emit_stage(module, "loops", machine=NAMED["znver4"])


def test_which_columns_become_words_while_they_are_packed() -> None:
    """Not those that lie so, nor those of an odd depth; also where lhs's numbers are moved."""
    bf16, bytes_ = ("bf16", "bf16", "f32"), ("s8", "s8", "s32")
    assert "rhs = words of 2 rows of p1" in shown(bf16, (64, 128, 96), 0)
    assert "rhs = words of 4 rows of p1" in shown(("u8", "s8", "s32"), (64, 128, 96), 0)
    assert "rhs = pairs of bf16 of p1" in shown(bf16, (64, 129, 96), 0)
    assert "rhs = words of 4 rows of p1" in shown(bytes_, (64, 128, 96), 0)
    assert "words of" not in shown(bf16, (64, 128, 96), 1)


def test_columns_that_fill_a_part_of_a_vector_are_words_too() -> None:
    """But up to eight beside rows along depth, which meet each other as they lie."""
    bf16, bytes_ = ("bf16", "bf16", "f32"), ("s8", "s8", "s32")
    assert "rhs = words of 2 rows of p1" in shown(bf16, (512, 256, 9), 0)
    assert "quads of s8" in shown(bytes_, (512, 256, 9), 0)
    assert "halved together" in shown(bf16, (512, 256, 8), 0)


def test_columns_are_looked_at_where_they_are_packed() -> None:
    """One look for the rows; none for the columns, whose words tell."""
    assert shown(("bf16", "bf16", "f32"), (64, 128, 96), 0).count("check: whether a factor") == 1
    assert shown(("bf16", "bf16", "f32"), (64, 128, 96), 1).count("check: whether a factor") == 2


@pytest.mark.parametrize("dims", [(64, 128, 96), (40, 62, 75), (200, 1030, 65), (90, 62, 9)])
def test_subnormal_numbers_in_packed_columns_count(dims: tuple[int, int, int]) -> None:
    module = hlo.parse(text(("bf16", "bf16", "f32"), dims, 1, 0))
    x, y = (np.ones(p.shape.dims, BF16) for p in module.entry.parameters)
    for place in ((0, 0), (-1, -1), (dims[1] // 2, dims[2] // 2)):
        x[:], y[:] = 1e30, 0
        y[place] = -1e-39
        found = hlo.compile(module, cache=False)(x, y)
        np.testing.assert_allclose(found, hlo.evaluate(module, x, y), rtol=1e-6)


def test_columns_that_are_packed_before_the_product_tell_too() -> None:
    """Those of few depths, whose result is large."""
    types, dims = ("bf16", "bf16", "f32"), (700, 32, 1200)
    text_of_loops = shown(types, dims, 0)
    assert "panels of p1" in text_of_loops
    assert text_of_loops.count("check: whether a factor") == 1
    module = hlo.parse(text(types, dims, 1, 0))
    x, y = (np.zeros(p.shape.dims, BF16) for p in module.entry.parameters)
    x[:], y[31, 1199] = 2.0**99, 2.0**-130
    for threads in (1, 3):
        found = np.asarray(for_threads(module, threads=threads)(x, y))
        assert found[699, 1199] == 2.0**-31
        assert np.count_nonzero(found) == 700


@pytest.mark.parametrize(
    ("dtype", "n", "vectors"), [("bf16", 47, 2), ("bf16", 16, 1), ("f32", 47, 1)]
)
def test_a_tile_of_little_code_reads_whole_lines_of_columns(
    dtype: str, n: int, vectors: int
) -> None:
    module = hlo.parse(text((dtype, dtype, "f32"), (33, 61, n), 1, 0))
    target = Target(NAMED["znver4"])
    c = normal(dot_contraction(module.entry.root), 16)
    assert planned_small(c, ring_of(c.out, target)).vectors == vectors


@pytest.mark.parametrize("depth", [30, 31, 32])
@pytest.mark.parametrize("types", [("s8", "s32"), ("bf16", "f32")])
def test_exchanged_factors_stay_on_their_sides(types: tuple[str, str], depth: int) -> None:
    """Six columns along depth are rows of the exchanged product, and words of these are."""
    element, out = types
    module = hlo.parse(f"""HloModule m
ENTRY e {{
  a = {element}[256,{depth}] parameter(0)
  b = {element}[6,{depth}] parameter(1)
  ROOT d = {out}[256,6] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
}}""")
    numbers, kind = np.random.default_rng(0), np.int8 if element == "s8" else ml_dtypes.bfloat16
    a, b = (numbers.integers(-3, 4, (n, depth)).astype(kind) for n in (256, 6))
    found = for_threads(module, threads=1)(a, b)
    np.testing.assert_array_equal(np.asarray(found), a.astype(np.float32) @ b.astype(np.float32).T)
