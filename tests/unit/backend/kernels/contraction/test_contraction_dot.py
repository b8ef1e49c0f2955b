"""Dots of random dimension numbers, sizes and types against NumPy, on several vector widths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.problem.buffer_numbers import BufferNumbers
from hlo.backend.kernels.contraction.problem.result import Epilogue, Lanes
from hlo.backend.lanes import masked
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from tests.support.contraction_harness import Compiled, levels, target_of
from tests.support.covering import covering

SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 64, 67)
TYPES = (
    dt.PRED, dt.S8, dt.S16, dt.S32, dt.S64, dt.U8, dt.U16, dt.U32, dt.U64,
    dt.BF16, dt.F16, dt.F32, dt.F64, dt.C64, dt.C128, dt.S4, dt.U4, dt.F8E4M3FN, dt.F8E5M2,
)  # fmt: skip


def dot(lhs: Shape, rhs: Shape, out: dt.DType, **numbers: tuple[int, ...]) -> Instruction:
    lb, rb = numbers.get("lhs_batch_dims", ()), numbers.get("rhs_batch_dims", ())
    lc, rc = numbers.get("lhs_contracting_dims", ()), numbers.get("rhs_contracting_dims", ())
    dims = [lhs.dims[d] for d in lb]
    dims += [n for d, n in enumerate(lhs.dims) if d not in (*lb, *lc)]
    dims += [n for d, n in enumerate(rhs.dims) if d not in (*rb, *rc)]
    operands = (Instruction("l", "parameter", lhs), Instruction("r", "parameter", rhs))
    attributes = {
        "lhs_batch_dims": lb, "rhs_batch_dims": rb,
        "lhs_contracting_dims": lc, "rhs_contracting_dims": rc,
    }  # fmt: skip
    return Instruction("d", "dot", Shape.array(out, dims), operands, attributes)


def values(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    dtype = shape.dtype
    if dtype.is_pred:
        return rng.random(shape.dims) < 0.3
    if dtype.is_integral:
        low, high = (max(-1000, dtype.int_range[0]), min(1000, dtype.int_range[1]))
        return rng.integers(low, high + 1, shape.dims).astype(dtype.numpy)
    real = rng.standard_normal(shape.dims)
    if dtype.component is not dtype:
        real = real + 1j * rng.standard_normal(shape.dims)
    return np.asarray(real).astype(dtype.numpy)


def reference(instruction: Instruction, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Exact or in a wider type, not yet rounded to the result type. Integers of `values` are small:
    their sums are exact as f64, which NumPy multiplies a hundred times as fast as Python's.
    """
    out = instruction.shape.dtype
    wide = np.complex128 if out.component is not out else np.float64
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    names = [[next(letters) for _ in lhs.shape], [next(letters) for _ in rhs.shape]]
    at = instruction.attributes
    for kind in ("batch", "contracting"):
        for i, j in zip(at[f"lhs_{kind}_dims"], at[f"rhs_{kind}_dims"], strict=True):
            names[1][j] = names[0][i]
    used = (*at["lhs_batch_dims"], *at["lhs_contracting_dims"])
    result = [names[0][i] for i in at["lhs_batch_dims"]]
    result += [n for d, n in enumerate(names[0]) if d not in used]
    used = (*at["rhs_batch_dims"], *at["rhs_contracting_dims"])
    result += [n for d, n in enumerate(names[1]) if d not in used]
    equation = "".join(names[0]) + "," + "".join(names[1]) + "->" + "".join(result)
    a, b = (convert(x, out).astype(wide) for x in (lhs, rhs))
    result = np.einsum(equation, a, b, optimize=True)
    if not out.is_integral:
        return result
    magnitudes = np.einsum(equation, abs(a), abs(b), optimize=True)
    assert magnitudes.max(initial=0) < 2**53
    return np.asarray(result).astype(np.int64).astype(object)


def convert(x: np.ndarray, out: dt.DType) -> np.ndarray:
    if out.is_pred:
        return x != 0
    if out.is_integral and x.dtype.kind not in "iub":
        return np.clip(np.trunc(x.astype(np.float64)), *out.int_range)
    return x.astype(out.numpy) if out.is_integral else x


def check(instruction: Instruction, got: np.ndarray, exact: np.ndarray, k: int) -> None:
    out = instruction.shape.dtype
    if out.is_pred:
        np.testing.assert_array_equal(got, exact != 0)
        return
    if out.is_integral:
        low, _ = out.int_range
        wrapped = (exact - low) % (1 << out.bits) + low
        np.testing.assert_array_equal(got.astype(object), wrapped)
        return
    eps = {"bf16": 2**-8, "f16": 2**-10, "f8e4m3fn": 2**-4, "f8e5m2": 2**-3}.get(out.name, 0)
    eps += (2**-52 if out.component is dt.F64 else 2**-23) * (k + 4) * 2
    scale = np.maximum(np.abs(exact), np.sqrt(k + 1))
    assert np.all(np.abs(got.astype(exact.dtype) - exact) <= eps * scale)


def run(instruction: Instruction, seed: int = 0, level: str = "host") -> None:
    rng = np.random.default_rng(seed)
    operands = [values(rng, o.shape) for o in instruction.operands]
    compiled = Compiled(contraction_kernels(instruction, target_of(level)), level)
    results = []
    for pieces in (1, 3):
        guarded = np.full(instruction.shape.size_bytes + 128, 0x55, np.uint8)
        inner = guarded[64:-64].view(instruction.shape.dtype.numpy)
        results.append(compiled(operands, inner.reshape(instruction.shape.dims), pieces))
        assert (guarded[:64] == 0x55).all()
        assert (guarded[-64:] == 0x55).all()
    assert results[0].tobytes() == results[1].tobytes()
    lc = instruction.attributes["lhs_contracting_dims"]
    k = int(np.prod([instruction.operands[0].shape.dims[d] for d in lc]))
    check(instruction, results[0], reference(instruction, *operands), k)


def random_dot(rng: np.random.Generator, types: tuple[dt.DType, ...]) -> Instruction:
    counts = rng.integers(0, 3, 4)
    limit = 200_000

    def sizes(n: int) -> list[int]:
        return [int(rng.choice(SIZES)) for _ in range(n)]

    while True:
        batch, depth, rows, columns = (sizes(int(n)) for n in counts)
        if np.prod([max(n, 1) for n in (*batch, *depth, *rows, *columns)]) <= limit:
            break
    sides = []
    for free in (rows, columns):
        kinds = [("b", i) for i in range(len(batch))] + [("c", i) for i in range(len(depth))]
        kinds += [("f", i) for i in range(len(free))]
        order = [kinds[i] for i in rng.permutation(len(kinds))]
        sides.append((order, {"b": batch, "c": depth, "f": free}))
    if len(batch) > 1 and rng.random() < 0.5:
        batch_order = list(range(len(batch)))[::-1]
    else:
        batch_order = list(range(len(batch)))
    numbers = {}
    for name, (order, _) in zip(("lhs", "rhs"), sides, strict=True):
        numbers[f"{name}_batch_dims"] = tuple(order.index(("b", i)) for i in batch_order)
        numbers[f"{name}_contracting_dims"] = tuple(
            order.index(("c", i)) for i in range(len(depth))
        )
    shapes = [
        Shape.array(types[i], [size[kind][at] for kind, at in order])
        for i, (order, size) in enumerate(sides)
    ]
    return dot(shapes[0], shapes[1], types[2], **numbers)


@pytest.mark.parametrize("seed", range(40))
def test_random_f32_dot(seed: int) -> None:
    rng = np.random.default_rng(seed)
    run(random_dot(rng, (dt.F32, dt.F32, dt.F32)), seed)


@pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)
def test_random_dot_of_type(type: dt.DType) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        run(random_dot(rng, (type, type, type)), seed)


MIXED = [
    (dt.S8, dt.S8, dt.S32), (dt.U8, dt.S8, dt.S32), (dt.PRED, dt.PRED, dt.S32),
    (dt.F32, dt.F32, dt.S32), (dt.BF16, dt.BF16, dt.F32), (dt.F32, dt.F32, dt.BF16),
    (dt.F32, dt.F32, dt.F64), (dt.BF16, dt.F32, dt.F32), (dt.S32, dt.F32, dt.F32),
    (dt.S4, dt.S8, dt.S32), (dt.F8E4M3FN, dt.F8E4M3FN, dt.F32), (dt.F32, dt.C64, dt.C64),
    (dt.F16, dt.F16, dt.F32), (dt.S64, dt.S64, dt.S8),
]  # fmt: skip


@pytest.mark.parametrize("types", MIXED, ids=lambda t: "-".join(x.name for x in t))
def test_random_dot_of_mixed_types(types: tuple[dt.DType, ...]) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        run(random_dot(rng, types), seed)


@pytest.mark.parametrize("level", levels())
def test_random_dot_on_level(level: str) -> None:
    for seed, type in enumerate((dt.F32, dt.F32, dt.F32, dt.F64, dt.BF16, dt.C64, dt.S32)):
        rng = np.random.default_rng(seed)
        run(random_dot(rng, (type, type, type)), seed, level)


BLOCKED = [
    (70, 90, 1100), (1, 300, 2000), (300, 1, 2000), (3, 65, 5000), (257, 259, 40), (1, 1, 999),
    (12, 1100, 1000), (2, 1100, 2000), (20, 40, 6000), (40, 9, 4096), (1, 500, 4100),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "transposed"),
    list(itertools.product(BLOCKED, ((0, 0), (1, 0), (0, 1), (1, 1)))),
)
def test_blocked_dot(sizes: tuple[int, int, int], transposed: tuple[int, int]) -> None:
    m, n, k = sizes
    lhs = (k, m) if transposed[0] else (m, k)
    rhs = (n, k) if transposed[1] else (k, n)
    numbers = {
        "lhs_contracting_dims": (0 if transposed[0] else 1,),
        "rhs_contracting_dims": (1 if transposed[1] else 0,),
    }
    run(dot(Shape.array(dt.F32, lhs), Shape.array(dt.F32, rhs), dt.F32, **numbers))


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("type", [dt.F32, dt.F64], ids=lambda t: t.name)
@pytest.mark.parametrize("sizes", [(33, 50, 70), (15, 9, 33), (70, 130, 2100), (2, 17, 3)])
def test_tiles_on_level(sizes: tuple[int, int, int], type: dt.DType, level: str) -> None:
    m, n, k = sizes
    for lhs in ((m, k), (k, m)):
        numbers = {"lhs_contracting_dims": (lhs.index(k),), "rhs_contracting_dims": (0,)}
        shapes = (Shape.array(type, lhs), Shape.array(type, (k, n)))
        run(dot(*shapes, type, **numbers), level=level)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("type", [dt.F32, dt.C64, dt.S32], ids=lambda t: t.name)
def test_few_long_rows_of_every_remainder(type: dt.DType, level: str) -> None:
    """Vectors along depth, which several sums of one result take turn by turn."""
    depths = [*range(8, 73, 9), 515, 2051]
    for seed, (n, k) in enumerate(itertools.product((1, 2, 3, 5), depths)):
        lhs = Shape.array(type, (1 + seed % 3, k))
        rhs = Shape.array(type, (n, k))
        numbers = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (1,)}
        run(dot(lhs, rhs, type, **numbers), seed, level)
    for seed, inner in enumerate((17, 40, 300)):
        lhs, rhs = Shape.array(type, (1, 5, inner)), Shape.array(type, (5, 2, inner))
        numbers = {"lhs_contracting_dims": (1, 2), "rhs_contracting_dims": (0, 2)}
        run(dot(lhs, rhs, type, **numbers), seed, level)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize(
    "type", [dt.F32, dt.F64, dt.BF16, dt.C64, dt.S32, dt.S8, dt.PRED], ids=lambda t: t.name
)
def test_few_columns(type: dt.DType, level: str) -> None:
    """Rows that run along depth meet them as dots, behind a copy, in one group or two."""
    out = {dt.BF16: dt.F32, dt.S8: dt.S32}.get(type, type)
    for seed, (n, k) in enumerate([(1, 70), (2, 33), (3, 515), (7, 300), (8, 1031), (13, 700)]):
        for batch in ((), (3,)):
            lhs, rhs = (Shape.array(type, (*batch, *dims)) for dims in ((37, k), (k, n)))
            at = len(batch)
            numbers = dict.fromkeys(("lhs_batch_dims", "rhs_batch_dims"), tuple(range(at)))
            numbers |= {"lhs_contracting_dims": (at + 1,), "rhs_contracting_dims": (at,)}
            run(dot(lhs, rhs, out, **numbers), seed, level)


@pytest.mark.parametrize(
    ("level", "type", "rows"), covering(levels(), [dt.F32, dt.F64, dt.C64], [1, 3, 8, 9, 13, 16])
)
def test_rows_that_stream_a_large_matrix(rows: int, type: dt.DType, level: str) -> None:
    for k, n in ((1100, 1030), (2051, 520)):
        lhs, rhs = Shape.array(type, (rows, k)), Shape.array(type, (k, n))
        numbers = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
        run(dot(lhs, rhs, type, **numbers), rows, level)


def test_nan_times_zero_is_nan() -> None:
    instruction = dot(Shape.array(dt.F32, (1, 2)), Shape.array(dt.F32, (2, 1)), dt.F32,
                      lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))  # fmt: skip
    compiled = Compiled(contraction_kernels(instruction, target_of()))
    lhs, rhs = np.array([[np.nan, 1]], np.float32), np.array([[0], [0]], np.float32)
    assert np.isnan(compiled([lhs, rhs], np.zeros((1, 1), np.float32))).all()


@pytest.mark.parametrize(
    "sizes",
    [
        (5, 40, 30), (1, 2000, 2000), (3, 40, 30), (70, 90, 2100), (10, 20, 6000), (33, 50, 70),
        (12, 1100, 1000),
    ],
)  # fmt: skip
def test_epilogue_adds_a_row_and_rounds(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    instruction = dot(Shape.array(dt.F32, (m, k)), Shape.array(dt.F32, (n, k)), dt.F32,
                      lhs_contracting_dims=(1,), rhs_contracting_dims=(1,))  # fmt: skip

    def biased(w: Writer, sums: tuple[Value, ...], lanes: Lanes) -> tuple[Value, ...]:
        column = w.binary("urem", lanes.index, w.int(n))
        bias = w.address(lanes.others[0], column, "float")
        row = masked.load(w, f"<{lanes.count} x float>", bias, 4, lanes.mask)
        total = w.binary("fadd", sums[0], row)
        return (w.cast("fptrunc", total, f"<{lanes.count} x half>"),)

    buffers = BufferNumbers(result=3, temporaries=4)
    epilogue = Epilogue(dt.F16, biased, (2,))
    compiled = Compiled(contraction_kernels(instruction, target_of(), lambda _: epilogue, buffers))
    rng = np.random.default_rng(0)
    lhs, rhs = (values(rng, o.shape) for o in instruction.operands)
    bias = values(rng, Shape.array(dt.F32, (n,)))
    got = compiled([lhs, rhs, bias], np.zeros((m, n), np.float16))
    expected = lhs.astype(np.float64) @ rhs.astype(np.float64).T + bias
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3 * np.sqrt(k))


TILED = [(64, 64, 128), (33, 90, 192), (9, 200, 777), (200, 17, 1024), (100, 70, 200)]


@pytest.mark.parametrize(
    ("types", "sizes", "form"),
    covering(
        [
            (dt.BF16, dt.BF16, dt.F32),
            (dt.BF16, dt.BF16, dt.BF16),
            (dt.S8, dt.S8, dt.S32),
            (dt.U8, dt.S8, dt.S32),
            (dt.S8, dt.U8, dt.S16),
        ],
        TILED,
        ["rows of two", "batch", "columns", "two axes of depth"],
    ),
)
def test_dot_of_narrow_types_in_tiles(
    types: tuple[dt.DType, ...], sizes: tuple[int, int, int], form: str
) -> None:
    m, n, k = sizes
    left, right, numbers = {
        "rows of two": (
            (2, m, k), (k, n), {"lhs_contracting_dims": (2,), "rhs_contracting_dims": (0,)},
        ),
        "batch": (
            (2, m, k), (2, n, k),
            {"lhs_contracting_dims": (2,), "rhs_contracting_dims": (2,),
             "lhs_batch_dims": (0,), "rhs_batch_dims": (0,)},
        ),
        "columns": (
            (k, m), (k, n), {"lhs_contracting_dims": (0,), "rhs_contracting_dims": (0,)},
        ),
        "two axes of depth": (
            (3, m, 64), (3, 64, 2, 32),
            {"lhs_contracting_dims": (0, 2), "rhs_contracting_dims": (0, 1)},
        ),
    }[form]  # fmt: skip
    lhs, rhs = Shape.array(types[0], left), Shape.array(types[1], right)
    run(dot(lhs, rhs, types[2], **numbers))


@pytest.mark.parametrize("type", [dt.PRED, dt.S8, dt.S64, dt.F16, dt.C64], ids=lambda t: t.name)
def test_long_depth_of_type(type: dt.DType) -> None:
    lhs, rhs = Shape.array(type, (2, 10, 2, 3000)), Shape.array(type, (2, 2, 3000, 9))
    numbers = {"lhs_contracting_dims": (2, 3), "rhs_contracting_dims": (1, 2),
               "lhs_batch_dims": (0,), "rhs_batch_dims": (0,)}  # fmt: skip
    run(dot(lhs, rhs, type, **numbers))
