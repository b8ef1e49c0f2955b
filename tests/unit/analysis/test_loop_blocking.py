"""How the elements of a loop's state are cut where each block of rows runs the loop by itself."""

from __future__ import annotations

import pytest

from hlo import driver
from hlo.analysis.blocks.block import PLACED, WHOLE, Block
from hlo.analysis.blocks.blocking import loop_spans
from hlo.ir.instruction import Instruction

ROWS = (0,)  # The span of what is cut by rows.


def loop(state: str, body: str, root: str, starts: str, more: str, others: str = "") -> Instruction:
    """The loop of a program whose trips compute the body."""
    shape = f"(s32[], {state})"
    module = driver.parse(f"""HloModule m
sum_of {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
{others}
condition {{
  s = {shape} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = {shape} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  {body}
  ROOT r = {shape} tuple(j, {root})
}}
ENTRY e {{
  zero = s32[] constant(0)
  {more}
  start = {shape} tuple(zero, {starts})
  ROOT loop = {shape} while(start), condition=condition, body=body
}}
""")
    return module.entry.root


def recurrence(rows: int, trips: int) -> Instruction:
    """h = h w + xs[i]; ys[i] = h."""
    h, xs = f"f32[{rows},4]", f"f32[{trips},{rows},4]"
    return loop(
        f"{h}, f32[4,4], {xs}, {xs}",
        f"""h = {h} get-tuple-element(s), index=1
  w = f32[4,4] get-tuple-element(s), index=2
  xs = {xs} get-tuple-element(s), index=3
  ys = {xs} get-tuple-element(s), index=4
  p = {h} dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  x = f32[1,{rows},4] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={{1,{rows},4}}
  xr = {h} reshape(x)
  n = {h} add(p, xr)
  y = f32[1,{rows},4] reshape(n)
  written = {xs} dynamic-update-slice(ys, y, i, zero, zero)""",
        "n, w, xs, written",
        "h, w, xs, ys",
        f"""h = {h} parameter(0)
  w = f32[4,4] parameter(1)
  xs = {xs} parameter(2)
  ys = {xs} custom-call(), custom_call_target="AllocateBuffer", """
        """backend_config={"hlo":{"is_overwritten":true}}""",
    )


@pytest.mark.parametrize("trips", [6, 16])
def test_weights_are_whole_and_what_is_stacked_is_memory_of_all_blocks(trips: int) -> None:
    """Also where there are as many trips as rows."""
    spans = loop_spans(recurrence(16, trips), Block((16,), (8,)))
    assert spans == (WHOLE, ROWS, WHOLE, WHOLE, PLACED)


def test_as_many_rows_as_the_weights_have_do_not_cut_the_weights() -> None:
    assert loop_spans(recurrence(4, 6), Block((4,), (2,))) == (WHOLE, ROWS, WHOLE, WHOLE, PLACED)


def test_trips_are_not_what_blocks_part() -> None:
    spans = loop_spans(recurrence(16, 6), Block((6,), (3,)))
    assert spans is None or ROWS not in spans


def test_rows_that_are_added_up_stay_together() -> None:
    found = loop(
        "f32[16,4]",
        """h = f32[16,4] get-tuple-element(s), index=1
  none = f32[] constant(0)
  all = f32[4] reduce(h, none), dimensions={0}, to_apply=sum_of
  ab = f32[16,4] broadcast(all), dimensions={1}
  n = f32[16,4] add(h, ab)""",
        "n",
        "h",
        "h = f32[16,4] parameter(0)",
    )
    spans = loop_spans(found, Block((16,), (8,)))
    assert spans is None or ROWS not in spans


def test_memory_that_is_filled_before_is_no_memory_of_all_blocks() -> None:
    """Its rows that no trip writes would be nobody's."""
    found = loop(
        "f32[16,4], f32[9,16,4]",
        """h = f32[16,4] get-tuple-element(s), index=1
  ys = f32[9,16,4] get-tuple-element(s), index=2
  n = f32[16,4] add(h, h)
  y = f32[1,16,4] reshape(n)
  written = f32[9,16,4] dynamic-update-slice(ys, y, i, zero, zero)""",
        "n, written",
        "h, ys",
        "h = f32[16,4] parameter(0)\n  ys = f32[9,16,4] parameter(1)",
    )
    spans = loop_spans(found, Block((16,), (8,)))
    assert spans is None or PLACED not in spans


def test_a_loop_inside_of_a_trip_is_left() -> None:
    inner = """inner_condition {
  s = (s32[], f32[16,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2)
  ROOT c = pred[] compare(i, n), direction=LT
}
inner_body {
  s = (s32[], f32[16,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[16,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  n = f32[16,4] add(h, h)
  ROOT r = (s32[], f32[16,4]) tuple(j, n)
}
"""
    found = loop(
        "f32[16,4]",
        """h = f32[16,4] get-tuple-element(s), index=1
  first = (s32[], f32[16,4]) tuple(zero, h)
  last = (s32[], f32[16,4]) while(first), condition=inner_condition, body=inner_body
  n = f32[16,4] get-tuple-element(last), index=1""",
        "n",
        "h",
        "h = f32[16,4] parameter(0)",
        inner,
    )
    assert loop_spans(found, Block((16,), (8,))) is None
