"""The profile: every step once, counted as often as it runs, and the same results."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.profiling.cycles import cycles_in_us
from hlo.backend.profiling.limits import Level, Limits, measured_limits
from hlo.backend.profiling.meter import Meter
from hlo.backend.profiling.profile import WARM_UP_S, Profile, ProfileRow, profile, warm_up
from hlo.ir import dtype as dt
from hlo.parser.parse import parse

TEXT = """HloModule m
c { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT p = pred[] compare(i, n), direction=LT }
b { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[64] multiply(x, x)
  ROOT t = (s32[], f32[64]) tuple(j, y) }
ENTRY e {
  zero = s32[] constant(0)
  x = f32[64] parameter(0)
  t = (s32[], f32[64]) tuple(zero, x)
  w = (s32[], f32[64]) while(t), condition=c, body=b
  v = f32[64] get-tuple-element(w), index=1
  ROOT r = f32[64] add(v, x)
}"""


def as_written(threads: int | None = None) -> Compilation:
    return Compilation(parse(TEXT, "loop.hlo"), passes="", threads=threads)


def test_steps_are_counted_as_often_as_they_run() -> None:
    found = profile(as_written(), np.full(64, 0.5, np.float32), repeats=3)
    calls = {row.name: row.calls for row in found.rows if row.kind == "kernel"}
    assert calls["p"] == 7
    assert calls["y"] == 6
    assert calls["r"] == 1
    (product,) = [row for row in found.rows if row.name == "y"]
    assert product.line == "loop.hlo:11"
    assert product.us > 0
    assert "y multiply loop.hlo:11" in str(found)


def test_steps_stand_beside_what_the_machine_can_do() -> None:
    found = profile(as_written(threads=1), np.full(64, 0.5, np.float32), repeats=3)
    limits = found.limits
    assert limits.threads == 1
    assert min(limits.read, limits.copied, limits.operations) > 1e8
    assert limits.seconds(limits.copied, 0) == pytest.approx(1)
    assert limits.seconds(0, 2 * limits.operations) == pytest.approx(2)
    (product,) = [row for row in found.rows if row.name == "y"]
    least = product.calls * limits.seconds_near(product.bytes_moved, product.flops)
    assert found.share(product).startswith(f"{100e6 * least / product.us:4.0f} % ")
    assert str(limits) in str(found)


def test_limits_are_those_of_the_nearest_cache_that_holds_a_steps_bytes() -> None:
    near, far = Level("L1", 1000, 4e9), Level("L2", 5000, 2e9)
    limits = Limits(1, 1e9, 1e9, 1e10, (near, far))
    assert [limits.level(n).name for n in (10, 1000, 1001, 5001)] == ["L1", "L1", "L2", "memory"]
    assert limits.seconds_near(1000, 0) == pytest.approx(1000 / 4e9)
    assert limits.seconds_near(10_000, 0) == limits.seconds(10_000, 0) == pytest.approx(1e-5)
    row = ProfileRow("a", "add", "", "kernel", 2.0, 1.0, 1000, 0)
    assert Profile(1.0, (row,), limits).share(row) == "  50 % L1"
    busy = ProfileRow("b", "dot", "", "kernel", 1.0, 1.0, 1000, 5000)
    assert Profile(1.0, (busy,), limits).share(busy) == "  50 % flops"
    together = Profile(1.0, (row, busy), limits).grouped("opcode").rows[0]
    assert "%" in Profile(1.0, (together,), limits).share(together)


def test_caches_are_measured() -> None:
    """Each gives at least as much as what is behind it, within what a busy machine disturbs."""
    limits = measured_limits(1)
    machine = driver.host_machine()
    assert [c.name for c in limits.caches] == [f"L{n}" for n in range(1, len(machine.caches) + 1)]
    assert all(c.copied > limits.copied / 4 for c in limits.caches)
    assert all(a.bytes <= b.bytes for a, b in itertools.pairwise(limits.caches))


PRODUCT = """HloModule m
ENTRY e {
  x = bf16[96,128] parameter(0)
  y = bf16[128,96] parameter(1)
  z = bf16[96,96] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = bf16[96,96] negate(z)
}"""


def test_a_short_step_is_not_the_call_around_it() -> None:
    """A product of some ns, in a run that has the call from Python besides."""
    module = driver.parse(PRODUCT.replace("96", "8").replace("bf16", "f32"))
    values = [np.ones(p.shape.dims, np.float32) for p in module.entry.parameters]
    found = driver.profile(module, *values, threads=1)
    assert 0 < sum(row.us for row in found.rows) < found.us


def test_the_counter_goes_on() -> None:
    """At a rate of hundreds of kHz at least, of some GHz at most."""
    assert 0.1 < cycles_in_us() < 1e4


def test_short_programs_run_again_and_again_before_they_count() -> None:
    """As callers in a loop do, so that threads that such runs wake are awake."""
    runs: list[float] = []
    warm_up(lambda: runs.append(0.0))
    assert len(runs) > 10
    runs.clear()
    warm_up(lambda: (runs.append(0.0), time.sleep(2 * WARM_UP_S)))
    assert len(runs) == 1


def test_plans_have_an_estimate_beside_what_they_took() -> None:
    values = [np.ones(shape, dt.BF16.numpy) for shape in ((96, 128), (128, 96))]
    compilation = Compilation(parse(PRODUCT, "product.hlo"), passes="")
    found = profile(compilation, *values, repeats=3, plans=True)
    (plan,) = (plan for plan in found.plans if plan.opcode == "dot")
    assert (plan.name, plan.opcode, plan.line) == ("z", "dot", "product.hlo:5")
    assert plan.estimate_us > 0
    assert set(found.speeds) == {1, compilation.threads}
    assert "meanwhile, each of 1 at work: " in str(found)

    took = sum(row.us for row in found.rows if row.name == "z")
    assert plan.us == pytest.approx(took), "kernels that never ran took nothing"
    text = str(found)
    assert f"z dot product.hlo:5: took {plan.us:.2f} us, estimate {plan.estimate_us:.2f} us" in text
    assert "    tiles: " in text
    (loop,) = (plan for plan in found.plans if plan.opcode == "negate")
    assert loop.estimate_us > 0
    assert not profile(compilation, *values, repeats=1).plans


BLOCKED = """HloModule m
ENTRY e {
  q = f32[12,512,16] parameter(0)
  k = f32[12,512,16] parameter(1)
  s = f32[12,512,512] dot(q, k), lhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={2}
  t = f32[12,512,512] add(s, s)
  ROOT o = f32[12,512,16] dot(t, k), lhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
}"""


def test_blocks_count_the_operations_of_their_products() -> None:
    x = np.ones((12, 512, 16), np.float32)
    (row,) = profile(Compilation(parse(BLOCKED)), x, x, repeats=3).rows
    assert row.opcode == "fusion"
    assert row.flops == 12 * 512 * 512 * (2 * 2 * 16 + 1)


def test_speeds_are_the_medians_of_what_was_measured_between_runs() -> None:
    meter = Meter(1)
    for _ in range(3):
        meter.round()
    speeds = meter.speeds()
    sizes = [size for size, _ in speeds.reads]
    assert sizes == sorted(sizes)
    assert sizes[0] <= driver.host_machine().first_cache.bytes < sizes[-1]
    assert speeds.instructions * speeds.wait_us > 1  # several chains at once
    assert all(rate > 100 for _, rate in speeds.reads)  # MB/s
