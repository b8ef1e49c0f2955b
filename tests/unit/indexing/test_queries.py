"""What moves an operand's index: dimensions that stay whole, parts, reductions, run-time places."""

from __future__ import annotations

import pytest

import hlo
from hlo.indexing.queries import (
    Step,
    keeps_positions,
    kept_dims,
    operand_dims,
    start_limits,
    steps,
    written_dims,
)
from hlo.ir.instruction import Instruction


def _root(text: str) -> Instruction:
    add = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }\n"
    return hlo.parse(f"HloModule m\n{add}ENTRY e {{ {text} }}").entry.root


X = "x = f32[4,6] parameter(0)\n"
KEPT = {
    "f32[6,5,4] broadcast(x), dimensions={2,0}": (2, 0),
    "f32[6,4] transpose(x), dimensions={1,0}": (1, 0),
    "f32[4,2,3] reshape(x)": (0, None),
    "f32[4,6] negate(x)": (0, 1),
    "f32[4,6] reverse(x), dimensions={1}": (0, None),
    "f32[2,6] slice(x), slice={[0:2],[0:6]}": (None, 1),
    "f32[4,8] concatenate(x, y), dimensions={1}": (0, None),
    "f32[4,9] pad(x, z), padding=0_0x1_2": (0, None),
    "f32[6] reduce(x, z), dimensions={0}, to_apply=add": (None, 0),
    "f32[4,2] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}": (0, None),
    "f32[4,2] dynamic-slice(x, i, i), dynamic_slice_sizes={4,2}": (0, None),
    "f32[3,6] gather(x, n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
    " index_vector_dim=1, slice_sizes={1,6}": (None, 1),
}
OTHERS = (
    "y = f32[4,2] parameter(1)\n z = f32[] parameter(2)\n v = f32[6,2] parameter(3)\n"
    "i = s32[] parameter(4)\n n = s32[3] parameter(5)\n"
)


@pytest.mark.parametrize(("text", "kept"), KEPT.items(), ids=KEPT)
def test_dimensions_that_stay_whole(text: str, kept: tuple[int | None, ...]) -> None:
    assert kept_dims(_root(f"{X}{OTHERS}ROOT r = {text}"), 0) == kept


def test_what_else_moves_an_index() -> None:
    joined = _root(f"{X}{OTHERS}ROOT r = f32[4,8] concatenate(x, y), dimensions={{1}}")
    assert steps(joined, 1) == (Step((0,), is_whole=True), Step((1,), is_partial=True))
    reduced = _root(f"{X}{OTHERS}ROOT r = f32[6] reduce(x, z), dimensions={{0}}, to_apply=add")
    assert steps(reduced, 0) == (Step((), is_reduced=True), Step((0,), is_whole=True))
    update = _root(f"{X}{OTHERS}ROOT r = f32[4,6] dynamic-update-slice(x, y, i, i)")
    assert steps(update, 1) == (
        Step((0,), is_whole=True),
        Step((1,), is_placed=True, is_partial=True),
    )
    assert start_limits(update) == {2: 0, 3: 4}


REDUCTIONS = {
    "f32[4,3] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}": (
        [(0, None), (None, 1)],
        [(1, 0)],
    ),
    "f32[4] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={1},"
    " rhs_contracting_dims={0}": ([(0, 1)], [(1, 0)]),
    "f32[1,3] dot(u, s), lhs_contracting_dims={0}, rhs_contracting_dims={0}": (
        [(1, None), (None, 1)],
        [(0, 0)],
    ),
    "f32[6] reduce(x, z), dimensions={0}, to_apply=add": ([(1, None)], [(0, None)]),
    "f32[2,3,4] convolution(i, k), dim_labels=b0f_0io->b0f, window={size=3}": (
        [(0, None), (None, None), (None, 2)],
        [(2, 1), (None, 0)],
    ),
    "f32[2,3,4] convolution(i, g), dim_labels=b0f_0io->b0f, window={size=3},"
    " feature_group_count=2": (
        [(0, None), (None, None), (None, 2)],
        [(None, 1), (None, 0)],
    ),
}


@pytest.mark.parametrize(("text", "found"), REDUCTIONS.items(), ids=REDUCTIONS)
def test_dimensions_that_run_together(text: str, found: object) -> None:
    others = (
        "z = f32[] parameter(1)\n v = f32[6,3] parameter(2)\n w = f32[6,4] parameter(3)\n"
        "u = f32[1,1] parameter(4)\n s = f32[1,3] parameter(5)\n i = f32[2,5,6] parameter(6)\n"
        "k = f32[3,6,4] parameter(7)\n g = f32[3,3,4] parameter(8)\n"
    )
    assert operand_dims(_root(f"{X}{others}ROOT r = {text}")) == found


SCATTERS = {
    "f32[4,6] scatter(x, n, w), update_window_dims={0}, inserted_window_dims={0},"
    " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add": ((None, 0), 3),
    "f32[4,6] scatter(x, n, u), update_window_dims={0,2}, inserted_window_dims={},"
    " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add": ((0, 2), 2),
    "f32[4,6] scatter(x, b, v), update_window_dims={}, inserted_window_dims={1},"
    " scatter_dims_to_operand_dims={1}, index_vector_dim=1, input_batching_dims={0},"
    " scatter_indices_batching_dims={0}, to_apply=add": ((0, None), 5),
}


@pytest.mark.parametrize(("text", "found"), SCATTERS.items(), ids=SCATTERS)
def test_where_updates_are_written(text: str, found: tuple[tuple[int | None, ...], int]) -> None:
    others = (
        "n = s32[3] parameter(1)\n b = s32[4] parameter(2)\n w = f32[6,3] parameter(3)\n"
        "u = f32[2,3,6] parameter(4)\n v = f32[4] parameter(5)\n"
    )
    scatter = _root(f"{X}{others}ROOT r = {text}")
    assert (written_dims(scatter), start_limits(scatter)) == (found[0], {1: found[1]})


def test_units_are_followed_as_other_dimensions_are() -> None:
    root = _root("x = f32[1,4] parameter(0)\nROOT r = f32[4,1] transpose(x), dimensions={1,0}")
    assert kept_dims(root, 0) == (1, 0)
    assert keeps_positions(root)


def test_without_a_map_any_element_may_be_read() -> None:
    root = _root(
        "x = f32[4,4] parameter(0)\nROOT r = f32[4,4] cholesky(x), lower=true",
    )
    assert steps(root, 0) is None
