"""The memory map: what is live when, what made it, what shares its bytes, and the same as JSON."""

from __future__ import annotations

import json

from hlo.backend.compilation import Compilation
from hlo.backend.stages.memory_map import Buffer, MemoryMap, lifetime_bar, memory_map
from hlo.driver import compile
from hlo.parser.parse import parse

PLAIN = """HloModule m
ENTRY e {
  x = f32[1024] parameter(0)
  ROOT r = f32[1024] negate(x)
}"""

PHASES = """HloModule m
less { p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT l = pred[] compare(p, q), direction=LT }
ENTRY e {
  x = f32[1024] parameter(0)
  a = f32[1024] sort(x), dimensions={0}, to_apply=less
  b = f32[1024] reverse(a), dimensions={0}
  c = f32[1024] sort(b), dimensions={0}, to_apply=less
  d = f32[1024] reverse(c), dimensions={0}
  ROOT e = f32[1024] sort(d), dimensions={0}, to_apply=less
}"""

LOOP = """HloModule m
c { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT p = pred[] compare(i, n), direction=LT }
b { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  y = f32[64] multiply(x, x)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[64]) tuple(j, y) }
ENTRY e {
  zero = s32[] constant(0)
  input = f32[64] parameter(0)
  t = (s32[], f32[64]) tuple(zero, input)
  w = (s32[], f32[64]) while(t), condition=c, body=b
  ROOT v = f32[64] get-tuple-element(w), index=1
}"""


def mapped(text: str) -> MemoryMap:
    return memory_map(Compilation(parse(text, "m.hlo"), passes="", threads=1))


def of(found: MemoryMap, instruction: str) -> Buffer:
    (row,) = [b for b in found.buffers if b.instruction == instruction]
    return row


def test_buffers_that_never_meet_share_bytes_and_say_so() -> None:
    found = mapped(PHASES)
    first, last = of(found, "a"), of(found, "c")
    assert first.end < last.start
    if first.offset == last.offset:
        assert last.number in first.shares
        assert first.number in last.shares
    for b in found.buffers:
        for other in b.shares:
            (o,) = [x for x in found.buffers if x.number == other]
            assert b.end < o.start or o.end < b.start


def test_the_peak_is_what_is_live_then() -> None:
    found = mapped(PHASES)
    sizes = {b.number: b.size_bytes for b in found.buffers}
    assert found.peak_bytes == sum(sizes[n] for n in found.live)
    assert found.peak_bytes <= found.arena_bytes
    rows = [b for b in found.buffers if b.number in found.live]
    assert all(b.start <= found.peak_moment <= b.end for b in rows)
    assert found.peak_instruction.split()[0] in "abcde"


def test_rows_name_the_text_line() -> None:
    assert of(mapped(PHASES), "a").line == "m.hlo:7"
    assert of(mapped(PHASES), "a").opcode == "sort"


def test_a_loop_s_state_holds_the_values_of_its_body() -> None:
    found = mapped(LOOP)
    (result,) = [b for b in found.buffers if b.region.startswith("result")]
    assert "y" in result.holds
    counters = [b for b in found.buffers if b.offset is not None and "j" in b.holds]
    assert [b.size_bytes for b in counters] == [4]


def test_sizes_add_up() -> None:
    found = mapped(PLAIN)
    assert found.argument_bytes == found.result_bytes == 4096
    assert found.arena_bytes == 0
    assert found.total_bytes == 8192 + found.constant_bytes + found.scratch_bytes


def test_json_holds_the_whole_map() -> None:
    found = mapped(LOOP)
    data = json.loads(json.dumps(found.to_json()))
    assert data["total_bytes"] == found.total_bytes
    assert len(data["buffers"]) == len(found.buffers)
    assert data["buffers"][0]["instruction"] == "input"


def test_text_shows_every_buffer() -> None:
    found = mapped(LOOP)
    text = str(found)
    assert all(f"\nb{b.number} " in text for b in found.buffers)
    assert "live at the peak" in text


def test_a_lifetime_s_picture() -> None:
    assert lifetime_bar(0, 63, 64) == "#" * 32
    assert lifetime_bar(32, 32, 64) == "." * 16 + "#" + "." * 15


def test_scratch_counts_as_temporary() -> None:
    text = """HloModule m
    ENTRY e { x = f32[300,200] parameter(0)
      y = f32[200,300] parameter(1)
      ROOT r = f32[300,300] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    exe = compile(parse(text), threads=2, cache=False)
    found = memory_map(Compilation(parse(text), threads=2))
    assert found.scratch_bytes > 0
    assert exe.temporary_bytes == found.arena_bytes + found.scratch_bytes
    assert f"{found.scratch_bytes:,} bytes, of all threads" in exe.memory_report()
