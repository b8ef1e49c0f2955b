"""Rows that meet a streamed matrix together: as many as leave registers for four of its columns."""

from __future__ import annotations

import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.vectors.plan import at_once, row_groups
from hlo.machine import NAMED
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
