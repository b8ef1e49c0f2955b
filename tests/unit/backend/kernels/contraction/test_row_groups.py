"""Rows that meet a streamed matrix together: as many as leave registers for four of its columns."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.vectors.plan import at_once, row_groups
from hlo.machine import NAMED
from hlo.tools.inputs import made_up_inputs
from tests.support.by_threads import for_threads
from tests.support.covering import covering
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
