"""Rows that meet a streamed matrix together: as many as leave registers for four of its columns."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.vectors.plan import at_once, dots_rows, row_groups
from hlo.machine import NAMED, named
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.by_threads import for_threads
from tests.support.covering import covering
from tests.support.machines_here import that_run_here
from tests.unit.backend.kernels.contraction.test_words import text


@pytest.mark.parametrize(("rows", "groups"), [
    (1, [1]), (6, [6]), (7, [4, 3]), (8, [4, 4]), (12, [6, 6]), (16, [6, 6, 4]),
])  # fmt: skip
def test_groups_are_even(rows: int, groups: list[int]) -> None:
    assert [len(group) for group in row_groups(rows)] == groups


@pytest.mark.parametrize("rows", [5, 6, 7, 8, 16])
@pytest.mark.parametrize(("machine", "columns"), [("x86-64-v4", 4), ("x86-64-v3", 2)])
def test_several_columns_share_the_rows_that_are_read(
    rows: int, machine: str, columns: int
) -> None:
    root = hlo.parse(text(("f32", "f32", "f32"), (rows, 512, 512), 1, 1)).entry.root
    ring = ring_of(root.shape.dtype, Target(NAMED[machine]))
    assert at_once(normal(dot_contraction(root), ring.lanes), ring) >= columns


@pytest.mark.parametrize(("rows", "copied"), [(2, False), (3, True), (16, True)])
def test_narrow_numbers_of_rows_are_converted_once(rows: int, copied: bool) -> None:  # noqa: FBT001
    module = hlo.parse(text(("f16", "f16", "f16"), (rows, 300, 700), 1, 0))
    shown = hlo.driver.emit_stage(module, "loops", machine=NAMED["x86-64-v4"])
    assert ("lhs = " in shown) == copied


@pytest.mark.parametrize(
    ("dtype", "dims"),
    covering(
        ["f16", "f32", "f64", "c64"], [(7, 19, 300), (16, 270, 141), (6, 33, 200)], strength=1
    ),
)
def test_sums_do_not_depend_on_who_waits_in_registers(
    dims: tuple[int, int, int], dtype: str
) -> None:
    """A row has the same bits wherever it is among the rows, on any number of threads."""
    module = hlo.parse(text((dtype, dtype, dtype), dims, 1, 0))
    x, y = (np.asarray(v) for v in made_up_inputs(module))
    whole = np.asarray(hlo.compile(module, cache=False)(x, y))
    for threads in (1, 2, 3, 7):
        again = np.asarray(for_threads(module, threads=threads)(x, y))
        assert again.tobytes() == whole.tobytes()
    turned = np.asarray(hlo.compile(module, cache=False)(x[::-1].copy(), y))
    assert turned[::-1].tobytes() == whole.tobytes()


@pytest.mark.parametrize(("machine", "rows", "groups", "columns"), [
    ("x86-64-v4", 2, [2], 4), ("x86-64-v4", 6, [3, 3], 2), ("x86-64-v4", 8, [4, 4], 2),
    ("x86-64-v3", 2, [2], 2), ("x86-64-v3", 6, [2, 2, 2], 2),
])  # fmt: skip
def test_both_parts_of_complex_rows_stay_in_registers(
    machine: str, rows: int, groups: list[int], columns: int
) -> None:
    root = hlo.parse(text(("c64", "c64", "c64"), (rows, 512, 512), 1, 1)).entry.root
    ring = ring_of(root.shape.dtype, Target(NAMED[machine]))
    c = normal(dot_contraction(root), ring.lanes)
    assert [len(group) for group in dots_rows(c, ring)] == groups
    assert at_once(c, ring) == columns


COLUMNS = """HloModule m
ENTRY e {{
  a = {dtype}[{batch}300,{k}] parameter(0)
  b = {dtype}[{batch}{k},{n}] {rhs}
  ROOT d = {dtype}[{batch}300,{n}] dot(a, b), {batches}lhs_contracting_dims={{{depth}}},
    rhs_contracting_dims={{{across}}}
}}
"""


def columns_text(dtype: str, n: int, k: int, batch: int, rhs: str) -> str:
    first = int(batch > 0)
    return COLUMNS.format(
        dtype=dtype, n=n, k=k, rhs=rhs, depth=1 + first, across=first,
        batch=f"{batch}," if batch else "",
        batches="lhs_batch_dims={0}, rhs_batch_dims={0}, " if batch else "",
    )  # fmt: skip


def complex_integers(numbers: np.random.Generator, dtype: str, *sizes: int) -> np.ndarray:
    found = numbers.integers(-3, 4, sizes) + 1j * numbers.integers(-3, 4, sizes)
    return found.astype({"c64": np.complex64, "c128": np.complex128}[dtype])


@pytest.mark.parametrize(
    ("dtype", "n", "k", "batch", "machine"),
    covering(
        ["c64", "c128"], [2, 3, 4, 6, 8], [120, 257, 331], [0, 3],
        that_run_here("x86-64-v2", "x86-64-v3", "x86-64-v4"),
    ),
)  # fmt: skip
def test_few_complex_columns_are_met_by_rows_along_depth(
    dtype: str, n: int, k: int, batch: int, machine: str
) -> None:
    """Exact sums, and nothing is read or written beside the arrays."""
    numbers = np.random.default_rng(n)
    module = hlo.parse(columns_text(dtype, n, k, batch, "parameter(1)"))
    some = (batch,) if batch else ()
    a, b = (
        complex_integers(numbers, dtype, *some, 300, k),
        complex_integers(numbers, dtype, *some, k, n),
    )
    for threads in (1, 3):
        made = hlo.compile(module, threads=threads, cache=False, machine=named(machine))
        assert (np.asarray(made.run_guarded(a, b)) == a @ b).all()


def test_few_complex_columns_are_dots_and_no_tiles() -> None:
    module = hlo.parse(columns_text("c64", 4, 512, 0, "parameter(1)"))
    shown = hlo.driver.emit_stage(module, "loops", machine=NAMED["x86-64-v4"])
    assert "add of products over r in 512 by 16 lanes" in shown, shown


def test_complex_columns_that_are_known_are_taken_apart_beforehand() -> None:
    columns = np.arange(3 * 70).reshape(70, 3) % 7 * (1 - 2j)
    shown = ", ".join(
        "{" + ", ".join(f"({int(x.real)}, {int(x.imag)})" for x in row) + "}" for row in columns
    )
    module = hlo.parse(columns_text("c64", 3, 70, 0, f"constant({{{shown}}})"))
    rows = complex_integers(np.random.default_rng(0), "c64", 300, 70)
    found = np.asarray(hlo.compile(module, cache=False)(rows))
    assert (found == rows @ columns.astype(np.complex64)).all()


def test_complex_columns_meet_a_matrix_that_a_loop_keeps() -> None:
    """Panels of the matrix, which rows of the ring's numbers meet, are not made."""
    module = hlo.parse("""HloModule m
    body {
      s = (s32[], c64[64,64], c64[64,3]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      a = c64[64,64] get-tuple-element(s), index=1
      x = c64[64,3] get-tuple-element(s), index=2
      one = s32[] constant(1)
      j = s32[] add(i, one)
      y = c64[64,3] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT r = (s32[], c64[64,64], c64[64,3]) tuple(j, a, y)
    }
    more {
      s = (s32[], c64[64,64], c64[64,3]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      n = s32[] constant(2)
      ROOT r = pred[] compare(i, n), direction=LT
    }
    ENTRY e {
      a = c64[64,64] parameter(0)
      x = c64[64,3] parameter(1)
      z = s32[] constant(0)
      s = (s32[], c64[64,64], c64[64,3]) tuple(z, a, x)
      w = (s32[], c64[64,64], c64[64,3]) while(s), condition=more, body=body
      ROOT r = c64[64,3] get-tuple-element(w), index=2
    }""")
    numbers = np.random.default_rng(0)
    a, x = complex_integers(numbers, "c64", 64, 64), complex_integers(numbers, "c64", 64, 3)
    found = np.asarray(hlo.compile(module, passes="", cache=False)(a, x))
    assert (found == a @ (a @ x)).all()
    again = np.asarray(hlo.compile(module, cache=False)(a, x))
    assert (again == a @ (a @ x)).all()
