"""Scatters of one number: counts, marks and bounds, whose updates nobody writes to memory."""

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.ir.module import Module

TEXT = """HloModule m
f {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] {op}
}}
ENTRY e {{
  x = {t}[50] parameter(0)
  i = s32[{n},1] parameter(1)
  one = {t}[] constant({value})
  ones = {t}[{n}] broadcast(one), dimensions={{}}
  ROOT s = {t}[50] scatter(x, i, ones), update_window_dims={{}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
}}"""  # noqa: E501  # an instruction is a line


def module(dtype: str, op: str, value: str, n: int) -> Module:
    return hlo.parse(TEXT.format(t=dtype, op=op, value=value, n=n))


@pytest.mark.parametrize(
    ("dtype", "op", "value"),
    [
        ("f32", "add(a, b)", "0.125"), ("f64", "minimum(a, b)", "0.5"), ("s32", "add(a, b)", "1"),
        ("s64", "add(a, b)", "3"), ("u8", "maximum(a, b)", "200"), ("pred", "copy(b)", "true"),
        ("bf16", "add(a, b)", "1"), ("c64", "add(a, b)", "(1, 2)"),
    ],
)  # fmt: skip
def test_values(dtype: str, op: str, value: str) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 7, 100, 70000):  # Long ones are looked at first, whether indices are sorted.
        given = module(dtype, op, value, n)
        compiled = hlo.compile(given, threads=2)
        x = (rng.integers(0, 16, 50) / 8).astype(given.entry.parameters[0].shape.dtype.numpy)
        places = rng.integers(-3, 55, (n, 1), np.int32)
        for i in (places, np.sort(places, 0)):
            made, expected = compiled(x, i), hlo.evaluate(given, x, i)
            np.testing.assert_array_equal(np.asarray(made), np.asarray(expected))


def test_the_updates_are_in_no_memory() -> None:
    made = Compilation(module("f32", "add(a, b)", "1", 20000))
    assert made.buffers.arena_bytes < 80000
