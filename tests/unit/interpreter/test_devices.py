"""Several devices in one process: meeting, mailboxes, deadlocks."""

import numpy as np
import pytest

from hlo.errors import HloError
from hlo.interpreter.evaluate import evaluate_devices
from hlo.parser.parse import parse

ALL_REDUCE = """
HloModule m, replica_count=3

add { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] add(a, b) }

ENTRY e {
  x = s32[2] parameter(0)
  ROOT r = s32[2] all-reduce(x), replica_groups={}, to_apply=add
}
"""

SEND_RING = """
HloModule m, replica_count=2

ENTRY e {
  x = f32[] parameter(0)
  t = token[] after-all()
  s = (f32[], u32[], token[]) send(x, t), channel_id=1,
    frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}
  sd = token[] send-done(s), channel_id=1
  r = (f32[], u32[], token[]) recv(t), channel_id=1,
    frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}
  rd = (f32[], token[]) recv-done(r), channel_id=1
  ROOT y = f32[] get-tuple-element(rd), index=0
}
"""

DISAGREEING = """
HloModule m, replica_count=2

add { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] add(a, b) }

reduced {
  x = s32[] parameter(0)
  ROOT r = s32[] all-reduce(x), replica_groups={}, to_apply=add
}

kept { ROOT x = s32[] parameter(0) }

ENTRY e {
  x = s32[] parameter(0)
  id = u32[] replica-id()
  zero = u32[] constant(0)
  first = pred[] compare(id, zero), direction=EQ
  ROOT r = s32[] conditional(first, x, x), true_computation=reduced, false_computation=kept
}
"""


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_all_reduce_over_replicas() -> None:
    results = evaluate_devices(parse(ALL_REDUCE), [[ints(1, 2)], [ints(10, 20)], [ints(5, 6)]])
    assert [r.tolist() for r in results] == [[16, 28]] * 3  # type: ignore[attr-defined]  # arrays


def test_send_and_receive_in_a_ring() -> None:
    assert evaluate_devices(parse(SEND_RING), [[1.0], [2.0]]) == [2.0, 1.0]


def test_missing_device_is_a_deadlock_that_says_who_waits() -> None:
    with pytest.raises(HloError) as caught:
        evaluate_devices(parse(DISAGREEING), [[1], [2]])
    assert caught.value.code == "deadlock"
    assert "device 0 waits in r.1 for device 1" in caught.value.message


def test_fault_on_one_device_ends_all() -> None:
    with pytest.raises(HloError, match="expected s32") as caught:
        evaluate_devices(parse(ALL_REDUCE), [[ints(1, 2)], [ints(1, 2, 3)], [ints(5, 6)]])
    assert caught.value.code == "arguments"


def test_number_of_devices_is_checked() -> None:
    with pytest.raises(HloError, match="arguments for 2 devices, expected 3 replicas x 1"):
        evaluate_devices(parse(ALL_REDUCE), [[ints(1, 2)], [ints(10, 20)]])
