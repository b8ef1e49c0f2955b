"""Numbering of units: every unit has one place, boxes side by side share their rows."""

import re

import numpy as np
import pytest

import hlo
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.kernels.unit_limits import unit_limits
from hlo.backend.linking.toolchain import host_target
from hlo.backend.loops.spans import Span, _evened, total_of

ROWS = """HloModule rows
ENTRY %main (x: f32[1000,500], y: f32[1000,300]) -> f32[1000,804] {
  %x = f32[1000,500] parameter(0)
  %y = f32[1000,300] parameter(1)
  %zero = f32[] constant(0)
  %padded = f32[1000,504] pad(%x, %zero), padding=0_0x2_2
  ROOT %r = f32[1000,804] concatenate(%padded, %y), dimensions={1}
}
"""


def _limit(span: Span, number: int) -> int:
    """What the code computes."""
    return min(max(number - span.first, 0), span.count) * span.units // span.count


@pytest.mark.parametrize("span", [Span(0, 10, 10), Span(3, 7, 100), Span(5, 900, 4), Span(2, 8, 1)])
def test_pieces_cover_each_unit_once(span):
    total = span.first + span.count + 3
    for pieces in (1, 2, 3, 7, total):
        bounds = [total * k // pieces for k in range(pieces + 1)]
        found = [_limit(span, n) for n in bounds]
        assert found[0] == 0
        assert found[-1] == span.units
        assert found == sorted(found)


def test_columns_share_their_rows_numbers():
    module = hlo.parse(ROWS)
    pad = module.entry.root.operands[0]
    kernel = fused_kernel(pad, host_target())
    assert kernel.units == 1000
    assert "smax" not in kernel.text


def test_groups_of_unequal_work_share_numbers_by_it():
    assert _evened([64, 64], [100, 90]) == [64, 64]
    heavy, light = _evened([64, 1000], [900, 100])
    assert heavy > 9 * light - 10
    assert light > 0
    assert total_of([Span(0, heavy, 64), Span(heavy, light, 1000)]) == heavy + light


def test_limits_are_written_only_where_they_bound():
    w = Writer()
    begin, end = Value("%begin", "i64"), Value("%end", "i64")
    assert unit_limits(w, Span(0, 8, 8), begin, end, 8) == (begin, end)
    assert not w.records
    unit_limits(w, Span(2, 4, 3), begin, end, 9)
    assert len(re.findall(r"udiv", w.text())) == 2


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_boxes_are_whole_for_any_number_of_threads(threads):
    x = np.arange(500_000, dtype=np.float32).reshape(1000, 500)
    y = -np.arange(300_000, dtype=np.float32).reshape(1000, 300)
    found = hlo.compile(hlo.parse(ROWS), cache=False, threads=threads)(x, y)
    expected = np.concatenate([np.pad(x, ((0, 0), (2, 2))), y], axis=1)
    np.testing.assert_array_equal(found, expected)
