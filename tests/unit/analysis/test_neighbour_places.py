"""Which lookups are neighbours: places that are moved from one number by constants."""

from __future__ import annotations

import hlo
from hlo.analysis.neighbour_places import neighbours
from hlo.ir.instruction import Instruction

PROGRAM = """
HloModule m
ENTRY e {
  x = f32[50,60] parameter(0)
  i = s32[9,1] parameter(1)
  j = s32[9,1] parameter(2)
  three = s32[] constant(3)
  threes = s32[9,1] broadcast(three), dimensions={}
  last = s32[] constant(59)
  lasts = s32[9,1] broadcast(last), dimensions={}
  zero = s32[] constant(0)
  zeros = s32[9,1] broadcast(zero), dimensions={}
  k = s32[9,1] add(j, threes)
  is_below = pred[9,1] compare(k, zeros), direction=LT
  from_end = s32[9,1] add(k, lasts)
  wrapped = s32[9,1] select(is_below, from_end, k)
  held = s32[9,1] minimum(wrapped, lasts)
  other = s32[9,1] multiply(j, threes)
  below = s32[9,1] subtract(i, threes)
  p = s32[9,2] concatenate(i, j), dimensions={1}
  q = s32[9,2] concatenate(i, held), dimensions={1}
  s = s32[9,2] concatenate(i, other), dimensions={1}
  t = s32[9,2] concatenate(below, j), dimensions={1}
  at = f32[9] gather(x, p), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}
  beside = f32[9] gather(x, q), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}
  elsewhere = f32[9] gather(x, s), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}
  in_another_row = f32[9] gather(x, t), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}
  ROOT r = (f32[9], f32[9], f32[9], f32[9]) tuple(at, beside, elsewhere, in_another_row)
}
"""  # noqa: E501


def lookups() -> dict[str, Instruction]:
    return {i.name: i for i in hlo.parse(PROGRAM).entry.instructions if i.opcode == "gather"}


def test_clamps_and_wraps_are_looked_through() -> None:
    found = lookups()
    assert neighbours(found["at"]) == {found["at"]: 0, found["beside"]: 3}


def test_distances_are_counted_from_the_lookup_itself() -> None:
    found = lookups()
    assert neighbours(found["beside"]) == {found["at"]: -3, found["beside"]: 0}


def test_other_numbers_and_other_rows_are_no_neighbours() -> None:
    found = lookups()
    for name in ("elsewhere", "in_another_row"):
        assert neighbours(found[name]) == {found[name]: 0}
