"""Loops along the last dimension, which go through turned arrays: beside the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from tests.support.by_threads import for_threads
from tests.support.covering import covering

DTYPES = {"f32": np.float32, "f64": np.float64, "s32": np.int32}
WRITES = ("dynamic-update-slice", "scatter", "scatter of a part")


def written(write: str, array: str, column: str, first: str, others: int) -> str:
    """The lines that write a column; the part's first row is `edge`, a place of its own."""
    if write == WRITES[0]:
        return f"""cell = {column} reshape(most)
  next = {array} dynamic-update-slice(x, cell, {first}, j)"""
    at, places = f"{{{others}}}", "one_place = s32[1] reshape(j)\n  place = s32[1] copy(one_place)"
    if write == WRITES[2]:
        at = f"{{0,{others}}}"
        places = """one_place = s32[1] reshape(j)
  two = s32[1] reshape(edge)
  place = s32[2] concatenate(two, one_place), dimensions={0}"""
    windows = ",".join(map(str, range(others)))
    form = f"update_window_dims={{{windows}}}, inserted_window_dims={{{others}}}"
    form += f", scatter_dims_to_operand_dims={at}, index_vector_dim=0, to_apply=put"
    return f"{places}\n  next = {array} scatter(x, place, most), {form}"


def program(dtype: str, dims: tuple[int, ...], write: str) -> str:
    """x[.., i + 1] = max(x[.., i] + y[.., n - 1 - i], y[.., 0]); a part leaves out the first rows.
    A start past the end is clamped by an update, and left out by a scatter.
    """
    *others, last = dims
    window = [others[0] - 2 * (write == WRITES[2]), *others[1:]]
    array, vector, column = (
        f"{dtype}[{','.join(map(str, sizes))}]" for sizes in (dims, window, (*window, 1))
    )
    state = f"(s32[], {array}, {array})"
    sizes = ",".join(map(str, (*window, 1)))
    first = ", ".join(["edge", *["zero"] * (len(others) - 1)])
    made = written(write, array, column, first, len(others))
    return f"""HloModule m
put {{
  old = {dtype}[] parameter(0)
  ROOT new = {dtype}[] parameter(1)
}}
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({last})
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = {array} get-tuple-element(s), index=1
  y = {array} get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  edge = s32[] constant({2 * (write == WRITES[2])})
  end = s32[] constant({last - 1})
  j = s32[] add(i, one)
  k = s32[] subtract(end, i)
  a = {column} dynamic-slice(x, {first}, i), dynamic_slice_sizes={{{sizes}}}
  b = {column} dynamic-slice(y, {first}, k), dynamic_slice_sizes={{{sizes}}}
  c = {column} dynamic-slice(y, {first}, zero), dynamic_slice_sizes={{{sizes}}}
  sum = {column} add(a, b)
  top = {column} maximum(sum, c)
  most = {vector} reshape(top)
  {made}
  ROOT r = {state} tuple(j, next, y)
}}
ENTRY e {{
  zero = s32[] constant(0)
  x = {array} parameter(0)
  y = {array} parameter(1)
  start = {state} tuple(zero, x, y)
  loop = {state} while(start), condition=condition, body=body
  ROOT r = {array} get-tuple-element(loop), index=1
}}"""


@pytest.mark.parametrize(
    ("write", "dims", "dtype"), covering(WRITES, [(400, 90), (37, 29, 41)], DTYPES)
)
def test_columns_are_rows_while_a_loop_runs(dtype: str, dims: tuple[int, ...], write: str) -> None:
    random = np.random.default_rng(len(dims))
    x, y = (random.integers(-99, 99, dims).astype(DTYPES[dtype]) for _ in range(2))
    module = driver.parse(program(dtype, dims, write))
    loop = next(i for i in driver.optimize(module).entry.instructions if i.opcode == "while")
    turned = (dims[-1], *dims[:-1])
    assert [s.dims for s in loop.shape.elements if s.rank] == [turned, turned]
    expected = driver.evaluate(module, x, y)
    for threads in (1, 2):
        found = for_threads(module, threads=threads)(x, y)
        np.testing.assert_array_equal(found, expected)
