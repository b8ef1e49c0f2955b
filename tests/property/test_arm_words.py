"""Products on words of 8-bit integers and of bf16, as 64-bit Arm multiplies them, run by QEMU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo import driver
from hlo.backend.kernels.contraction.microkernels.tile_shape import row_steps
from hlo.backend.kernels.contraction.vectors.word_plan import SQUARES_ROWS
from hlo.ir.module import Module
from hlo.machine import NAMED, Machine
from tests.support import emulated_arm
from tests.support.covering import covering

WITHOUT, DOT, MATRICES = (NAMED[n] for n in ("armv8-a", "neoverse-n1", "neoverse-v1"))
SIGNS = [("s8", "s8"), ("u8", "u8"), ("u8", "s8"), ("s8", "u8"), ("s4", "s8"), ("u8", "s4"),
         ("u4", "u4"), ("s2", "u8")]  # fmt: skip
SIZES = [(32, 64, 64), (19, 61, 35), (7, 301, 18)]
BF16 = ml_dtypes.bfloat16

is_run = pytest.mark.skipif(
    not emulated_arm.IS_THERE, reason="qemu-aarch64 and aarch64-linux-gnu-gcc are not there"
)


def text(types: tuple[str, str, str], dims: tuple[int, int, int], lhs: int, rhs: int) -> str:
    """A product of m x k and k x n. lhs, rhs: the dimension that is contracted."""
    (m, k, n), (left, right, out) = dims, types
    x, y = ([m, k] if lhs else [k, m]), ([n, k] if rhs else [k, n])
    return f"""HloModule m
    ENTRY e {{ x = {left}[{x[0]},{x[1]}] parameter(0)
      y = {right}[{y[0]},{y[1]}] parameter(1)
      ROOT r = {out}[{m},{n}] dot(x, y), lhs_contracting_dims={{{lhs}}},
        rhs_contracting_dims={{{rhs}}} }}"""


def extremes(module: Module) -> list[object]:
    """Numbers of all sizes; rows and columns of the least, of the greatest, and of zeros."""
    rng = np.random.default_rng(0)
    made: list[object] = []
    for parameter in module.entry.parameters:
        low, high = parameter.shape.dtype.int_range
        array = rng.integers(low, high + 1, parameter.shape.dims)
        array[..., 0], array[..., 1], array[..., 2] = low, high, 0
        array[0], array[1] = low, high
        made.append(array.astype(parameter.shape.dtype.numpy))
    return made


def drawn(module: Module, rng: np.random.Generator) -> list[object]:
    """Integers of the parameters' whole ranges."""
    return [
        rng.integers(*p.shape.dtype.int_range, p.shape.dims, endpoint=True).astype(
            p.shape.dtype.numpy
        )
        for p in module.entry.parameters
    ]


def result_on(machine: Machine, module: Module, values: list[object]) -> np.ndarray:
    found = emulated_arm.run(module, values, machine)
    assert found is not None
    return found[0]


@is_run
@pytest.mark.parametrize(("machine", "signs"), covering([DOT, MATRICES], SIGNS, strength=1))
def test_integers_are_exact(signs: tuple[str, str], machine: Machine) -> None:
    for number, dims in enumerate(SIZES):
        module = hlo.parse(text((*signs, "s32"), dims, number % 2, number // 2))
        values = extremes(module)
        exact = hlo.evaluate(module, *values)
        np.testing.assert_array_equal(result_on(machine, module, values), exact)


@is_run
@pytest.mark.parametrize("signs", SIGNS[:4], ids="-".join)
def test_sums_wrap_where_they_leave_32_bits(signs: tuple[str, str]) -> None:
    module = hlo.parse(text((*signs, "s32"), (4, 140_000, 16), 1, 0))
    values: list[object] = []
    for parameter in module.entry.parameters:
        low, high = parameter.shape.dtype.int_range
        extreme = low or high  # -128, 255
        values.append(np.full(parameter.shape.dims, extreme, parameter.shape.dtype.numpy))
    product = int(np.prod([int(np.asarray(v).flat[0]) for v in values]))
    wrapped = (140_000 * product + 2**31) % 2**32 - 2**31
    for machine in (DOT, MATRICES):
        assert (result_on(machine, module, values) == wrapped).all()


@is_run
@pytest.mark.parametrize("orders", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_bf16_within_the_bound_of_its_sums(orders: tuple[int, int]) -> None:
    """All numbers are positive: sums that were rounded one way would show it."""
    rng = np.random.default_rng(1)
    for dims in (*SIZES, (4, 3000, 16)):
        module = hlo.parse(text(("bf16", "bf16", "f32"), dims, *orders))
        values: list[object] = [
            rng.uniform(0.5, 2, p.shape.dims).astype(BF16) for p in module.entry.parameters
        ]
        exact = hlo.evaluate(hlo.parse(text(("f64", "f64", "f64"), dims, *orders)),
                             *(np.asarray(v).astype(np.float64) for v in values))  # fmt: skip
        result = result_on(MATRICES, module, values).astype(np.float64)
        assert (np.abs(result - exact) <= 2.0**-20 * np.abs(exact)).all()


@is_run
@pytest.mark.parametrize("side", [0, 1])
def test_subnormal_factors_count(side: int) -> None:
    module = hlo.parse(text(("bf16", "bf16", "f32"), (33, 61, 20), 1, 0))
    values = [np.ones(p.shape.dims, BF16) for p in module.entry.parameters]
    values[1 - side][:] = 1e30
    values[side][:] = 0
    values[side][-1, -1] = -1e-39
    for special in (None, np.inf, np.nan):
        if special is not None:
            values[1 - side][2, 3] = special
        exact = hlo.evaluate(module, *values)
        np.testing.assert_allclose(result_on(MATRICES, module, [*values]), exact, rtol=1e-6)


ODD = [(2, 600, 61), (3, 301, 40), (5, 129, 77), (9, 1030, 12), (7, 70000, 5), (2, 4100, 9),
       (257, 33, 129), (40, 5003, 130)]  # fmt: skip


@is_run
@pytest.mark.parametrize("dims", ODD, ids=str)
def test_squares_of_odd_rows_columns_and_depths(dims: tuple[int, int, int]) -> None:
    """Rows that no other is there to pair with, half a vector of columns, words that end in zeros;
    a long depth in parts.
    """
    rng = np.random.default_rng(2)
    for number, (left, right) in enumerate([("s8", "u8"), ("u8", "u8")]):
        module = hlo.parse(text((left, right, "s32"), dims, number, 1 - number))
        values = drawn(module, rng)
        is_streamed = number == 1 and dims[0] < SQUARES_ROWS and dims[2] >= 16
        assert ("mmla\t" in driver.emit_stage(module, "asm", machine=MATRICES)) != is_streamed
        exact = hlo.evaluate(module, *values)
        np.testing.assert_array_equal(result_on(MATRICES, module, values), exact)


PLACES = {
    "batch": """ENTRY e { x = s8[3,19,80] parameter(0)
      y = s8[3,80,33] parameter(1)
      ROOT r = s32[3,19,33] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0},
        lhs_contracting_dims={2}, rhs_contracting_dims={1} }""",
    "two axes of columns": """ENTRY e { x = s8[5,7,40] parameter(0)
      y = u8[40,3,21] parameter(1)
      ROOT r = s32[5,7,3,21] dot(x, y), lhs_contracting_dims={2}, rhs_contracting_dims={0} }""",
    "two axes of depth": """ENTRY e { x = s8[3,124,35] parameter(0)
      y = s8[3,35,131] parameter(1)
      ROOT r = s32[124,131] dot(x, y), lhs_contracting_dims={0,2}, rhs_contracting_dims={0,1} }""",
    "with what follows": """ENTRY e { x = s8[37,100] parameter(0)
      y = s8[100,45] parameter(1)
      d = s32[37,45] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT f = f32[37,45] convert(d) }""",
    "narrow": """ENTRY e { x = s8[31,64] parameter(0)
      y = s8[64,45] parameter(1)
      ROOT r = s8[31,45] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }""",
    "windows": """ENTRY e { x = s8[2,12,12,16] parameter(0)
      k = s8[3,3,16,20] parameter(1)
      ROOT r = s32[2,12,12,20] convolution(x, k), window={size=3x3 pad=1_1x1_1},
        dim_labels=b01f_01io->b01f }""",
}


@is_run
@pytest.mark.parametrize("place", PLACES)
def test_squares_in_other_places(place: str) -> None:
    module = hlo.parse(f"HloModule m\n{PLACES[place]}")
    rng = np.random.default_rng(4)
    values = drawn(module, rng)
    assert "mmla\t" in driver.emit_stage(module, "asm", machine=MATRICES)
    exact = hlo.evaluate(module, *values)
    np.testing.assert_array_equal(result_on(MATRICES, module, values), exact)


@is_run
def test_constants_are_words_of_squares_when_the_program_is_compiled() -> None:
    rng = np.random.default_rng(5)
    rows = rng.integers(-128, 128, (67, 40)).tolist()
    listed = ",".join("{" + ",".join(map(str, row)) + "}" for row in rows)
    module = hlo.parse(f"""HloModule m
    ENTRY e {{ x = s8[31,67] parameter(0)
      y = s8[67,40] constant({{{listed}}})
      ROOT r = s32[31,40] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}""")
    values: list[object] = [rng.integers(-128, 128, (31, 67)).astype(np.int8)]
    assert "smmla\t" in driver.emit_stage(module, "asm", machine=MATRICES)
    exact = hlo.evaluate(module, *values)
    np.testing.assert_array_equal(result_on(MATRICES, module, values), exact)


def test_one_row_has_no_squares() -> None:
    """There is nothing to pair it with; for a few rows the matrix is not copied."""
    for rows, wanted in ((1, False), (7, False), (8, True)):
        module = hlo.parse(text(("s8", "s8", "s32"), (rows, 4096, 64), 1, 0))
        loops = driver.emit_stage(module, "loops", machine=MATRICES)
        assert ("octets of s8" in loops) == wanted


@pytest.mark.parametrize("m", range(2, 64))
@pytest.mark.parametrize("most", [2, 6, 24])
def test_tiles_of_squares_have_even_rows_that_there_are(m: int, most: int) -> None:
    tiles, rows = row_steps(m, most, 2)
    assert rows % 2 == 0
    assert rows <= min(m, most)
    assert (tiles - 1) * rows < m <= tiles * rows


@pytest.mark.parametrize(("machine", "types", "instruction"), [
    (DOT, ("s8", "s8", "s32"), "sdot"), (DOT, ("u8", "u8", "s32"), "udot"),
    (DOT, ("u8", "s8", "s32"), "sdot"), (DOT, ("s8", "u8", "s32"), "udot"),
    (DOT, ("u4", "s4", "s32"), "sdot"), (MATRICES, ("s4", "s8", "s32"), "smmla"),
    (MATRICES, ("u4", "u8", "u32"), "ummla"), (MATRICES, ("u8", "s8", "s32"), "usmmla"),
    (MATRICES, ("s8", "u8", "s32"), "usmmla"), (MATRICES, ("bf16", "bf16", "f32"), "bfmmla"),
    (MATRICES, ("f8e4m3fn", "bf16", "f32"), "bfmmla"),
])  # fmt: skip
def test_the_machines_instruction(
    machine: Machine, types: tuple[str, str, str], instruction: str
) -> None:
    code = driver.emit_stage(hlo.parse(text(types, (64, 64, 64), 1, 0)), "asm", machine=machine)
    assert f"\t{instruction}\t" in code


def test_without_the_feature_there_is_none() -> None:
    types = {"i8mm": ("u8", "s8", "s32"), "bf16": ("bf16", "bf16", "f32")}
    for feature, each in types.items():
        machine = replace(MATRICES, features=MATRICES.features - {feature})
        code = driver.emit_stage(hlo.parse(text(each, (64, 64, 64), 1, 0)), "asm", machine=machine)
        assert "mmla\t" not in code
        assert ("dot\t" in code) == (feature == "i8mm")  # of moved factors
    module = hlo.parse(text(("s8", "s8", "s32"), (64, 64, 64), 1, 0))
    assert "dot\t" not in driver.emit_stage(module, "asm", machine=WITHOUT)


@is_run
@pytest.mark.parametrize("machine", [DOT, MATRICES], ids=lambda m: m.name)
@pytest.mark.parametrize(
    ("types", "features"),
    [(("s8", "s32"), (16, 16)), (("u8", "s32"), (5, 7)), (("bf16", "f32"), (7, 24))],
    ids=["s8", "u8", "bf16"],
)
def test_padded_convolutions(
    types: tuple[str, str], features: tuple[int, int], machine: Machine
) -> None:
    (element, out), (depth, count) = types, features
    module = hlo.parse(f"""HloModule m
    ENTRY e {{ x = {element}[2,9,9,{depth}] parameter(0)
      w = {element}[3,3,{depth},{count}] parameter(1)
      ROOT r = {out}[2,9,9,{count}] convolution(x, w), window={{size=3x3 pad=1_1x1_1}},
        dim_labels=b01f_01io->b01f }}""")
    values: list[object] = []
    for seed, parameter in enumerate(module.entry.parameters):
        drawn = np.random.default_rng(seed).integers(0, 127, parameter.shape.dims)
        values.append(drawn.astype(parameter.shape.dtype.numpy))
    exact = np.asarray(hlo.evaluate(module, *values))  # as sums below 2^24 are
    np.testing.assert_array_equal(result_on(machine, module, values), exact)
