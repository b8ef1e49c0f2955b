"""Buffer plans: what shares memory, where copies are, and that compiled control flow is right.

Every program here also runs with each buffer between guard pages, temporaries filled with NaN.
"""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.planning.allocations import AllocationKind, BufferPlan, Loop, Move, Node, Run
from hlo.errors import HloError
from hlo.interpreter.evaluate import evaluate
from hlo.parser.parse import parse
from tests.support.tiny_kernels import compiled, f32, planned


def walk(nodes: tuple[Node, ...]) -> list[Node]:
    found: list[Node] = []
    for node in nodes:
        found.append(node)
        if isinstance(node, Loop):
            found += walk(node.condition) + walk(node.body)
        elif not isinstance(node, Run | Move):
            for branch in node.branches:
                found += walk(branch)
    return found


def moves(plan: BufferPlan) -> list[Move]:
    return [n for n in walk(plan.nodes) if isinstance(n, Move)]


def arena_allocations(plan: BufferPlan) -> int:
    return sum(1 for c in plan.allocations if c.kind is AllocationKind.ARENA and c.size)


def flat(value: object) -> list[np.ndarray]:
    if isinstance(value, tuple):
        return [leaf for element in value for leaf in flat(element)]
    return [] if value is None else [np.asarray(value)]


def check(text: str, *arguments: object) -> BufferPlan:
    """Compiled, compiled between guards, and interpreted give the same bits."""
    executable = compiled(text)
    expected = flat(evaluate(parse(text), *arguments))
    for result in (executable(*arguments), executable.run_guarded(*arguments)):
        got = flat(result)
        assert [g.tobytes() for g in got] == [e.tobytes() for e in expected]
        assert [(g.dtype, g.shape) for g in got] == [(e.dtype, e.shape) for e in expected]
    return planned(text)


X, Y = f32(1, 2, 3, 4), f32(10, 20, 30, 40)


def test_chain_in_place_writes_the_result_last() -> None:
    plan = check(
        """HloModule chain
        ENTRY e {
          x = f32[4] parameter(0)
          a = f32[4] add(x, x)
          b = f32[4] multiply(a, x)
          c = f32[4] add(b, b)
          ROOT d = f32[4] multiply(c, x)
        }""",
        X,
    )
    assert arena_allocations(plan) == 1
    assert not moves(plan)


def test_parameter_as_root_is_copied() -> None:
    plan = check("HloModule m\nENTRY e { ROOT x = f32[4] parameter(0) }", X)
    assert len(moves(plan)) == 1


def test_result_aliases_neither_inputs_nor_results() -> None:
    text = """HloModule m
    ENTRY e {
      x = f32[4] parameter(0)
      a = f32[4] add(x, x)
      ROOT t = (f32[4], f32[4], f32[4]) tuple(a, a, x)
    }"""
    check(text, X)
    first, second, third = compiled(text)(X)
    assert not np.shares_memory(first, second)
    assert not np.shares_memory(third, X)


def test_constant_as_root_is_copied_and_shared_constants_are_kept_once() -> None:
    text = """HloModule m
    ENTRY e {
      c = f32[4] constant({1,2,3,4})
      d = f32[4] constant({1,2,3,4})
      ROOT t = (f32[4], f32[4]) tuple(c, d)
    }"""
    check(text)
    executable = compiled(text)
    executable()[0][:] = 0
    np.testing.assert_array_equal(executable()[0], X)
    assert executable.memory.constant_bytes == 16


LOOP = """HloModule loop
c {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT p = pred[] compare(i, n), direction=LT }}
b {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  {body} }}
ENTRY e {{
  i0 = s32[] parameter(0)
  x = f32[4] parameter(1)
  y = f32[4] parameter(2)
  {entry}
  ROOT w = {state} while(t), condition=c, body=b
}}"""
PAIR = "(s32[], f32[4], f32[4])"
TUPLE = "t = (s32[], f32[4], f32[4]) tuple(i0, x, y)"
PARTS = """x = f32[4] get-tuple-element(s), index=1
  y = f32[4] get-tuple-element(s), index=2"""
ZERO = np.array(0, np.int32)


def test_loop_state_is_updated_in_place() -> None:
    body = f"{PARTS}\n z = f32[4] add(x, y)\n ROOT t = {PAIR} tuple(j, z, y)"
    plan = check(LOOP.format(state=PAIR, body=body, entry=TUPLE), ZERO, X, Y)
    (loop,) = [n for n in plan.nodes if isinstance(n, Loop)]
    assert not [n for n in walk(loop.body) if isinstance(n, Move)]
    assert arena_allocations(plan) == 1  # the predicate


def test_an_operand_named_twice_is_overwritten_in_place() -> None:
    body = f"{PARTS}\n z = f32[4] multiply(x, x)\n ROOT t = {PAIR} tuple(j, z, y)"
    plan = check(LOOP.format(state=PAIR, body=body, entry=TUPLE), ZERO, X, Y)
    (loop,) = [n for n in plan.nodes if isinstance(n, Loop)]
    assert not [n for n in walk(loop.body) if isinstance(n, Move)]


def test_untouched_state_is_read_where_it_is() -> None:
    body = f"{PARTS}\n z = f32[4] add(x, y)\n ROOT t = {PAIR} tuple(j, z, y)"
    text = LOOP.format(state=PAIR, body=body, entry=TUPLE).replace("ROOT w", "w")
    text = text[: text.rindex("}")] + "ROOT r = f32[4] get-tuple-element(w), index=1 }"
    plan = check(text, ZERO, X, Y)
    assert len(moves(plan)) == 2  # the counter and x into the state; y is the argument itself


def test_swapped_state_needs_one_temporary() -> None:
    body = f"{PARTS}\n ROOT t = {PAIR} tuple(j, y, x)"
    plan = check(LOOP.format(state=PAIR, body=body, entry=TUPLE), ZERO, X, Y)
    (loop,) = [n for n in plan.nodes if isinstance(n, Loop)]
    assert len([n for n in walk(loop.body) if isinstance(n, Move)]) == 3


def test_same_value_at_two_leaves() -> None:
    body = f"{PARTS}\n z = f32[4] add(x, y)\n ROOT t = {PAIR} tuple(j, z, z)"
    check(LOOP.format(state=PAIR, body=body, entry=TUPLE), ZERO, X, Y)


def test_same_initial_value_at_two_leaves() -> None:
    parts = f"{PARTS}\n z = f32[4] add(x, y)\n u = f32[4] multiply(x, y)"
    body = f"{parts}\n ROOT t = {PAIR} tuple(j, z, u)"
    entry = f"q = f32[4] add(x, y)\n t = {PAIR} tuple(i0, q, q)"
    check(LOOP.format(state=PAIR, body=body, entry=entry), ZERO, f32(0.5, 1, 1, 1), f32(1, 1, 1, 1))


def test_old_leaf_read_after_its_new_value() -> None:
    body = f"""{PARTS}
      z = f32[4] add(x, y)
      u = f32[4] multiply(z, x)
      v = f32[4] subtract(u, x)
      ROOT t = {PAIR} tuple(j, z, v)"""
    check(LOOP.format(state=PAIR, body=body, entry=TUPLE), ZERO, f32(0.1, 0.2, 0.3, 0.4), X)


def test_constant_state_and_constant_root() -> None:
    parts = f"{PARTS}\n c = f32[4] constant({{1,2,3,4}})\n z = f32[4] add(x, y)"
    body = f"{parts}\n ROOT t = {PAIR} tuple(j, c, z)"
    entry = f"k = f32[4] constant({{5,6,7,8}})\n t = {PAIR} tuple(i0, k, y)"
    check(LOOP.format(state=PAIR, body=body, entry=entry), ZERO, X, Y)


def test_loop_without_iterations_gives_its_initial_state() -> None:
    body = f"{PARTS}\n z = f32[4] add(x, y)\n ROOT t = {PAIR} tuple(j, z, x)"
    check(LOOP.format(state=PAIR, body=body, entry=TUPLE), np.array(9, np.int32), X, Y)


def test_state_used_after_the_loop_is_kept() -> None:
    text = LOOP.format(
        state=PAIR,
        body=f"{PARTS}\n z = f32[4] add(x, y)\n ROOT t = {PAIR} tuple(j, z, z)",
        entry=f"q = f32[4] add(x, y)\n t = {PAIR} tuple(i0, q, y)",
    ).replace("ROOT w", "w")
    text = text[: text.rindex("}")] + (
        "a = f32[4] get-tuple-element(w), index=1\n ROOT r = f32[4] add(a, q) }"
    )
    check(text, ZERO, X, Y)


NESTED = """HloModule nested
ic { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT }
ib { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4] add(x, x)
  ROOT t = (s32[], f32[4]) tuple(j, y) }
oc { s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2)
  ROOT p = pred[] compare(i, n), direction=LT }
ob { s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  k = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  t = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(t), condition=ic, body=ib
  y = f32[4] get-tuple-element(w), index=1
  z = f32[4] add(y, k)
  ROOT r = (s32[], f32[4], f32[4]) tuple(j, z, k) }
ENTRY e {
  i0 = s32[] parameter(0)
  x = f32[4] parameter(1)
  k = f32[4] parameter(2)
  t = (s32[], f32[4], f32[4]) tuple(i0, x, k)
  ROOT w = (s32[], f32[4], f32[4]) while(t), condition=oc, body=ob
}"""


def test_nested_loops_share_one_state() -> None:
    plan = check(NESTED, ZERO, X, Y)
    (outer,) = [n for n in plan.nodes if isinstance(n, Loop)]
    copied = [n for n in walk(outer.body) if isinstance(n, Move) and n.size == 16]
    assert not copied


UPDATES = """HloModule updates
c { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(8)
  ROOT p = pred[] compare(i, n), direction=LT }
b { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  five = f32[1] constant({5})
  y = f32[8] dynamic-update-slice(x, five, i)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[8]) tuple(j, y) }
ENTRY e {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(t), condition=c, body=b
  ROOT r = f32[8] get-tuple-element(w), index=1
}"""


def test_update_in_a_loop_is_in_place_in_the_result() -> None:
    plan = check(UPDATES, np.arange(8, dtype=np.float32))
    big = [m for m in moves(plan) if m.size == 32]
    assert len(big) == 1  # the argument into the result, before the loop
    assert plan.allocations[big[0].target].kind is AllocationKind.RESULT


def test_update_of_a_value_read_later_copies_it() -> None:
    plan = check(
        """HloModule m
        ENTRY e {
          x = f32[4] parameter(0)
          i = s32[] constant(2)
          v = f32[1] constant({9})
          a = f32[4] add(x, x)
          b = f32[4] dynamic-update-slice(a, v, i)
          ROOT c = f32[4] multiply(a, b)
        }""",
        X,
    )
    assert len(moves(plan)) == 1


BRANCHES = """HloModule branches
t { s = (f32[4], f32[4]) parameter(0)
  a = f32[4] get-tuple-element(s), index=0
  b = f32[4] get-tuple-element(s), index=1
  c = f32[4] add(a, b)
  ROOT r = (f32[4], f32[4]) tuple(c, a) }
f { s = (f32[4], f32[4]) parameter(0)
  a = f32[4] get-tuple-element(s), index=0
  b = f32[4] get-tuple-element(s), index=1
  ROOT r = (f32[4], f32[4]) tuple(b, a) }
g { s = (f32[4], f32[4]) parameter(0)
  k = f32[4] constant({1,1,2,3})
  ROOT r = (f32[4], f32[4]) tuple(k, k) }
"""


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 3])
def test_indexed_conditional(index: int) -> None:
    text = (
        BRANCHES
        + """ENTRY e {
      i = s32[] parameter(0)
      x = f32[4] parameter(1)
      y = f32[4] parameter(2)
      q = f32[4] add(x, y)
      v = (f32[4], f32[4]) tuple(q, x)
      u = (f32[4], f32[4]) tuple(q, q)
      ROOT r = (f32[4], f32[4]) conditional(i, v, u, v), branch_computations={t, f, g}
    }"""
    )
    check(text, np.array(index, np.int32), X, Y)


@pytest.mark.parametrize("value", [False, True])
def test_predicated_conditional_then_use_of_its_operand(*, value: bool) -> None:
    text = (
        BRANCHES
        + """ENTRY e {
      i = pred[] parameter(0)
      x = f32[4] parameter(1)
      y = f32[4] parameter(2)
      q = f32[4] add(x, y)
      v = (f32[4], f32[4]) tuple(q, x)
      k = (f32[4], f32[4]) conditional(i, v, v), true_computation=t, false_computation=f
      a = f32[4] get-tuple-element(k), index=0
      b = f32[4] get-tuple-element(k), index=1
      c = f32[4] add(a, q)
      ROOT r = f32[4] multiply(c, b)
    }"""
    )
    check(text, np.array(value), X, Y)


CONDITIONAL_UPDATE = """HloModule m
u { s = f32[4] parameter(0)
  v = f32[1] constant({9})
  i = s32[] constant(1)
  ROOT r = f32[4] dynamic-update-slice(s, v, i) }
k { ROOT s = f32[4] parameter(0) }
ENTRY e {
  p = pred[] parameter(0)
  x = f32[4] parameter(1)
  q = f32[4] add(x, x)
  w = f32[4] conditional(p, q, q), true_computation=u, false_computation=k
  ROOT r = f32[4] add(w, x)
}"""


@pytest.mark.parametrize("value", [False, True])
def test_conditional_update_in_place(*, value: bool) -> None:
    plan = check(CONDITIONAL_UPDATE, np.array(value), X)
    assert not moves(plan)


def test_calls_are_planned_in_place_of_the_call() -> None:
    plan = check(
        """HloModule m
        f { a = f32[4] parameter(0)
            b = f32[4] parameter(1)
            c = f32[4] add(a, b)
            ROOT t = (f32[4], f32[4]) tuple(c, a) }
        ENTRY e {
          x = f32[4] parameter(0)
          y = f32[4] parameter(1)
          k = (f32[4], f32[4]) call(x, y), to_apply=f
          p = f32[4] get-tuple-element(k), index=0
          q = f32[4] get-tuple-element(k), index=1
          l = (f32[4], f32[4]) call(p, q), to_apply=f
          r = f32[4] get-tuple-element(l), index=0
          ROOT s = f32[4] multiply(r, p)
        }""",
        X,
        Y,
    )
    assert not moves(plan)


def test_deep_call_chains_do_not_recurse() -> None:
    rows = ["HloModule m", "call0 { ROOT a = f32[4] parameter(0) }"]
    for n in range(1, 1500):
        rows.append(
            f"call{n} {{ a = f32[4] parameter(0)\n ROOT c = f32[4] call(a), to_apply=call{n - 1} }}"
        )
    rows.append("ENTRY e { x = f32[4] parameter(0)\n ROOT r = f32[4] call(x), to_apply=call1499 }")
    np.testing.assert_array_equal(compiled("\n".join(rows))(X), X)


def test_zero_sized_values_take_no_memory() -> None:
    plan = check(
        """HloModule m
        ENTRY e {
          x = f32[0,3] parameter(0)
          y = f32[4] parameter(1)
          a = f32[0,3] add(x, x)
          b = f32[4] add(y, y)
          ROOT t = (f32[0,3], f32[4]) tuple(a, b)
        }""",
        np.zeros((0, 3), np.float32),
        X,
    )
    assert plan.arena_bytes == 0


DONATED = """HloModule d, input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {}, may-alias) }
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] add(x, y)
  b = f32[4] multiply(x, y)
  ROOT t = (f32[4], f32[4]) tuple(a, b)
}"""


def test_donated_arguments_become_results() -> None:
    check(DONATED, X, Y)
    x, y = X.copy(), Y.copy()
    first, second = compiled(DONATED)(x, y, donate=(0, 1))
    np.testing.assert_array_equal(first, X + Y)
    np.testing.assert_array_equal(second, X * Y)
    assert np.shares_memory(first, y)
    assert np.shares_memory(second, x)


def test_arguments_not_given_away_are_kept() -> None:
    x, y = X.copy(), Y.copy()
    compiled(DONATED)(x, y)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)


def test_swapped_donations() -> None:
    text = """HloModule d, input_output_alias={ {0}: (0, {}), {1}: (1, {}) }
    ENTRY e {
      x = f32[4] parameter(0)
      y = f32[4] parameter(1)
      ROOT t = (f32[4], f32[4]) tuple(y, x)
    }"""
    check(text, X, Y)
    first, second = compiled(text)(X.copy(), Y.copy(), donate=(0, 1))
    np.testing.assert_array_equal(first, Y)
    np.testing.assert_array_equal(second, X)


def test_given_away_memory_may_not_be_another_argument() -> None:
    x = X.copy()
    with pytest.raises(HloError, match="given away"):
        compiled(DONATED)(x, x, donate=(0,))
