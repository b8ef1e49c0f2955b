"""scatter kernels against the op's own evaluate; the same bits for every split into ranges."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from msgspec.structs import replace

from hlo.backend.ir.kernel import Kernel
from hlo.backend.kernels.scatter.form import ScatterForm
from hlo.backend.kernels.scatter.scatter import scatter_kernels
from hlo.backend.linking.toolchain import host_target
from hlo.interpreter.evaluate import evaluate
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.parser.parse import parse
from tests.support.hlo_values import mixed_values, same_values
from tests.support.kernel_jit import kernel_function

ROWS = (
    "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1"
)
CELLS = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1"
)


def combiner(dtype: str, opcode: str) -> str:
    if opcode == "replace":
        return f"f {{\n  a = {dtype}[] parameter(0)\n  ROOT b = {dtype}[] parameter(1)\n}}"
    return (
        f"f {{\n  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
        f"  ROOT r = {dtype}[] {opcode}(a, b)\n}}"
    )


def only_kernel(root: Instruction) -> Kernel:
    """Of a scatter whose units are no runs."""
    made = scatter_kernels(root, replace(host_target(), is_alone=True))
    assert isinstance(made, Kernel)
    return made


def check(
    shapes: tuple[str, str, str], attributes: str, opcode: str = "add", ranges: int = 1
) -> list[np.ndarray]:
    dtype = shapes[0].split("[")[0]
    module = parse(
        f"HloModule m\n{combiner(dtype, opcode)}\nENTRY e {{\n"
        f"  x = {shapes[0]} parameter(0)\n  i = {shapes[1]} parameter(1)\n"
        f"  u = {shapes[2]} parameter(2)\n"
        f"  ROOT s = {shapes[0]} scatter(x, i, u), {attributes}, to_apply=f\n}}\n"
    )
    root = module.entry.root
    rng = np.random.default_rng(zlib.crc32(f"{shapes}{opcode}".encode()))
    x, i, u = (o.shape for o in root.operands)
    exact = opcode == "replace" or not (x.dtype.is_float or x.dtype.is_complex)
    values = [
        mixed_values(s.dtype, s.size, rng).reshape(s.dims)
        if exact
        else rng.normal(size=s.dims).astype(s.dtype.numpy)
        for s in (x, u)
    ]
    low = -2 if i.dtype.is_signed else 0  # some windows stick out
    indices = rng.integers(low, x.dims[0] + 2, i.dims).astype(i.dtype.numpy)
    operands = (values[0], indices, values[1])
    got = kernel_function(root, only_kernel(root), ranges)(*operands)
    want = np.asarray(evaluate(module, *operands))
    if exact:
        assert same_values(got[0], want).all()
    else:
        _check_near(got[0], want, x.dtype)
    return got


def _check_near(got: np.ndarray, want: np.ndarray, dtype: dt.DType) -> None:
    """The reference sums in f64 and rounds once; here every step is rounded to the type."""
    part = dtype.component.float_format
    assert part is not None
    wide = np.complex128 if dtype.is_complex else np.float64
    tolerance = 16 * 2.0**-part.mantissa
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), tolerance, tolerance)


@pytest.mark.parametrize("opcode", ["add", "replace", "multiply", "maximum"])
@pytest.mark.parametrize("dtype", ["s8", "s32", "u64", "pred", "s4"])
def test_integers(dtype: str, opcode: str) -> None:
    check((f"{dtype}[20,50]", "s32[30,1]", f"{dtype}[30,50]"), ROWS, opcode)
    check((f"{dtype}[20,50]", "s64[30,1]", f"{dtype}[30,37]"), ROWS, opcode)
    check((f"{dtype}[20]", "s32[60,1]", f"{dtype}[60]"), CELLS, opcode)


@pytest.mark.parametrize("opcode", ["add", "replace"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64", "c64", "c128", "f8e5m2"])
def test_floats(dtype: str, opcode: str) -> None:
    check((f"{dtype}[40,50]", "s32[9,1]", f"{dtype}[9,50]"), ROWS, opcode)
    check((f"{dtype}[40]", "s32[9,1]", f"{dtype}[9]"), CELLS, opcode)


FORMS = [
    (("s32[20,50]", "u8[30]", "s32[30,50]"), ROWS),
    (("s32[3]", "s32[2,1]", "s32[2,2]"),
     "update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, "
     "index_vector_dim=1"),
    (("s32[8,9,70]", "s32[5,2]", "s32[5,3,4,70]"),
     "update_window_dims={1,2,3}, inserted_window_dims={}, scatter_dims_to_operand_dims={1,0}, "
     "index_vector_dim=1"),
    (("s32[8,9,7]", "s32[2,5]", "s32[5,3,4]"),
     "update_window_dims={1,2}, inserted_window_dims={2}, scatter_dims_to_operand_dims={2,1}, "
     "index_vector_dim=0"),
    (("s32[2,3]", "s32[2,2,1]", "s32[2,2]"),
     "update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, "
     "input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=2"),
    (("s32[2,3,50]", "s32[4,2,1]", "s32[4,2,50]"),
     "update_window_dims={2}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, "
     "input_batching_dims={0}, scatter_indices_batching_dims={1}, index_vector_dim=2"),
    (("s32[5,4]", "s32[0]", "s32[5,4]"),
     "update_window_dims={0,1}, inserted_window_dims={}, scatter_dims_to_operand_dims={}, "
     "index_vector_dim=0"),
    (("s32[3,4]", "s32[0,1]", "s32[0,4]"), ROWS),
    (("s32[3,0]", "s32[2,1]", "s32[2,0]"), ROWS),
]  # fmt: skip


@pytest.mark.parametrize(("shapes", "attributes"), FORMS, ids=[f[0][0] for f in FORMS])
def test_dimension_numbers(shapes: tuple[str, str, str], attributes: str) -> None:
    for ranges in (1, 3):
        check(shapes, attributes, "add", ranges)


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 13, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("dtype", ["f32", "s16", "f64"])
def test_short_windows_are_written_out(dtype: str, width: int) -> None:
    """In vectors of whole accesses; by the call that has the unit alone."""
    for ranges in (1, 3):
        check((f"{dtype}[9,{width}]", "s32[31,1]", f"{dtype}[31,{width}]"), ROWS, "add", ranges)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 11])
def test_elements_go_several_a_round(count: int) -> None:
    for ranges in (1, 2):
        check(("f32[5]", f"s32[{count},1]", f"f32[{count}]"), CELLS, "maximum", ranges)


@pytest.mark.parametrize("width", [129, 1000, 2047, 2048])
def test_every_split_gives_the_same_bits(width: int) -> None:
    shapes = (f"f32[20,{width}]", "s32[30,1]", f"f32[30,{width}]")
    first, *others = (check(shapes, ROWS, ranges=n)[0].tobytes() for n in (1, 2, 3, 7))
    assert all(other == first for other in others)


SEVERAL = """HloModule m
f {
  a = f32[] parameter(0)
  c = s32[] parameter(1)
  b = f32[] parameter(2)
  d = s32[] parameter(3)
  ten = f32[] constant(10)
  m = f32[] multiply(ten, a)
  r = f32[] add(m, b)
  q = s32[] maximum(c, d)
  ROOT t = (f32[], s32[]) tuple(r, q)
}
ENTRY e {
  x = f32[6,40] parameter(0)
  y = s32[6,40] parameter(1)
  i = s32[2,2,1] parameter(2)
  u = f32[2,2,40] parameter(3)
  v = s32[2,2,40] parameter(4)
  ROOT s = (f32[6,40], s32[6,40]) scatter(x, y, i, u, v), update_window_dims={2},
    inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=2, to_apply=f
}
"""


def test_several_operands_and_any_combiner_in_order() -> None:
    module = parse(SEVERAL)
    root = module.entry.root
    rng = np.random.default_rng(0)
    x, u = np.zeros((6, 40), np.float32), np.arange(160, dtype=np.float32).reshape(2, 2, 40)
    y, v = (rng.integers(0, 99, s).astype(np.int32) for s in ((6, 40), (2, 2, 40)))
    indices = np.array([[[3], [3]], [[1], [3]]], np.int32)
    operands = (x, y, indices, u, v)
    got = kernel_function(root, only_kernel(root), 2)(*operands)
    np.testing.assert_array_equal(got[0][3], 100 * u[0, 0] + 10 * u[0, 1] + u[1, 1])
    for result, want in zip(got, evaluate(module, *operands), strict=True):
        np.testing.assert_array_equal(result, want)


PAIRS = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=2"
)
SORTED = f"{CELLS}, indices_are_sorted=true"
BATCHES = (
    "update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, "
    "input_batching_dims={0}, scatter_indices_batching_dims={0}, indices_are_sorted=true"
)
INNER = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "input_batching_dims={1}, scatter_indices_batching_dims={1}, index_vector_dim=2"
)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "s8", "u32", "pred"])
@pytest.mark.parametrize("opcode", ["add", "maximum", "replace"])
def test_neighbours_that_are_the_same(dtype: str, opcode: str) -> None:
    if dtype == "pred":
        opcode = {"add": "or", "maximum": "and", "replace": "replace"}[opcode]
    check((f"{dtype}[3]", "s32[7,50]", f"{dtype}[7,50]"), PAIRS, opcode)
    check((f"{dtype}[5]", "s32[90,1]", f"{dtype}[90]"), SORTED, opcode)


def test_what_was_just_combined_stays_in_a_register_where_the_next_is_likely_the_same() -> None:
    def text(indices: str, updates: str, attributes: str, table: str = "f32[3]") -> str:
        dtype = table.split("[")[0]
        module = parse(
            f"HloModule m\n{combiner(dtype, 'add')}\nENTRY e {{\n"
            f"  x = {table} parameter(0)\n  i = {indices} parameter(1)\n"
            f"  u = {updates} parameter(2)\n"
            f"  ROOT s = {table} scatter(x, i, u), {attributes}, to_apply=f\n}}\n"
        )
        return ScatterForm.of(module.entry.root).text

    assert "in a register" in text("s32[7,50]", "f32[7,50]", PAIRS)
    assert "in a register" in text("s32[90,1]", "f32[90]", SORTED)
    assert "in a register" not in text("s32[90,1]", "f32[90]", CELLS)
    assert "in a register" not in text("s32[90,1]", "f32[90,4]", ROWS, "f32[3,4]")
    assert "in a register" not in text("s32[7,50]", "c64[7,50]", PAIRS, "c64[3]")
    rows, cells = f"{BATCHES}, index_vector_dim=2", f"{BATCHES}, index_vector_dim=1"
    assert "in a register" in text("s32[9,50,1]", "f32[9,50]", rows, "f32[9,3]")
    assert "in a register" not in text("s32[9,1]", "f32[9]", cells, "f32[9,3]")
    assert "in a register" not in text("s32[50,9,1]", "f32[50,9]", INNER, "f32[3,9]")


@pytest.mark.parametrize("ranges", [1, 3])
def test_batches_of_neighbours_that_are_the_same(ranges: int) -> None:
    """Of one position each, too: then there is no loop but that over batches."""
    check(("f32[4,3]", "s32[4,50,1]", "f32[4,50]"), f"{BATCHES}, index_vector_dim=2", "add", ranges)
    check(("f32[9,3]", "s32[9,1]", "f32[9]"), f"{BATCHES}, index_vector_dim=1", "add", ranges)
    check(("f32[3,9]", "s32[50,9,1]", "f32[50,9]"), INNER, "add", ranges)
