"""Estimates follow from work and speeds: each quantity counts, and threads share what they can."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hlo.backend.compilation import Compilation
from hlo.backend.ir.kernel import Work
from hlo.backend.ir.work import BESIDE, WAITED, Speeds, estimated_us, speeds_of
from hlo.machine import NAMED
from hlo.parser.parse import parse

SPEEDS = Speeds(100.0, 0.04, ((1 << 10, 80.0), (1 << 12, 40.0), (1 << 14, 20.0)), 0.5, 2.0)


def one_thread(work: Work) -> float:
    return estimated_us(work, 8, 1, 1, SPEEDS) - SPEEDS.call_us


def test_between_known_sizes_speeds_fall_with_the_logarithm() -> None:
    assert [SPEEDS.read(n) for n in (1, 1 << 10, 1 << 12, 1 << 20)] == [80, 80, 40, 20]
    assert SPEEDS.read(1 << 11) == pytest.approx(60)


def test_each_quantity_has_its_time() -> None:
    near = Work(reach=1)
    assert one_thread(replace(near, instructions=300, sums=100)) == pytest.approx(4)
    assert one_thread(replace(near, instructions=300, chain=100)) == pytest.approx(4), "it waits"
    assert one_thread(replace(near, instructions=500, chain=100)) == pytest.approx(5)
    assert one_thread(replace(near, copied=800, packed=100)) == pytest.approx(10 + 1)
    shared = replace(near, shared=800, shared_packed=100, runs=2)
    assert one_thread(shared) == pytest.approx(10 + 1)
    assert one_thread(replace(near, moved=800)) == 0, "arithmetic hides it"
    results = replace(near, instructions=300, streamed=160)
    assert one_thread(results) == pytest.approx(3 + BESIDE * 2), "others are made meanwhile"
    slow = replace(results, streamed=800)
    assert one_thread(slow) == pytest.approx(10 + BESIDE * 3), "as fast as that goes"
    far = Work(reach=1 << 14)
    assert one_thread(replace(far, moved=800)) == pytest.approx(800 / 20 - 800 / 80)
    assert one_thread(replace(far, fetched=800)) == pytest.approx(10), "as if it were near"


def test_a_stream_takes_the_longer_of_both_and_a_share_of_the_other() -> None:
    """A larger one of instructions, beside which a core sees fewer of its bytes."""
    stream = Work(instructions=300, moved=800, reach=1, is_stream=True)
    assert one_thread(stream) == pytest.approx(10 + WAITED * 3)
    assert one_thread(replace(stream, instructions=3000)) == pytest.approx(30 + BESIDE * 10)
    assert one_thread(replace(stream, moved=600, streamed=200)) == one_thread(stream)


def test_threads_share_units_and_pack_what_theirs_share() -> None:
    work = Work(instructions=8000, reach=1)
    alone = estimated_us(work, 8, 1, 1, SPEEDS)
    even = estimated_us(work, 8, 8, 2, SPEEDS)
    assert even == pytest.approx(SPEEDS.share_us + (alone + SPEEDS.call_us) / 2)
    assert estimated_us(work, 3, 3, 2, SPEEDS) > even, "a thread has two of three units"
    packing = replace(work, shared=800, shared_packed=500, runs=1)
    assert estimated_us(packing, 8, 2, 2, SPEEDS) == pytest.approx(
        estimated_us(work, 8, 2, 2, SPEEDS) + 10 + 5
    )


def test_what_is_handed_on_is_taken_back_from_those_who_read_it() -> None:
    speeds = Speeds(100.0, 0.04, ((1 << 10, 80.0),), 0.5, 2.0, taken=10.0)
    copy = Work(moved=800, handed=400, reach=1, is_stream=True)
    alone = estimated_us(copy, 8, 1, 2, speeds)
    assert alone == pytest.approx(0.5 + 10), "one thread reads it"
    assert estimated_us(copy, 8, 1, 2, speeds, readers=2) == pytest.approx(alone + 40)
    shared = estimated_us(copy, 8, 2, 2, speeds, readers=2)
    assert shared == pytest.approx(0.5 + 2 + (10 + 40) / 2), "each takes its own half back"


@pytest.mark.parametrize("name", NAMED)
def test_descriptions_have_speeds(name: str) -> None:
    speeds = speeds_of(NAMED[name])
    assert speeds.instructions > 0
    sizes = [size for size, _ in speeds.reads]
    assert sizes == sorted(sizes)
    assert speeds.read(1) >= speeds.read(1 << 40) > 0


def test_columns_that_tiles_pack_come_meanwhile() -> None:
    """Few rows that meet a large matrix: its first tile of rows packs what it multiplies."""
    text = (
        "HloModule m\nENTRY e { x = f32[16,1024] parameter(0) y = f32[1024,2048] parameter(1)"
        " ROOT r = f32[16,2048] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"
    )
    compilation = Compilation(parse(text), threads=1, machine=NAMED["icelake-server"])
    (kernel,) = compilation.program.kernels
    assert kernel.work is not None
    assert kernel.work.streamed >= 4 * 1024 * 2048


def test_bytes_come_from_where_they_lie_and_code_takes_cycles() -> None:
    stream = Work(moved=800, reach=1 << 14, is_stream=True)
    assert one_thread(stream) == pytest.approx(40)
    near = estimated_us(stream, 8, 1, 1, SPEEDS, since=((600, 1 << 10), (200, 1 << 14)))
    assert near - SPEEDS.call_us == pytest.approx(600 / 80 + 200 / 20)
    again = replace(stream, again=((400, 1 << 12),))
    assert one_thread(again) == pytest.approx(40 + 10)
    assert estimated_us(Work(cycles=300), 8, 1, 1, replace(SPEEDS, cycle_us=0.01)) == pytest.approx(
        SPEEDS.call_us + 3
    )
