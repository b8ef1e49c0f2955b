"""Collectives that one device runs alone are no code at all."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.analysis.legality import is_forwarding
from hlo.errors import HloError

ALONE = """HloModule alone
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY e {
  p = f32[4] parameter(0)
  q = f32[2,3] parameter(1)
  one = f32[4] all-reduce(p), replica_groups={}, to_apply=sum
  two = (f32[4], f32[2,3]) all-reduce(p, q), replica_groups={{0}}, to_apply=sum
  two.1 = f32[2,3] get-tuple-element(two), index=1
  started = f32[4] all-reduce-start(one), replica_groups={{0}}, to_apply=sum
  done = f32[4] all-reduce-done(started)
  gathered = f32[2,3] all-gather(two.1), replica_groups={}, dimensions={1}
  swapped = f32[2,3] all-to-all(gathered), replica_groups={{0}}, dimensions={1}
  tupled = (f32[2,3]) all-to-all(swapped), replica_groups={{0}}
  part = f32[2,3] get-tuple-element(tupled), index=0
  scattered = f32[2,3] reduce-scatter(part), dimensions={0}, to_apply=sum
  permuted = f32[2,3] collective-permute(scattered), source_target_pairs={{0,0}}
  told = f32[2,3] collective-broadcast(permuted), replica_groups={{0}}
  barred = f32[2,3] custom-call(told), custom_call_target="ShardBarrierFrom"
  gathering = ((f32[2,3], f32[4]), (f32[2,3], f32[4])) all-gather-start(barred, p),
    replica_groups={{0}}, dimensions={0}
  both = (f32[2,3], f32[4]) all-gather-done(gathering)
  again = f32[2,3] get-tuple-element(both), index=0
  moving = (f32[2,3], f32[2,3], u32[], u32[]) collective-permute-start(again),
    source_target_pairs={{0,0}}
  moved = f32[2,3] collective-permute-done(moving)
  negated = f32[2,3] negate(moved)
  ROOT r = (f32[4], f32[2,3], f32[2,3], f32[4]) tuple(done, negated, told, one)
}
"""


def test_collectives_of_one_device_forward_their_operands() -> None:
    module = driver.parse(ALONE)
    work = [i.opcode for i in module.entry.instructions if not is_forwarding(i)]
    assert work == ["parameter", "parameter", "negate"]
    p = np.array([-0.0, 1, 2, 3], np.float32)
    q = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    found = driver.compile(module, cache=False)(p, q)
    for expected, array in zip((p, -q, q, p), found, strict=True):
        assert expected.tobytes() == array.tobytes()
    for expected, array in zip(driver.evaluate(module, p, q), found, strict=True):
        assert expected.tobytes() == array.tobytes()


def test_permutation_without_a_source_gives_zeros() -> None:
    module = driver.parse("""HloModule m
ENTRY e { p = f32[3] parameter(0)
  ROOT r = f32[3] collective-permute(p), source_target_pairs={} }""")
    found = driver.compile(module, cache=False)(np.ones(3, np.float32))
    np.testing.assert_array_equal(found, np.zeros(3, np.float32))


def test_groups_of_several_devices_are_refused_but_in_all_reduces() -> None:
    template = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY e { p = f32[4] parameter(0)
  ROOT r = %s }"""
    p = np.arange(4, dtype=np.float32)
    module = driver.parse(
        template % "f32[4] all-reduce(p), replica_groups={{0,1},{2,3}}, to_apply=sum"
    )
    np.testing.assert_array_equal(driver.compile(module, cache=False)(p), p)  # as XLA's
    np.testing.assert_array_equal(driver.evaluate(module, p), p)
    module = driver.parse(template % "f32[8] all-gather(p), replica_groups={{0,1}}, dimensions={0}")
    with pytest.raises(HloError, match="replica_groups"):
        driver.compile(module, cache=False)(p)


def test_transfers_from_a_host_that_sends_nothing_are_refused_as_by_the_reference() -> None:
    module = driver.parse("""HloModule m
ENTRY e { t = token[] after-all()
  r = (f32[], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true
  ROOT d = (f32[], token[]) recv-done(r), channel_id=1, is_host_transfer=true }""")
    with pytest.raises(HloError) as wanted:
        driver.evaluate(module)
    with pytest.raises(HloError) as found:
        driver.compile(module, cache=False)()
    assert found.value.code == wanted.value.code


def test_transfers_to_oneself_arrive() -> None:
    module = driver.parse("""HloModule m
ENTRY e { p = f32[4] parameter(0)
  t = token[] after-all()
  r = ((f32[4], f32[4]), u32[], token[]) recv(t), channel_id=1,
    frontend_attributes={_xla_send_recv_source_target_pairs="{{0,0}}"}
  q = (f32[4], f32[4]) tuple(p, p)
  s = ((f32[4], f32[4]), u32[], token[]) send(q, t), channel_id=1,
    frontend_attributes={_xla_send_recv_source_target_pairs="{{0,0}}"}
  sd = token[] send-done(s), channel_id=1
  d = ((f32[4], f32[4]), token[]) recv-done(r), channel_id=1
  b = (f32[4], f32[4]) get-tuple-element(d), index=0
  ROOT x = f32[4] get-tuple-element(b), index=1 }""")
    p = np.arange(4, dtype=np.float32)
    run = driver.compile(module, cache=False)
    for _ in range(2):
        np.testing.assert_array_equal(run(p), p)


def test_an_exchange_of_more_parts_than_devices_is_refused_as_by_the_reference() -> None:
    module = driver.parse("""ENTRY e {
      p = f32[2] parameter(0)
      ROOT a = (f32[2], f32[2]) all-to-all(p, p), replica_groups={} }""")
    for run in (driver.compile(module, cache=False), lambda x: driver.evaluate(module, x)):
        with pytest.raises(HloError, match="one per member"):
            run(np.zeros(2, np.float32))
