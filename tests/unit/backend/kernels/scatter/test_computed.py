"""Scatters that compute their updates: equal to the reference, the same bits for all threads."""

import numpy as np
import pytest

import hlo
from hlo.analysis.scatters import computed_scatter
from hlo.backend.compilation import Compilation
from hlo.ir.module import Module

ROWS = (
    "update_window_dims={{{windows}}}, inserted_window_dims={{0}}, "
    "scatter_dims_to_operand_dims={{0}}, index_vector_dim=1"
)
TEXT = """HloModule m
f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] {opcode}(a, b)
}}
ENTRY e {{
  x = {kind}[30,{row}] parameter(0)
  i = s32[200,1] parameter(1)
  h = {kind}[50,{row}] parameter(2)
  j = s32[200,1] parameter(3)
  w = {kind}[200] parameter(4)
  picked = {kind}[200,{row}] gather(h, j), offset_dims={{{windows}}}, collapsed_slice_dims={{0}},
    start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{row}}}
  factor = {kind}[200,{row}] broadcast(w), dimensions={{0}}
  u = {kind}[200,{row}] {how}(picked, factor)
  ROOT s = {kind}[30,{row}] scatter(x, i, u), {attributes}, to_apply=f
}}
"""


def program(kind: str, row: tuple[int, ...], opcode: str, how: str = "multiply") -> Module:
    windows = ",".join(str(d + 1) for d in range(len(row)))
    text = TEXT.format(
        kind=kind, row=",".join(map(str, row)), windows=windows, opcode=opcode, how=how,
        attributes=ROWS.format(windows=windows),
    )  # fmt: skip
    return hlo.parse(text)


def operands(kind: str, row: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(row))
    form = {"f32": np.float32, "f64": np.float64, "s32": np.int32, "s8": np.int8}[kind]
    x, h = ((rng.standard_normal((n, *row)) * 9).astype(form) for n in (30, 50))
    i, j = (rng.integers(-3, n + 3, (200, 1)).astype(np.int32) for n in (30, 50))
    return [x, i, h, j, (rng.standard_normal(200) * 5).astype(form)]


@pytest.mark.parametrize("row", [(4,), (7,), (16,), (33,), (100,), (3, 8), (5, 4), (2, 3, 40)])
@pytest.mark.parametrize(
    ("kind", "opcode", "how"),
    [
        ("f32", "add", "multiply"), ("f64", "maximum", "divide"), ("s32", "add", "multiply"),
        ("s8", "minimum", "subtract"),
    ],
)  # fmt: skip
def test_updates_are_combined_in_order(
    kind: str, opcode: str, how: str, row: tuple[int, ...]
) -> None:
    module = program(kind, row, opcode, how)
    assert computed_scatter(hlo.optimize(module).entry.root) is not None
    given = operands(kind, row)
    expected = hlo.evaluate(module, *given)
    results = [
        hlo.compile(module, threads=threads, cache=False)(*given) for threads in (1, 2, 3, 7)
    ]
    stored = hlo.compile(module, passes="", cache=False)(*given)
    for found in results:
        assert np.array_equal(found, stored, equal_nan=True)
    assert np.allclose(stored, expected, rtol=1e-5, atol=1e-4, equal_nan=True)


def test_batches_compute_theirs() -> None:
    module = hlo.parse("""HloModule m
f { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[3,30,20] parameter(0)
  i = s32[3,200,1] parameter(1)
  v = f32[3,200,20] parameter(2)
  u = f32[3,200,20] multiply(v, v)
  ROOT s = f32[3,30,20] scatter(x, i, u), update_window_dims={2}, inserted_window_dims={1},
    scatter_dims_to_operand_dims={1}, index_vector_dim=2, input_batching_dims={0},
    scatter_indices_batching_dims={0}, to_apply=f
}
""")
    assert computed_scatter(hlo.optimize(module).entry.root) is not None
    rng = np.random.default_rng(1)
    x, v = (rng.standard_normal(s).astype(np.float32) for s in ((3, 30, 20), (3, 200, 20)))
    i = rng.integers(-3, 33, (3, 200, 1)).astype(np.int32)
    expected = hlo.evaluate(module, x, i, v)
    for threads in (1, 2, 3):
        found = hlo.compile(module, threads=threads, cache=False)(x, i, v)
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_what_is_written_is_not_read() -> None:
    module = program("f32", (16,), "add")
    x, i, h, j, w = operands("f32", (16,))
    text = module.to_text().replace("gather(%h,", "gather(%x,")
    both = hlo.parse(text)
    assert computed_scatter(hlo.optimize(both).entry.root) is None
    expected = hlo.evaluate(both, x, i, h, j, w)
    found = hlo.compile(both, cache=False)(x, i, h, j, w)
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_what_is_written_is_not_read_by_another_name() -> None:
    module = hlo.parse("""HloModule m
f { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  p = f32[30,20] parameter(0)
  i = s32[200,1] parameter(1)
  x = f32[30,20] negate(p)
  h = f32[60,10] reshape(x)
  row = f32[200,10] gather(h, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,10}
  one = f32[] constant(1)
  u = f32[200,20] pad(row, one), padding=0_0x0_10
  ROOT s = f32[30,20] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
}
""")
    rng = np.random.default_rng(1)
    p = rng.standard_normal((30, 20)).astype(np.float32)
    i = rng.integers(0, 30, (200, 1)).astype(np.int32)
    expected = hlo.evaluate(module, p, i)
    assert np.allclose(hlo.compile(module, cache=False)(p, i), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("dtype", "row", "temporaries"), [("bf16", 20, 1), ("f16", 3, 2)])
def test_narrow_rows_are_converted_where_they_are_combined(
    dtype: str, row: int, temporaries: int
) -> None:
    module = hlo.parse(f"""HloModule m
f {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) ROOT c = {dtype}[] add(a, b) }}
ENTRY e {{
  x = {dtype}[30,{row}] parameter(0)
  i = s32[200,1] parameter(1)
  u = {dtype}[200,{row}] parameter(2)
  ROOT s = {dtype}[30,{row}] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
}}
""")
    (sequence,) = Compilation(module).implementations.values()
    assert len(sequence.temporaries) == temporaries
    rng = np.random.default_rng(row)
    form = module.entry.root.shape.dtype.numpy
    x, u = (rng.standard_normal(s).astype(form) for s in ((30, row), (200, row)))
    i = rng.integers(-3, 33, (200, 1)).astype(np.int32)
    expected = hlo.evaluate(module, x, i, u)
    found = [hlo.compile(module, threads=n, cache=False)(x, i, u) for n in (1, 3)]
    assert np.asarray(found[0]).tobytes() == np.asarray(found[1]).tobytes()
    close = 0.02 if dtype == "bf16" else 0.005
    assert np.allclose(found[0].astype(float), expected.astype(float), rtol=close, atol=close)
