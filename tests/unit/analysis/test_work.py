"""What operations are counted of is an op."""

import hlo
from hlo.analysis.work import COUNTS, taken_bytes
from hlo.ops import OPS


def test_every_count_is_of_an_op() -> None:
    assert COUNTS.keys() <= OPS.keys()


def test_an_update_takes_nothing_of_the_array_that_it_updates() -> None:
    module = hlo.parse(
        """HloModule m
        ENTRY e {
          rows = f32[100,8]{1,0} parameter(0)
          row = f32[1,8]{1,0} parameter(1)
          i = s32[] parameter(2)
          zero = s32[] constant(0)
          ROOT r = f32[100,8]{1,0} dynamic-update-slice(rows, row, i, zero)
        }"""
    )
    update = module.entry.root
    assert [taken_bytes(update, n) for n in range(2)] == [0, 32]
