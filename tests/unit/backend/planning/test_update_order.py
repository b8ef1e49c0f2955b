"""Update order: readers before writers where operands allow, in loops and outside, and the bits."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.planning.allocations import Branch, BufferPlan, Loop, Move, Node
from hlo.backend.planning.schedule import schedule
from hlo.interpreter.evaluate import evaluate
from hlo.parser.parse import parse

BODY = """HloModule m
c {{ s = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT p = pred[] compare(i, n), direction=LT }}
b {{ s = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  y = f32[8] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  v = f32[1] constant({{7}})
  {body}
  ROOT t = (s32[], f32[8], f32[8]) tuple(j, u, z) }}
ENTRY e {{
  i0 = s32[] constant(0)
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  t = (s32[], f32[8], f32[8]) tuple(i0, x, y)
  ROOT w = (s32[], f32[8], f32[8]) while(t), condition=c, body=b
}}"""
X = np.arange(8, dtype=np.float32)
Y = np.full(8, 0.5, np.float32)


def copies(nodes: tuple[Node, ...]) -> int:
    return sum(isinstance(n, Move) for n in nodes)


def planned(text: str) -> BufferPlan:
    return Compilation(parse(text), passes="").buffers


def loop_copies(text: str) -> int:
    """Copies in the loop's body; the compiled program gives the interpreter's bits."""
    module = parse(text)
    expected = evaluate(module, X, Y)
    executable = driver.compile(module, passes="", threads=1)
    for result in (executable(X, Y), executable.run_guarded(X, Y)):
        for got, want in zip(result, expected, strict=True):
            np.testing.assert_array_equal(got, want)
    (loop,) = [n for n in planned(text).nodes if isinstance(n, Loop)]
    return copies(loop.body)


def test_a_reader_moves_before_the_update_of_its_operand() -> None:
    body = "u = f32[8] dynamic-update-slice(x, v, i)\n z = f32[8] add(x, y)"
    assert loop_copies(BODY.format(body=body)) == 0


def test_a_counter_is_stepped_after_its_readers() -> None:
    body = "u = f32[8] dynamic-update-slice(x, v, i)\n z = f32[8] dynamic-update-slice(y, v, i)"
    module = parse(BODY.format(body=body))
    (order,) = [o for c, o in schedule(module).orders.items() if c.name == "b"]
    assert order[-2].name.startswith("j")
    assert loop_copies(BODY.format(body=body)) == 0


def test_a_reader_that_needs_the_update_costs_a_copy() -> None:
    body = "u = f32[8] dynamic-update-slice(x, v, i)\n z = f32[8] add(u, x)"
    assert loop_copies(BODY.format(body=body)) >= 1


def test_swapped_state_is_right() -> None:
    body = "u = f32[8] add(y, y)\n z = f32[8] multiply(x, x)"
    assert loop_copies(BODY.format(body=body)) >= 1


def test_a_reader_moves_before_an_update_outside_loops() -> None:
    text = """HloModule m
    ENTRY e {
      x = f32[8] parameter(0)
      y = f32[8] parameter(1)
      i = s32[] constant(3)
      v = f32[1] constant({7})
      a = f32[8] sine(x)
      u = f32[8] dynamic-update-slice(a, v, i)
      z = f32[8] add(a, y)
      ROOT t = (f32[8], f32[8]) tuple(u, z)
    }"""
    assert copies(planned(text).nodes) == 0


def test_a_scheduled_module_keeps_its_order_and_copies() -> None:
    body = "u = f32[8] dynamic-update-slice(x, v, i)\n z = f32[8] add(x, y)"
    text = BODY.format(body=body).replace("HloModule m", "HloModule m, is_scheduled=true")
    assert loop_copies(text) >= 1


def test_state_that_no_iteration_reads_does_not_keep_its_memory() -> None:
    nested = """HloModule m
    ic { s = (s32[], f32[8], f32[8]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      n = s32[] constant(3)
      ROOT p = pred[] compare(i, n), direction=LT }
    ib { s = (s32[], f32[8], f32[8]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      x = f32[8] get-tuple-element(s), index=1
      unread = f32[8] get-tuple-element(s), index=2
      one = s32[] constant(1)
      j = s32[] add(i, one)
      z = f32[8] sine(x)
      ROOT t = (s32[], f32[8], f32[8]) tuple(j, z, unread) }
    ENTRY e {
      i0 = s32[] constant(0)
      x = f32[8] parameter(0)
      y = f32[8] parameter(1)
      a = f32[8] add(x, y)
      t = (s32[], f32[8], f32[8]) tuple(i0, a, a)
      w = (s32[], f32[8], f32[8]) while(t), condition=ic, body=ib
      v = f32[8] get-tuple-element(w), index=1
      ROOT r = (f32[8], f32[8]) tuple(v, y)
    }"""
    assert loop_copies(nested) == 0
    read = nested.replace("tuple(v, y)", "tuple(v, u)").replace(
        "ROOT r", "u = f32[8] get-tuple-element(w), index=2\n ROOT r"
    )
    assert loop_copies(read) == 0


STENCIL = """HloModule m
c {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT p = pred[] compare(i, n), direction=LT }}
b {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[1024] get-tuple-element(s), index=1
  y = f32[1024] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  r = f32[1024] reverse(x), dimensions={{0}}
  z = f32[1024] subtract(r, y)
  ROOT t = {state} tuple(j, {handed}) }}
ENTRY e {{
  i0 = s32[] constant(0)
  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  t = {state} tuple(i0, x, y)
  ROOT w = {state} while(t), condition=c, body=b
}}"""
LONG_X = np.linspace(-1, 1, 1024, dtype=np.float32)
LONG_Y = np.linspace(0, 3, 1024, dtype=np.float32)


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("handed", ["z, x", "y, x", "z, y", "r, z", "x, z"])
def test_large_state_in_two_buffers_is_right_for_any_number_of_iterations(
    trips: int, handed: str
) -> None:
    text = STENCIL.format(state="(s32[], f32[1024], f32[1024])", trips=trips, handed=handed)
    module = parse(text)
    expected = evaluate(module, LONG_X, LONG_Y)
    executable = driver.compile(module, passes="default", threads=1)
    for result in (executable(LONG_X, LONG_Y), executable.run_guarded(LONG_X, LONG_Y)):
        for got, want in zip(result, expected, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("handed", ["z, x", "y, x"])
def test_state_that_swaps_buffers_is_not_copied_by_iterations(handed: str) -> None:
    text = STENCIL.format(state="(s32[], f32[1024], f32[1024])", trips=5, handed=handed)
    (loop,) = [n for n in planned(text).nodes if isinstance(n, Loop)]
    assert loop.iterations == 2
    (branch,) = [n for n in loop.body if isinstance(n, Branch)]
    assert not copies(loop.body)
    assert not copies(branch.branches[0])
    assert copies(branch.branches[1])


def test_small_state_is_copied() -> None:
    text = STENCIL.format(state="(s32[], f32[1024], f32[1024])", trips=5, handed="z, x")
    (loop,) = [n for n in planned(text.replace("1024", "8")).nodes if isinstance(n, Loop)]
    assert loop.iterations == 1
    assert copies(loop.body)
