"""Orders: complete, topological, no worse than the text's, and the text's where it is bound."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.planning.list_order import list_order, with_late_fills
from hlo.backend.planning.schedule import DEEPEST_NESTING, peak_bytes, resolve, schedule
from hlo.errors import HloError
from hlo.parser.parse import parse
from tests.support.tiny_kernels import compiled

WIDE = """HloModule wide{header}
ENTRY e {{
  x = f32[1024] parameter(0)
  a = f32[1024] add(x, x)
  b = f32[1024] multiply(x, x)
  c = f32[1024] subtract(x, x)
  d = f32[1024] maximum(x, x)
  dead = f32[1024] divide(x, x)
  ab = f32[1024] add(a, b)
  abc = f32[1024] add(ab, c)
  ROOT abcd = f32[1024] add(abc, d)
}}"""


def names(text: str) -> list[str]:
    module = parse(text)
    return [i.name for i in schedule(module).orders[module.entry]]


def test_order_has_a_lower_peak_than_the_text() -> None:
    module = parse(WIDE.format(header=""))
    own = tuple(i for i in module.entry.instructions if i.name != "dead")
    found = schedule(module).orders[module.entry]
    assert set(found) == set(own)
    assert peak_bytes(found) < peak_bytes(own)
    place = {i: n for n, i in enumerate(found)}
    assert all(place[o] < place[i] for i in found for o in i.operands)


def test_scheduled_module_keeps_its_order() -> None:
    kept = names(WIDE.format(header=", is_scheduled=true"))
    assert kept == ["x", "a", "b", "c", "d", "ab", "abc", "abcd"]


def test_dead_code_is_left_out_and_effects_stay() -> None:
    text = """HloModule m
    ENTRY e {
      x = f32[2] parameter(0)
      y = f32[2] add(x, x)
      c = f32[2] custom-call(x), custom_call_target="effect", custom_call_has_side_effect=true
      dead = f32[2] multiply(x, x)
      ROOT z = f32[2] add(y, x)
    }"""
    assert names(text) == ["x", "y", "c", "z"]


def test_control_predecessors_come_first() -> None:
    text = """HloModule m
    ENTRY e {
      x = f32[2] parameter(0)
      a = f32[2] add(x, x)
      b = f32[2] multiply(x, x), control-predecessors={a}
      ROOT z = f32[2] subtract(b, a)
    }"""
    found = names(text)
    assert found.index("a") < found.index("b")


def test_only_computations_that_run_are_scheduled() -> None:
    text = """HloModule m
    sum { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }
    ENTRY e {
      x = f32[2] parameter(0)
      zero = f32[] constant(0)
      ROOT r = f32[] reduce(x, zero), dimensions={0}, to_apply=sum
    }"""
    module = parse(text)
    assert list(schedule(module).orders) == [module.entry]


def test_printed_schedule_names_every_instruction() -> None:
    text = str(schedule(parse(WIDE.format(header=""))))
    assert "e (entry): peak" in text
    assert "abcd = f32[1024]{0} add" in text


def nested_loops(depth: int) -> str:
    rows = ["HloModule m", "c { s = f32[] parameter(0)", "ROOT p = pred[] constant(false) }"]
    rows.append("body0 { ROOT s = f32[] parameter(0) }")
    for n in range(1, depth):
        rows.append(f"body{n} {{ s = f32[] parameter(0)")
        rows.append(f"ROOT w = f32[] while(s), condition=c, body=body{n - 1} }}")
    rows.append("ENTRY e { x = f32[] parameter(0)")
    rows.append(f"ROOT w = f32[] while(x), condition=c, body=body{depth - 1} }}")
    return "\n".join(rows)


def test_loops_nested_deep_compile_and_deeper_are_refused() -> None:
    assert compiled(nested_loops(DEEPEST_NESTING))(np.float32(3)) == 3
    with pytest.raises(HloError, match="nested 101 deep") as caught:
        schedule(parse(nested_loops(DEEPEST_NESTING + 1)))
    assert caught.value.code == "unsupported"


BACKWARD = """HloModule m
ENTRY e {
  x = f32[512,512] parameter(0)
  w = f32[512,512] parameter(1)
  a = f32[512,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  zeros = f32[512,512] broadcast(zero), dimensions={}
  b = f32[512,512] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[512,512] dot(b, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  narrow = f32[8,512] slice(x), slice={[0:8], [0:512]}
  d = f32[8,512] dot(narrow, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  f = f32[8,512] dot(d, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[512,512] dot(g, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  h = f32[512,512] add(c, zeros)
  k = f32[8,512] dot(f, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[8,512] add(k, d)
}"""


def test_greedy_order_ends_the_life_of_large_values_first() -> None:
    module = parse(BACKWARD)
    own = tuple(i for i in module.entry.instructions)
    greedy = with_late_fills(list_order(own, module.entry.root, resolve))
    assert set(greedy) == set(own)
    place = {i.name: n for n, i in enumerate(greedy)}
    assert all(place[o.name] < place[i.name] for i in greedy for o in i.operands)
    assert place["f"] < place["c"]  # the last reader of `a` before another large value is made
    assert place["zeros"] == place["h"] - 1
    assert peak_bytes(greedy) < peak_bytes(own)
    found = schedule(module).orders[module.entry]
    assert peak_bytes(found) <= peak_bytes(greedy)


TRAINING = """HloModule m
ENTRY e {
  x = f32[512,512] parameter(0)
  v = f32[512,512] parameter(1)
  w = f32[512,512] parameter(2)
  a = f32[512,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[512,512] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  gv = f32[512,512] dot(a, s), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  gw = f32[512,512] dot(s, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  hw = f32[512,512] dot(gw, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  nv = f32[512,512] add(v, gv)
  nw = f32[512,512] add(w, hw)
  ROOT r = (f32[512,512], f32[512,512]) tuple(nv, nw)
}"""


def test_results_take_no_memory_of_the_arena_so_updates_do_not_wait() -> None:
    module = parse(TRAINING)
    own = tuple(module.entry.instructions)
    greedy = list_order(own, module.entry.root, resolve)
    place = {i.name: n for n, i in enumerate(greedy)}
    assert place["nv"] == place["gv"] + 1  # it frees the gradient, and its result has its place
    assert peak_bytes(own) == 3 * 512 * 512 * 4  # gv, gw, hw
    assert peak_bytes(own[-2:]) == 0  # nw, which is a result, and the tuple of these


def test_a_fill_that_is_named_twice_stands_once() -> None:
    text = """HloModule m
    ENTRY e {
      zero = f32[] constant(0)
      zeros = f32[512,512] broadcast(zero), dimensions={}
      x = f32[512,512] parameter(0)
      y = f32[512,512] sine(x)
      ROOT r = (f32[512,512], f32[512,512], f32[512,512]) tuple(zeros, y, zeros)
    }"""
    module = parse(text)
    order = schedule(module).orders[module.entry]
    assert sorted(i.name for i in order) == ["r", "x", "y", "zero", "zeros"]


def test_a_fill_made_of_a_fill_stands_behind_it() -> None:
    text = """HloModule m
    ENTRY e {
      zero = s32[] constant(0)
      i = s32[1000] iota(), iota_dimension=0
      f = s32[1000] negate(i)
      g = s32[1000] abs(f)
      ROOT t = (s32[1000], s32[1000]) tuple(i, g)
    }"""
    order = with_late_fills(parse(text).entry.instructions)
    assert [i.name for i in order] == ["zero", "i", "f", "g", "t"]
